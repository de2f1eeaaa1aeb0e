//! When a request is charged.
//!
//! Invariant: the document lists the responses that are charged; they are never guessed.

use crate::document::lists::AtMost;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, object, schema};
use tollgate_policy::spec::{
    Charging, MAX_VALUES, OnAbort, ResponseCharge, StatusPattern, Statuses,
};

object! {
    ResponseCharge {
        /// The statuses that are charged: "401", or "5xx" for a class.
        response_status: Statuses,
        /// Hold the cost from the request on, and give it back when the response is not charged;
        /// false by default.
        reserve: Option<bool>,
        /// The charge for a request without a response; "charge" by default.
        on_abort: Option<OnAbort>,
    }
}

impl FromNode for OnAbort {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "charge" => Some(Self::Charge),
            Node::Text(text) if text == "skip" => Some(Self::Skip),
            _ => at.not_text(node, "\"charge\" or \"skip\""),
        }
    }

    schema!({"enum": ["charge", "skip"]});
}

impl FromNode for Statuses {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let AtMost(statuses) = AtMost::<MAX_VALUES, StatusPattern>::read(node, at)?;
        if statuses.is_empty() {
            at.problem(
                "is empty, so nothing would be charged; give statuses such as \"401\" or \"5xx\""
                    .into(),
            );
            return None;
        }
        Some(Self(statuses))
    }

    schema!({"type": "array", "minItems": 1, "maxItems": MAX_VALUES, "items": StatusPattern::schema()});
}

impl FromNode for Charging {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "request" => Some(Self::Request),
            Node::Object(_) => ResponseCharge::read(node, at).map(Self::Response),
            _ => at.not_text(node, "\"request\" or {\"response_status\": [\"401\", \"5xx\"]}"),
        }
    }

    schema!({"anyOf": [{"const": "request"}, ResponseCharge::schema()]});
}

impl FromNode for StatusPattern {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let parsed = match node {
            Node::Text(text) => match text.as_bytes() {
                [class @ b'1'..=b'5', b'x', b'x'] => {
                    let from = u16::from(class.saturating_sub(b'0')).saturating_mul(100);
                    Some(Self { from, to: from.saturating_add(99) })
                }
                [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
                    text.parse().ok().map(|status| Self { from: status, to: status })
                }
                _ => None,
            },
            _ => None,
        };
        match parsed.filter(|p| (100..=599).contains(&p.from)) {
            Some(pattern) => Some(pattern),
            None => at.not_text(node, "a status; use \"401\" or a class such as \"5xx\""),
        }
    }

    schema!({"type": "string", "pattern": "^[1-5]([0-9][0-9]|xx)$"});
}
