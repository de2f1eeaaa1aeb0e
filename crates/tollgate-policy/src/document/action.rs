//! The action for a request over the limit.
//!
//! Invariant: exactly one action; the text that it sends is valid in a header and in a body.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::document::conditions::Conditions;
use crate::document::lists::{AtMost, NonEmpty};
use crate::document::mark_header::MarkHeader;
use crate::document::scalar::{Bounded, Wait};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::quote::quoted;
use crate::json::reader::{FromNode, record, schema};

/// The most priorities of waiting requests, in addition to that of all others.
pub(crate) const MAX_PRIORITIES: usize = 7;

/// The action for a request over the limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// It is denied: with 429, or with a status and a body.
    Deny(Option<Reply>),
    /// It waits until it is allowed.
    Delay(Delay),
    /// It passes with a header for the origin.
    Mark(Box<MarkDoc>),
    /// It gets a fixed response without being processed, and the response gives no reason.
    Respond(Reply),
}

record! {
    /// A fixed response.
    #[derive(PartialEq, Eq)]
    Reply {
        /// The response's status.
        status: Bounded<200, 599>,
        /// The response's body, text/plain.
        body: Option<Text>,
    }
}

record! {
    /// The longest wait of a request, and the order of waiting requests.
    DelayDoc {
        /// The longest wait.
        max: Wait,
        /// The order of the requests that wait for one key: those with the first conditions, then
        /// those with the next, and then all others.
        priority: Option<Priorities>,
    }
}

/// The order of waiting requests: at least one priority and at most [`MAX_PRIORITIES`].
#[derive(Clone, Debug)]
pub(crate) struct Priorities(Vec<Conditions>);

impl FromNode for Priorities {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let AtMost(list) = AtMost::<MAX_PRIORITIES, Conditions>::read(node, at)?;
        NonEmpty::checked(list, at).map(|list| Self(list.0))
    }

    schema!({
        "type": "array", "minItems": 1, "maxItems": MAX_PRIORITIES, "items": Conditions::schema()
    });
}

/// The longest wait of a request, and the order of waiting requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delay {
    /// At most this long; then it is denied with 429.
    pub(crate) max: Span,
    /// Requests with the first conditions go first, and those with none of them last.
    pub(crate) priority: Vec<Conditions>,
}

impl From<DelayDoc> for Delay {
    fn from(doc: DelayDoc) -> Self {
        let priority = doc.priority.map_or_else(Vec::new, |list| list.0);
        Self { max: doc.max.0, priority }
    }
}

record! {
    /// A header for the origin.
    #[derive(PartialEq, Eq)]
    MarkDoc {
        /// The header's name, but not one that frames a message, routes it or identifies its
        /// sender.
        header: MarkHeader,
        /// The header's value: visible characters and spaces.
        value: Text,
    }
}

record! {
    /// The actions with parameters, of which exactly one is set.
    ActionDoc {
        /// Deny the request with this status and body.
        deny: Option<Reply>,
        /// Delay the request for at most the time in `max`.
        delay: Option<DelayDoc>,
        /// Allow the request and add a header for the origin.
        mark: Option<MarkDoc>,
        /// Send a fixed response; the origin never gets the request.
        respond: Option<Reply>,
    }
}

impl FromNode for Action {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const WANTED: &str = "one action; use \"deny\", {\"deny\": {...}}, {\"delay\": {...}}, {\"mark\": {...}} or {\"respond\": {...}}";
        match node {
            Node::Text(text) if text == "deny" => Some(Self::Deny(None)),
            Node::Object(fields) => {
                let noted = at.noted();
                let doc = ActionDoc::read(node, at)?;
                if at.noted() > noted {
                    return None;
                }
                match doc {
                    _ if fields.len() != 1 => at.wrong(node, WANTED),
                    ActionDoc { deny: Some(reply), .. } => Some(Self::Deny(Some(reply))),
                    ActionDoc { delay: Some(delay), .. } => Some(Self::Delay(delay.into())),
                    ActionDoc { mark: Some(mark), .. } => Some(Self::Mark(Box::new(mark))),
                    ActionDoc { respond: Some(reply), .. } => Some(Self::Respond(reply)),
                    ActionDoc { .. } => at.wrong(node, WANTED),
                }
            }
            _ => at.not_text(node, WANTED),
        }
    }

    schema!({"anyOf": [{"const": "deny"}, ActionDoc::schema()]});
}

/// Text of visible ASCII characters and spaces, at most 1 KiB: valid in a header value and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    /// True for such a text.
    pub(crate) fn is_one(text: &str) -> bool {
        text.len() <= 1024 && text.bytes().all(|b| (0x20..=0x7e).contains(&b))
    }
}

impl FromNode for Text {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if Self::is_one(text) => Some(Self(text.clone())),
            Node::Text(_) => {
                at.problem(format!("{} must be at most 1024 characters of %x20-7E", quoted(node)));
                None
            }
            _ => at.not_text(node, "a string"),
        }
    }

    schema!({"type": "string", "pattern": "^[ -~]{0,1024}$"});
}
