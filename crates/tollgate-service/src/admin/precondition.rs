//! Preconditions of reads and writes.
//!
//! Invariant: who writes says what it saw, so that nobody overwrites what it did not see. `*` is
//! whatever is there (RFC 9110, 13.1.1): who sends it says so.

use crate::answer::Answer;
use crate::asked::Asked;
use crate::entity_tag::Tags;
use crate::problem::Wrong;

/// The answer to a read whose reader has `tag` already (RFC 9110, 13.1.2 and 15.4.5).
pub(crate) fn unchanged(asked: &Asked, tag: &str) -> Option<Answer> {
    let has_it = asked.if_none_match.as_ref().is_some_and(|tags| tags.match_weakly(tag));
    has_it.then(|| Answer::bodiless(304).with("etag", tag))
}

/// Refuses a write that says nothing of what it saw.
///
/// # Errors
/// The answer.
pub(crate) fn named(asked: &Asked) -> Result<(), Answer> {
    if asked.if_match.is_some() || asked.if_none_match.is_some() {
        return Ok(());
    }
    let detail = "send \"if-match\" with the etag of what you read, or \"*\" for whatever is there";
    Err(Wrong::PreconditionRequired.answer(detail))
}

/// Refuses a write whose preconditions do not hold for what has `tag`; none: for nothing (RFC 9110,
/// 13.2.2).
///
/// # Errors
/// The answer.
pub(crate) fn holds(asked: &Asked, tag: Option<&str>) -> Result<(), Answer> {
    let matches = |tags: &Tags| tag.is_some_and(|tag| tags.match_strongly(tag));
    let is_named = |tags: &Tags| tag.is_some_and(|tag| tags.match_weakly(tag));
    if asked.if_match.as_ref().is_none_or(matches)
        && !asked.if_none_match.as_ref().is_some_and(is_named)
    {
        return Ok(());
    }
    let Some(tag) = tag else {
        return Err(Wrong::PreconditionFailed.answer("there is none; see if-none-match"));
    };
    let detail = "something else is there than you read; read it again, see etag";
    Err(Wrong::PreconditionFailed.answer(detail).with("etag", tag))
}
