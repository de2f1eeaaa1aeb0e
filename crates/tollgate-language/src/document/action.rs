//! The action for a request over the limit.
//!
//! Invariant: exactly one action; the text that it sends is valid in a header and in a body. A mark
//! sets no header that describes a request, its destination or its client, so a policy never
//! changes the facts about a client that the origin gets.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use tollgate_policy::spec::{
    Action, Bounded, Conditions, Delay, HeaderName, MAX_PRIORITIES, Mark, MarkHeader, Reply, Text,
    quoted_text,
};

use crate::document::lists::{AtMost, NonEmpty};
use crate::document::scalar::Wait;
use crate::json::node::Node;
use crate::json::node::quoted;
use crate::json::place::At;
use crate::json::reader::{FromNode, object, record, schema};

object! {
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

impl From<DelayDoc> for Delay {
    fn from(doc: DelayDoc) -> Self {
        let priority = doc.priority.map_or_else(Vec::new, |list| list.0);
        Self { max: doc.max.0, priority }
    }
}

object! {
    Mark {
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
        mark: Option<Mark>,
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
                let noted = at.problem_count();
                let doc = ActionDoc::read(node, at)?;
                if at.problem_count() > noted {
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

impl FromNode for MarkHeader {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let HeaderName(name) = HeaderName::read(node, at)?;
        if !Self::is_one(&name) {
            at.problem(format!(
                "{} describes a request or its sender; use another name, such as \"x-over-limit\"",
                quoted_text(&name)
            ));
            return None;
        }
        Some(Self(name))
    }

    schema!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$"});
}
