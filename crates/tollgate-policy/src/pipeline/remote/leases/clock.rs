//! The clock of whoever keeps the counts, and what is known about it.
//!
//! Invariant: a node stops before its lease ends here, by at least the error that is allowed to the
//! clock. A greater step that is known of moves the ends of the leases that were granted before it;
//! one that nobody noticed is what this does not cover: one burst a key.

use tollgate_core::{Span, Timestamp};

use crate::document::scope::MAX_LEASE;
use crate::pipeline::remote::leases::mutation::{self, Mutation};

/// The longest life of a lease: 10 s. So long at most a lost node strands its units, and a block of
/// an operator waits.
pub const MAX_LEASE_LIFE: Span = MAX_LEASE;

/// By how much the clock may be wrong within the life of a lease, unless a setting says otherwise:
/// 1 s. It is the most by which the nodes of an engine may differ, one of which follows another.
pub const CLOCK_ERROR: Span = Span::from_secs(1);

/// A time, and how far the clock that shows it is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The time.
    pub now: Timestamp,
    /// Since when the clock has made no step of more than `error`, as far as anybody knows, and no
    /// write was lost: a connection to a store, a failover, a step that was noticed;
    /// [`Timestamp::ZERO`] where nothing is known to have happened, or where nothing is left of
    /// what was counted before. Nothing is leased for one longest life after it.
    pub steady_since: Timestamp,
    /// By how much it may be wrong within the life of a lease.
    pub error: Span,
}

impl Clock {
    /// The same where something that was counted here was lost at `lost_at`: leases may have been
    /// among it.
    pub(crate) fn after_loss(self, lost_at: Timestamp) -> Self {
        Self { steady_since: self.steady_since.max(lost_at), ..self }
    }

    /// True when leases may be granted: all that were granted before the last step are over.
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
