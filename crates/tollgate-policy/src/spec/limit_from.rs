//! The limit of a quota that a request brings with it.
//!
//! Invariant: the limiter of such a quota counts up to the highest limit of a request, so requests
//! with different limits share one count, and the limit of one request enters only its comparison.

use alloc::string::String;

use tollgate_core::Limiter;

use crate::spec::coded::{fields, variants};
use crate::spec::fact::Fact;
use crate::spec::key::Origin;
use crate::spec::metadata::MetadataPath;
use crate::spec::scalar::HeaderName;

fields! {
    /// Where a request has the limit of a quota.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LimitFrom {
        /// The source.
        source: LimitSource,
        /// The limit of a request without one, at most that of the limiter; 0 denies.
        default: u64,
    }
}

/// The source of a request's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// A claim of a verified token.
    Claim(String),
    /// A header that a proxy or the caller writes.
    Header(HeaderName),
    /// A value of the proxy's metadata.
    Metadata(MetadataPath),
    /// The limit in a descriptor of a rate limit service.
    Descriptor,
}

variants!(LimitSource {
    0 => Claim(name: String),
    1 => Header(name: HeaderName),
    2 => Metadata(path: MetadataPath),
    3 => Descriptor,
});

impl LimitSource {
    /// The fact of a request that it reads.
    #[must_use]
    pub fn reads(&self) -> Fact<'_> {
        match self {
            Self::Claim(name) => Fact::Claim(name),
            Self::Header(name) => Fact::Header(&name.0),
            Self::Metadata(path) => Fact::Metadata(path),
            Self::Descriptor => Fact::Entries,
        }
    }

    /// Where a request has it from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::Header(_) => Origin::Client,
            Self::Metadata(path) if path.is_of_client() => Origin::Client,
            Self::Claim(_) | Self::Metadata(_) | Self::Descriptor => Origin::Verified,
        }
    }
}

/// In words: `claim rate_limit`.
#[cfg(feature = "explain")]
impl core::fmt::Display for LimitSource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Claim(name) => write!(f, "claim {name}"),
            Self::Header(name) => write!(f, "header {}", name.0),
            Self::Metadata(path) => write!(f, "metadata {path}"),
            Self::Descriptor => f.write_str("the descriptor"),
        }
    }
}

impl LimitFrom {
    /// True for one that a quota with this limiter can have.
    pub(crate) fn fits(&self, limiter: &Limiter) -> bool {
        self.default <= limiter.limit()
            && limiter.within(self.default).is_some()
            && !(limiter.is_closed() || limiter.quota().is_strict())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_counts_nothing_takes_no_limit() {
        let from = LimitFrom { source: LimitSource::Descriptor, default: 0 };
        let closed = Limiter::closed(tollgate_core::Span::ZERO).unwrap();
        assert!(!from.fits(&closed));
    }
}
