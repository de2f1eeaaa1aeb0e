//! The scope of a rule's count, and how long its units are leased.
//!
//! Invariant: a scope names where a count is kept. Except for the share, it never changes what the
//! count allows. Each surface defines whether it can reach an authority.

use tollgate_core::Span;

use crate::document::scalar::{Bounded, parse_span};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};

/// The place of a rule's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each node keeps its own count.
    Local,
    /// All nodes have one count, which an authority keeps.
    Fleet,
    /// Each node keeps its own count, with this part of every limit and burst, rounded down: 12 is
    /// a twelfth.
    Share(u32),
}

/// The most nodes that share the limits of a rule.
pub(crate) const MAX_NODES: u32 = 1_000_000;

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

/// True for a valid lease duration.
pub(crate) fn is_lease(span: Span) -> bool {
    (MIN_LEASE..=MAX_LEASE).contains(&span)
}

/// The longest time for which units are leased; 0: they are not leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease(pub(crate) Span);

/// The shortest lease: shorter leases would be requested as often as units without a lease.
const MIN_LEASE: Span = Span::from_millis(100);
/// The lease of a rule that does not set one.
pub(crate) use tollgate_storage::DEFAULT_LEASE;
/// The longest life of a lease: a lost node strands its units for at most this long.
pub(crate) use tollgate_storage::MAX_LEASE_LIFE as MAX_LEASE;

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
