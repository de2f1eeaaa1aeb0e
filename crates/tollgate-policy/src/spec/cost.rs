//! The cost of a request.
//!
//! Invariant: at least 1, and never more than the document allows.

use crate::spec::scalar::HeaderName;
use tollgate_http_syntax::repeated::Repeated;

/// The highest cost of one request, and the highest value of `max`.
pub const MAX_COST: u64 = 1_000_000_000;

/// The cost of one request, in quota units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for every request.
    Fixed(u64),
    /// The whole number in a header.
    Header {
        /// Its name.
        name: HeaderName,
        /// The cost when the header is absent or is not a whole number.
        default: u64,
        /// At most this.
        max: u64,
        /// The meaning of several costs.
        repeated: Option<Repeated>,
    },
    /// One unit per this many bytes of the announced body, rounded up, at least 1.
    ContentLengthPer(u64),
    /// The hits that a descriptor reports: they were used already, and are recorded whether or not
    /// they fit.
    Reported,
}

impl Cost {
    /// The highest estimate that it is, where it can be the estimate of a cost that the response
    /// settles.
    pub const fn as_estimate(&self) -> Option<u64> {
        match self {
            Self::Fixed(cost) => Some(*cost),
            Self::Header { max, .. } => Some(*max),
            Self::ContentLengthPer(_) | Self::Reported => None,
        }
    }

    /// True for a cost that a document may set.
    pub fn is_one(&self) -> bool {
        let units = 1..=MAX_COST;
        match self {
            Self::Fixed(cost) | Self::ContentLengthPer(cost) => units.contains(cost),
            Self::Reported => true,
            Self::Header { name: _, default, max, repeated } => {
                (1..=*max).contains(default)
                    && units.contains(max)
                    && *repeated != Some(Repeated::Join)
            }
        }
    }
}
