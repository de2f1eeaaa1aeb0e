//! The cause of a denial, and the status that follows from it.
//!
//! Invariant: a request has one cause, which its outcome finds once. Deliberately absent: how.

use tollgate_http_syntax::malformed::Malformed;

use crate::spec::action::Reply;

/// The cause of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause<'a> {
    /// A quota denies; with the rule's own response, if any.
    Quota(Option<&'a Reply>),
    /// As for a quota, but no limit is reported to the client.
    Silent(&'a Reply),
    /// The request lacks a part of a key; with the rule's own response, if any.
    MissingKey(Option<&'a Reply>),
    /// A rule that denies matches the request; with its response.
    Rule(&'a Reply),
    /// The key that a rule counts by cannot be read.
    Malformed(Malformed),
    /// A state could not be read or written, and the rule's failure mode is to deny.
    Failure,
    /// The request would have to wait, and too many requests are waiting.
    Busy,
}

/// The status of the response to a request that is denied for this cause.
pub(crate) fn status_of(cause: Cause<'_>) -> u16 {
    let of = |reply: &Reply| u16::try_from(reply.status.0).unwrap_or(429);
    match cause {
        Cause::Quota(reply) | Cause::MissingKey(reply) => reply.map_or(429, of),
        Cause::Silent(reply) | Cause::Rule(reply) => of(reply),
        Cause::Malformed(_) => 400,
        Cause::Failure | Cause::Busy => 503,
    }
}
