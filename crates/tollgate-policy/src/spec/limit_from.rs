//! The limit of a quota that a request brings with it.
//!
//! Invariant: the limiter of such a quota counts up to the highest limit of a request, so requests
//! with different limits share one count, and the limit of one request enters only its comparison.

use alloc::string::String;

use tollgate_core::{Algorithm, Limiter};

use crate::spec::action::Action;
use crate::spec::charging::Charging;
use crate::spec::coded::{fields, variants};
use crate::spec::cost::Cost;
use crate::spec::fact::Fact;
use crate::spec::key::Origin;
use crate::spec::metadata::MetadataPath;
use crate::spec::rule::RuleTerms;
use crate::spec::scalar::HeaderName;
use crate::spec::scope::Scope;

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
            && !limiter.quota().is_strict()
    }
}

/// Why the limit of a quota that counts by `algorithm` cannot come from a request in a rule with
/// these properties; `None` where it can. `has_shards`: its count is leased to shards.
#[must_use]
pub fn no_limit_from(
    algorithm: Algorithm,
    action: Option<&Action>,
    charging: &Charging,
    cost: Option<&Cost>,
    (scope, has_shards): (Scope, bool),
) -> Option<&'static str> {
    match action {
        _ if algorithm.has_burst() => Some(RATES),
        Some(Action::Delay(_)) => Some(DELAYS),
        _ if scope == Scope::Fleet || has_shards => Some(LEASED),
        _ if scope != Scope::Local => Some(SHARED),
        _ if *charging != Charging::Request || cost == Some(&Cost::Reported) => Some(LATER),
        _ => None,
    }
}

impl RuleTerms {
    /// [`no_limit_from`] for a quota of this rule.
    #[must_use]
    pub fn no_limit_from(&self, algorithm: Algorithm, has_shards: bool) -> Option<&'static str> {
        let place = (self.scope, has_shards);
        no_limit_from(algorithm, Some(&self.action), &self.charging, Some(&self.cost), place)
    }
}

const RATES: &str = "is for quotas that count units, and this algorithm keeps a debt, which has no meaning under another limit; use \"fixed-window\", \"sliding-window\", \"sliding-buckets\" or \"sliding-log\"";
const DELAYS: &str = "is decided at once, and the turn of a waiting request does not know its limit; use an action other than \"delay\"";
const LEASED: &str = "is compared with the whole count, and this rule leases units to several places, which do not see it; leave it out, or \"scope\" and \"shards\"";
const SHARED: &str = "is the limit of the whole count, and this rule divides its limits among nodes; leave it out, or \"scope\"";
const LATER: &str = "is known when a request arrives, and this rule charges by its response or by a report; leave one of them out";
