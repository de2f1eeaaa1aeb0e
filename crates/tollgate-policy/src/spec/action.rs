//! The action for a request over the limit.
//!
//! Invariant: exactly one action; the text that it sends is valid in a header and in a body.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::spec::conditions::Conditions;
use crate::spec::mark_header::MarkHeader;
use crate::spec::scalar::Bounded;

/// The most priorities of waiting requests, in addition to that of all others.
pub const MAX_PRIORITIES: usize = 7;

/// The action for a request over the limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It is denied: with 429, or with a status and a body.
    Deny(Option<Reply>),
    /// It waits until it is allowed.
    Delay(Delay),
    /// It passes with a header for the origin.
    Mark(Box<Mark>),
    /// It gets a fixed response without being processed, and the response gives no reason.
    Respond(Reply),
}

/// The longest wait of a request, and the order of waiting requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    /// At most this long; then it is denied with 429.
    pub max: Span,
    /// Requests with the first conditions go first, and those with none of them last.
    pub priority: Vec<Conditions>,
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The response's status.
    pub status: Bounded<200, 599>,
    /// The response's body, text/plain.
    pub body: Option<Text>,
}

/// A header for the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The header's name, but not one that frames a message, routes it or identifies its sender.
    pub header: MarkHeader,
    /// The header's value: visible characters and spaces.
    pub value: Text,
}

/// Text of visible ASCII characters and spaces, at most 1 KiB: valid in a header value and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl Text {
    /// True for such a text.
    pub fn is_one(text: &str) -> bool {
        text.len() <= 1024 && text.bytes().all(|b| (0x20..=0x7e).contains(&b))
    }
}
