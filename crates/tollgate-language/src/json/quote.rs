//! A value of a document in a message.
//!
//! Invariant: one line, shortened, control characters escaped.

use alloc::string::{String, ToString};

use crate::json::node::Node;
use tollgate_policy::spec::quoted_text;

/// `node` as a message shows it: scalars as written, shortened; containers by their kind.
pub(crate) fn quoted(node: &Node) -> String {
    match node {
        Node::Integer(n) => n.to_string(),
        Node::OtherNumber(n) => n.clone(),
        Node::Bool(b) => b.to_string(),
        Node::Text(text) => quoted_text(text),
        other => other.kind().to_string(),
    }
}
