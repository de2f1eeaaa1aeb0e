//! Wrong variants of the protocol, each of which the model must find: a test enables one, and the
//! model must fail.
//!
//! Invariant: outside of this crate's tests none of them can be enabled, and checking for one costs
//! nothing.

/// A wrong variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Charges are answered when their call is sent.
    AnswersBeforeAck,
    /// Denials are answered without any call.
    DeniesBeforeAck,
    /// A value has a version and no tag of its commit.
    NoTag,
    /// A call without a reply in time is assumed to be applied.
    BelievesAfterTimeout,
    /// A refund with an unknown result is repeated.
    GivesBackAgain,
    /// The engine does not check the time.
    AnyTime,
    /// After a lost race the next attempt is assumed to have won.
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

/// Enables a mutation in this thread.
#[cfg(test)]
pub(crate) fn activate(mutation: Option<Mutation>) {
    ACTIVE.set(mutation);
}
