//! The decision about a request when a rule's state cannot be read or written.
//!
//! Invariant: this is configuration; no other code decides it.

use crate::document::scope::ShareDoc;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, names, schema};
use crate::json::suggest::unknown;
use tollgate_policy::spec::OnFailure;

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
