//! Preconditions of reads and writes.
//!
//! Invariant: a write names the version that its client has read, so that it never overwrites a
//! version that its client has not read. `*` matches any version (RFC 9110, 13.1.1): a client that
//! sends it accepts that.

use crate::api_response::ApiResponse;
use crate::entity_tag::Tags;
use crate::problem::Wrong;
use crate::request_head::RequestHead;

/// The response to a read whose client has `tag` already (RFC 9110, 13.1.2 and 15.4.5).
pub(crate) fn unchanged(head: &RequestHead, tag: &str) -> Option<ApiResponse> {
    let has_it = head.if_none_match.as_ref().is_some_and(|tags| tags.match_weakly(tag));
    has_it.then(|| ApiResponse::bodiless(304).with("etag", tag))
}

/// Rejects a write without a precondition.
///
/// # Errors
/// The response.
pub(crate) fn named(head: &RequestHead) -> Result<(), ApiResponse> {
    if head.if_match.is_some() || head.if_none_match.is_some() {
        return Ok(());
    }
    let detail =
        "send \"if-match\" with the etag of the version you read, or \"*\" for any version";
    Err(Wrong::PreconditionRequired.answer(detail))
}

/// Rejects a write whose preconditions do not match `tag`, or, if it is `None`, an absent entry
/// (RFC 9110, 13.2.2).
///
/// # Errors
/// The response.
pub(crate) fn holds(head: &RequestHead, tag: Option<&str>) -> Result<(), ApiResponse> {
    let matches = |tags: &Tags| tag.is_some_and(|tag| tags.match_strongly(tag));
    let is_named = |tags: &Tags| tag.is_some_and(|tag| tags.match_weakly(tag));
    if head.if_match.as_ref().is_none_or(matches)
        && !head.if_none_match.as_ref().is_some_and(is_named)
    {
        return Ok(());
    }
    let Some(tag) = tag else {
        return Err(Wrong::PreconditionFailed.answer("there is none; see if-none-match"));
    };
    let detail = "something else is there than you read; read it again, see etag";
    Err(Wrong::PreconditionFailed.answer(detail).with("etag", tag))
}
