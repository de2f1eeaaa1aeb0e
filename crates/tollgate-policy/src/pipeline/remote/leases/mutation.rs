//! Wrong ways to account for leases, each of which the model must find: its tests switch one on.
//!
//! Invariant: outside of this crate's tests none of them can be switched on, and asking costs
//! nothing.

/// What is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests switch one on"))]
pub(crate) enum Mutation {
    /// Reports are charged before the leases that are over.
    ReportsFirst,
    /// Units are charged when they are leased, and what is reported is not.
    ChargesAtGrant,
    /// A lease that is over is forgotten, and what it did not report is not counted.
    TrustsSilence,
    /// A direct cost is decided as if nothing were out.
    IgnoresOut,
    /// Units are leased beside those that others have.
    LeasesOut,
    /// Units are leased of a state that another clock has left.
    LeasesForeign,
    /// A report that comes late sets back what was reported.
    BelievesTheLast,
    /// A return takes the units back without charging what it reports.
    ReturnsUncharged,
    /// The clock's error is not waited for.
    NoClockError,
    /// The key's time follows a clock that is set back.
    FollowsBack,
    /// A step of the clock ends leases early.
    EndsAtStep,
    /// What is out stays out when the quotas change.
    KeepsAcrossChange,
    /// A row is idle though units of it are out.
    IdleWhileOut,
    /// The leases of a key that is reset are forgotten.
    ResetForgets,
    /// The node counts a lease's life from the answer.
    LivesFromAnswer,
    /// The node spends on after it has sent a return.
    SpendsAfterReturn,
    /// The node takes a lease again that it has given back, when the answer comes once more.
    TakesAgain,
    /// A shard admits what is paid under one rule of several.
    PaysInPart,
}

#[cfg(not(test))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}

/// Says that a charge did not fit, which is a violation.
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

    /// Does what follows in this thread wrongly.
    pub(crate) fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    pub(crate) fn did_not_fit() {
        MISFITS.set(MISFITS.get().saturating_add(1));
    }

    /// How many charges of this thread have not fitted.
    pub(crate) fn misfits() -> u64 {
        MISFITS.get()
    }
}
