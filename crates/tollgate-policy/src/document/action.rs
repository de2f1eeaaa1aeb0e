//! What happens to a request over the limit.
//!
//! Invariant: exactly one action; what it sends is fit for a header and a body.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use tollgate_core::Span;

use crate::document::mark_header::MarkHeader;
use crate::document::scalar::{Bounded, Wait};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::quote::quoted;
use crate::json::reader::{FromNode, record, schema};

/// What happens to a request over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is refused: with 429, or with a status and a body.
    Deny(Option<Reply>),
    /// It waits until it is admitted, at most this long; then it is refused with 429.
    Delay(Span),
    /// It passes with a header for the origin.
    Mark(Box<MarkDoc>),
    /// It is answered without being processed, and not told why.
    Respond(Reply),
}

record! {
    /// A fixed reply.
    #[derive(PartialEq, Eq)]
    Reply {
        /// The response's status.
        status: Bounded<200, 599>,
        /// The response's body, text/plain.
        body: Option<Text>,
    }
}

record! {
    /// How long a request may wait.
    #[derive(PartialEq, Eq)]
    DelayDoc {
        /// At most this long.
        max: Wait,
    }
}

record! {
    /// A header for the origin.
    #[derive(PartialEq, Eq)]
    MarkDoc {
        /// Its name: none that says what a request is or whom it is from.
        header: MarkHeader,
        /// Its value, visible characters and spaces.
        value: Text,
    }
}

record! {
    /// The actions that have parameters; exactly one is given.
    ActionDoc {
        /// Refuse with a status and a body of one's own.
        deny: Option<Reply>,
        /// Wait, at most so long.
        delay: Option<DelayDoc>,
        /// Pass on with a header.
        mark: Option<MarkDoc>,
        /// Answer without processing.
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
                    ActionDoc { delay: Some(delay), .. } => Some(Self::Delay(delay.max.0)),
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

/// Text of visible ASCII characters and spaces, at most 1 KiB: fit for a header value and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    /// True for what such a text may be.
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
