//! One step of an operation.
//!
//! Invariant: after a step there is an answer, or exactly one call of the store to go on from.

use crate::answer::Answer;

/// What comes next in an operation that asks `Call` and goes on from `State`.
pub(crate) enum Step<Call, State> {
    /// This is the answer.
    Answer(Answer),
    /// Ask this, and go on from there.
    Ask(Call, State),
}
