//! Headers that a mark may set.
//!
//! Invariant: none of them describes a request, its destination or its client, so a policy never
//! changes what the origin knows about a client.

use alloc::format;

use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, schema};
use tollgate_policy::spec::{HeaderName, MarkHeader, quoted_text};

impl FromNode for MarkHeader {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let HeaderName(name) = HeaderName::read(node, at)?;
        if !Self::is_one(&name) {
            at.problem(format!(
                "{} says what a request is or whom it is from; use a name of your own, such as \"x-over-limit\"",
                quoted_text(&name)
            ));
            return None;
        }
        Some(Self(name))
    }

    schema!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$"});
}
