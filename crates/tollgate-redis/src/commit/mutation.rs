//! Wrong ways to do it, each of which the model must find: tests switch one on, and then it fails.
//!
//! Invariant: outside of this crate's tests none of them can be switched on, and asking costs
//! nothing.

/// What is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Admissions are answered when their call is sent.
    AnswersBeforeAck,
    /// Denials are answered without any call.
    DeniesBeforeAck,
    /// A value has a version and no tag of its commit.
    NoTag,
    /// A call that was not answered in time is taken to have happened.
    BelievesAfterTimeout,
    /// What is given back is given back again when it is not known whether it was.
    GivesBackAgain,
    /// The engine is not asked whether the time is right.
    AnyTime,
    /// After a lost race the next try is taken to have been won.
    WinsEveryRace,
}

#[cfg(test)]
impl Mutation {
    pub(crate) const ALL: [Self; 7] = [
        Self::AnswersBeforeAck,
        Self::DeniesBeforeAck,
        Self::NoTag,
        Self::BelievesAfterTimeout,
        Self::GivesBackAgain,
        Self::AnyTime,
        Self::WinsEveryRace,
    ];
}

#[cfg(not(test))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static ACTIVE: core::cell::Cell<Option<Mutation>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

/// Does what follows in this thread wrongly.
#[cfg(test)]
pub(crate) fn activate(mutation: Option<Mutation>) {
    ACTIVE.set(mutation);
}
