//! The scope of a rule's count, how long its units are leased, and the decision without the count.
//!
//! Invariant: a scope names where a count is kept. Except for the share, it never changes what the
//! count allows. The decision without a count is configuration; no other code makes it. Each
//! surface defines whether it can reach an authority.

use tollgate_core::Span;
use tollgate_policy::spec::{Bounded, MAX_NODES, OnFailure, Scope, is_lease};

use crate::document::scalar::parse_span;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, names, record, schema};
use crate::json::suggest::unknown;

record! {
    /// A part of the limits for each node.
    ShareDoc {
        /// The number of nodes. Every limit and burst is divided by this number, rounded down.
        share: Bounded<1, MAX_NODES>,
    }
}

impl FromNode for Scope {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "local" => Some(Self::Local),
            Node::Text(text) if text == "fleet" => Some(Self::Fleet),
            Node::Object(_) => ShareDoc::read(node, at).map(|doc| Self::Share(doc.share.0)),
            _ => at.not_text(node, "a scope; use \"local\", \"fleet\" or {\"share\": 12}"),
        }
    }

    schema!({"anyOf": [{"enum": ["local", "fleet"]}, ShareDoc::schema()]});
}

/// The longest time for which units are leased; 0: they are not leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease(pub(crate) Span);

impl FromNode for Lease {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let span = match node {
            Node::Integer(0) => Some(Span::ZERO),
            Node::Text(text) => parse_span(text).filter(|span| is_lease(*span)),
            _ => None,
        };
        match span {
            Some(span) => Some(Self(span)),
            None => at.not_text(node, "a lease; use 0 for a request per decision, or 100ms to 10s"),
        }
    }

    schema!({"anyOf": [{"const": 0}, {"type": "string", "pattern": "^[0-9]+(ms|s)$"}]});
}

names! {
    OnFailure ("failure mode") {
        /// The request is allowed.
        "allow" => Allow,
        /// The request is denied with 503.
        "deny" => Deny,
    }
}

/// The behaviour of a rule without its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutState {
    /// The request is allowed or denied.
    Decided(OnFailure),
    /// A node that reaches no authority keeps its own counts, with this part of the limits.
    Local(u32),
}

impl FromNode for WithoutState {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const WANTED: &str =
            "a failure mode; use \"allow\", \"deny\", \"local\" or {\"share\": 12}";
        match node {
            Node::Text(text) if text == "local" => Some(Self::Local(1)),
            Node::Text(text) if text != "allow" && text != "deny" => {
                at.problem(unknown("failure mode", text, &["allow", "deny", "local"]));
                None
            }
            Node::Text(_) => OnFailure::read(node, at).map(Self::Decided),
            Node::Object(_) => ShareDoc::read(node, at).map(|doc| Self::Local(doc.share.0)),
            _ => at.not_text(node, WANTED),
        }
    }

    schema!({"anyOf": [
        OnFailure::schema(),
        {"const": "local", "description": "A node that reaches no authority counts on its own."},
        ShareDoc::schema()
    ]});
}
