//! A document's own text in a message.
//!
//! Invariant: one line, shortened, control characters escaped.

use alloc::string::{String, ToString};

use crate::json::node::Node;

/// The longest piece of a document that a message repeats, in characters.
pub(crate) const MAX_QUOTED: usize = 60;

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

/// `text` in quotes, control characters escaped, shortened.
pub(crate) fn quoted_text(text: &str) -> String {
    let mut out = String::from("\"");
    for (i, c) in text.chars().enumerate() {
        if i == MAX_QUOTED {
            out.push_str("...");
            break;
        }
        out.extend(c.escape_debug());
    }
    out.push('"');
    out
}
