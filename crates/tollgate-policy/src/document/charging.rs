//! When a request is charged.
//!
//! Invariant: the document lists the responses that are charged; they are never guessed.

use alloc::vec::Vec;

use crate::document::lists::{AtMost, MAX_VALUES};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};

/// The event that charges a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Charging {
    /// When it is allowed.
    Request,
    /// By its response.
    Response(ResponseChargeDoc),
}

record! {
    /// Charging by response.
    #[derive(PartialEq, Eq)]
    ResponseChargeDoc {
        /// The statuses that are charged: "401", or "5xx" for a class.
        response_status: Statuses,
        /// Hold the cost from the request on, and give it back when the response is not charged;
        /// false by default.
        reserve: Option<bool>,
        /// The charge for a request without a response; "charge" by default.
        on_abort: Option<OnAbort>,
    }
}

impl ResponseChargeDoc {
    /// True when a response with this status is charged; `None` when the client left before a
    /// response.
    pub(crate) fn charges(&self, status: Option<u16>) -> bool {
        match status {
            Some(status) => self.response_status.0.iter().any(|pattern| pattern.matches(status)),
            None => self.on_abort != Some(OnAbort::Skip),
        }
    }

    /// True when units are reserved until the response.
    pub(crate) const fn reserves(&self) -> bool {
        matches!(self.reserve, Some(true))
    }
}

/// The charge for a request that never had a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAbort {
    /// The same as for a status that is charged.
    Charge,
    /// Nothing.
    Skip,
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

/// The statuses that are charged: at least one. The field is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) Vec<StatusPattern>);

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
            Node::Object(_) => ResponseChargeDoc::read(node, at).map(Self::Response),
            _ => at.not_text(node, "\"request\" or {\"response_status\": [\"401\", \"5xx\"]}"),
        }
    }

    schema!({"anyOf": [{"const": "request"}, ResponseChargeDoc::schema()]});
}

/// A status or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusPattern {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl StatusPattern {
    /// True for one status, or for all of a class.
    pub(crate) const fn is_one(&self) -> bool {
        let is_class = self.from.is_multiple_of(100) && self.to == self.from.saturating_add(99);
        self.from >= 100 && self.to <= 599 && (self.from == self.to || is_class)
    }

    /// True when this includes `status`.
    pub(crate) const fn matches(self, status: u16) -> bool {
        self.from <= status && status <= self.to
    }
}

impl StatusPattern {
    /// The lowest and the highest status that this includes.
    #[cfg(feature = "explain")]
    pub(crate) const fn range(self) -> (u16, u16) {
        (self.from, self.to)
    }
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
