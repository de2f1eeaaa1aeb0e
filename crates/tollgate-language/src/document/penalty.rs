//! The penalty of a quota: one time, or a list of them.
//!
//! Invariant: the core checks the steps. Deliberately not here: which rules can have a penalty,
//! which `compile` checks.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Penalty, QuotaError, Span};

use crate::document::scalar::parse_span;
use crate::json::node::{Node, quoted};
use crate::json::place::At;
use crate::json::reader::{FromNode, schema};

/// The steps of a penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PenaltyDoc(pub(crate) Penalty);

impl FromNode for PenaltyDoc {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let steps = match node {
            Node::Text(text) => parse_span(text).map(|step| Vec::from([step])),
            Node::List(items) => items.iter().map(step).collect(),
            _ => None,
        };
        let Some(steps) = steps else {
            return at.not_text(node, WANTED);
        };
        let penalty = Penalty::new(&steps);
        if penalty.is_err() {
            at.problem(format!("{} is not valid: {}", shown(node), QuotaError::Penalty));
        }
        penalty.ok().map(Self)
    }

    schema!({"oneOf": [
        {"type": "string", "pattern": "^[0-9]+(s|m|h|d)$"},
        {
            "type": "array",
            "minItems": 1,
            "maxItems": tollgate_core::MAX_PENALTY_STEPS,
            "items": {"type": "string", "pattern": "^[0-9]+(s|m|h|d)$"}
        }
    ]});
}

const WANTED: &str = "a penalty; use a time such as \"10m\", or one for each step, such as [\"1m\", \"10m\", \"1h\"]";

fn step(node: &Node) -> Option<Span> {
    if let Node::Text(text) = node { parse_span(text) } else { None }
}

/// The value as written, or the number of its steps.
fn shown(node: &Node) -> String {
    match node {
        Node::List(items) => format!("a list of {} times", items.len()),
        other => quoted(other),
    }
}
