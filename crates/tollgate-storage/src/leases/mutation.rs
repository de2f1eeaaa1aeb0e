//! Wrong ways to account for leases, each of which the model must detect: its tests switch one on.
//!
//! Invariant: none of them can be switched on outside this crate's tests, and the check costs
//! nothing there.

/// The faulty behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests switch one on"))]
pub(crate) enum Mutation {
    /// Reports are charged before the leases that are over.
    ReportsFirst,
    /// Units are charged when they are leased, and reported units are not.
    ChargesAtGrant,
    /// A lease that is over is removed, and its unreported units are not counted.
    TrustsSilence,
    /// A direct cost is decided as if no units were out.
    IgnoresOut,
    /// Units are leased without subtracting those that other nodes hold.
    LeasesOut,
    /// Units are leased from a state that another clock has left.
    LeasesForeign,
    /// A late report lowers the reported units.
    BelievesTheLast,
    /// A return gives the units back without charging the reported ones.
    ReturnsUncharged,
    /// The clock's error is not added to the end of a lease.
    NoClockError,
    /// The key's time follows a clock that is set back.
    FollowsBack,
    /// A step of the clock ends leases early.
    EndsAtStep,
    /// Units that are out stay out when the quotas change.
    KeepsAcrossChange,
    /// A row is idle although units of it are out.
    IdleWhileOut,
    /// The leases of a key that is reset are dropped.
    ResetForgets,
    /// The node counts a lease's life from the response.
    LivesFromAnswer,
    /// The node continues to spend after it has sent a return.
    SpendsAfterReturn,
    /// The node accepts a lease that it has already given back, when the response is repeated.
    TakesAgain,
    /// A shard allows a request that is paid under one rule of several.
    PaysInPart,
}

#[cfg(not(test))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}

/// Reports that a charge did not fit, which is a violation.
#[cfg(not(test))]
pub(crate) const fn did_not_fit() {}

#[cfg(test)]
pub(crate) use switched::{activate, did_not_fit, is, misfits};

#[cfg(test)]
mod switched {
    extern crate std;

    use core::cell::Cell;

    use super::Mutation;

    std::thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
        static MISFITS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn is(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }

    /// Makes the code that follows in this thread faulty.
    pub(crate) fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    pub(crate) fn did_not_fit() {
        MISFITS.set(MISFITS.get().saturating_add(1));
    }

    /// How many charges of this thread did not fit.
    pub(crate) fn misfits() -> u64 {
        MISFITS.get()
    }
}
