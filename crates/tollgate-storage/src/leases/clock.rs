//! The clock of the process that keeps the counts, and its known errors.
//!
//! Invariant: a node stops before its lease ends here, by at least the allowed error of the clock.
//! A larger step that was noticed moves the ends of the leases that were granted before it. A step
//! that was not noticed is not covered; it costs one burst per key.

use tollgate_core::{Span, Timestamp};

use crate::leases::mutation::{self, Mutation};

/// The longest life of a lease: 10 s. A lost node blocks its units, and an operator's block waits,
/// for at most this long.
pub const MAX_LEASE_LIFE: Span = Span::from_secs(10);
/// The life of a lease when the policy does not set one.
pub const DEFAULT_LEASE: Span = Span::from_secs(2);

/// The error that the clock may have within the life of a lease, unless a setting changes it: 1 s.
/// It is the largest allowed difference between the nodes of an engine when one follows another.
pub const CLOCK_ERROR: Span = Span::from_secs(1);

/// A time, and the reliability of the clock that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The time.
    pub now: Timestamp,
    /// The time since which the clock is known to have made no step of more than `error` and no
    /// write was lost: the time of a connection to a store, a failover, or a step that was noticed.
    /// [`Timestamp::ZERO`] when no such event is known, or when no earlier counts are left. Nothing
    /// is leased for one longest life after it.
    pub steady_since: Timestamp,
    /// The error that it may have within the life of a lease.
    pub error: Span,
}

impl Clock {
    /// The same after counts were lost at `lost_at`, which may have included leases.
    pub(crate) fn after_loss(self, lost_at: Timestamp) -> Self {
        Self { steady_since: self.steady_since.max(lost_at), ..self }
    }

    /// True when leases may be granted: all leases from before the last step are over.
    pub(crate) fn is_steady(&self) -> bool {
        let Self { now, steady_since, error } = *self;
        let settled_at = steady_since.saturating_add(MAX_LEASE_LIFE).saturating_add(error);
        steady_since == Timestamp::ZERO || now >= settled_at
    }

    /// The end of a lease of `life` that is granted at `at`.
    pub(crate) fn end(&self, at: Timestamp, life: Span) -> Timestamp {
        let is_exact = mutation::is(Mutation::NoClockError);
        at.saturating_add(life).saturating_add(if is_exact { Span::ZERO } else { self.error })
    }
}

impl From<Timestamp> for Clock {
    fn from(now: Timestamp) -> Self {
        Self { now, steady_since: Timestamp::ZERO, error: CLOCK_ERROR }
    }
}
