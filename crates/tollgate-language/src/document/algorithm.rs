//! The names of algorithms in the document.
//!
//! Invariant: only the core lists the algorithms and their names.

use tollgate_core::Algorithm;

use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, schema};
use crate::json::suggest::{one_of, unknown};

impl FromNode for Algorithm {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let names = Self::ALL.map(Self::name);
        let Node::Text(name) = node else { return at.not_text(node, &one_of(&names)) };
        let algorithm = Self::parse(name);
        if algorithm.is_none() {
            at.problem(unknown("algorithm", name, &names));
        }
        algorithm
    }

    schema!({"oneOf": Self::ALL.map(|algorithm| {
        serde_json::json!({"const": algorithm.name(), "description": alloc::format!("{}.", algorithm.title())})
    })});
}
