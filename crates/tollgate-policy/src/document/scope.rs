//! Whose count a rule's is, and for how long units of it are leased.
//!
//! Invariant: a scope says where a count is kept, never what it admits but for the share; which
//! surface can ask an authority is the surface's to say.

use tollgate_core::Span;

use crate::document::scalar::{Bounded, parse_span};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};

/// Whose count a rule's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each node counts by itself.
    Local,
    /// All nodes have one count, which an authority keeps.
    Fleet,
    /// Each node counts by itself, with this part of every limit and burst, rounded down: 12 is a
    /// twelfth.
    Share(u32),
}

/// The most nodes that share the limits of a rule.
pub(crate) const MAX_NODES: u32 = 1_000_000;

record! {
    /// A part of the limits for each node.
    ShareDoc {
        /// How many nodes there are: every limit and burst is divided by it, rounded down.
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

/// True for what a lease may last.
pub(crate) fn is_lease(span: Span) -> bool {
    (MIN_LEASE..=MAX_LEASE).contains(&span)
}

/// For how long units are leased at the most; 0: not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease(pub(crate) Span);

/// Shorter leases are asked for as often as each request would ask.
const MIN_LEASE: Span = Span::from_millis(100);
/// The longest life of a lease: so long at most a lost node strands its units.
pub(crate) const MAX_LEASE: Span = Span::from_secs(10);
/// Unless the rule says it.
pub(crate) const DEFAULT_LEASE: Span = Span::from_secs(2);

impl FromNode for Lease {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let span = match node {
            Node::Integer(0) => Some(Span::ZERO),
            Node::Text(text) => parse_span(text).filter(|span| is_lease(*span)),
            _ => None,
        };
        match span {
            Some(span) => Some(Self(span)),
            None => at.not_text(node, "a lease; use 0 to ask every time, or 100ms to 10s"),
        }
    }

    schema!({"anyOf": [{"const": 0}, {"type": "string", "pattern": "^[0-9]+(ms|s)$"}]});
}
