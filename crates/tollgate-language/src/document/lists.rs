//! Lists of a document, each with the most items that it may have.
//!
//! Invariant: the items of a list that is too long are not read.

use alloc::format;
use alloc::vec::Vec;

use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, schema};
use tollgate_policy::spec::MAX_VALUES;

/// A list of at most `MAX` items; the items of a longer one are not read.
#[derive(Clone, Debug)]
pub(crate) struct AtMost<const MAX: usize, T>(pub(crate) Vec<T>);

impl<const MAX: usize, T: FromNode> FromNode for AtMost<MAX, T> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        if let Node::List(items) = node {
            within(MAX, items.len(), at)?;
        }
        Vec::<T>::read(node, at).map(Self)
    }

    schema!({"type": "array", "maxItems": MAX, "items": T::schema()});
}

/// `None`, with a problem noted, when `len` is greater than `most`.
pub(crate) fn within(most: usize, len: usize, at: &At<'_>) -> Option<()> {
    if len > most {
        at.problem(format!("has {len} items; use at most {most}"));
        return None;
    }
    Some(())
}

/// A list of at least one alternative, in a field that may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NonEmpty<T>(pub(crate) Vec<T>);

impl<T> NonEmpty<T> {
    /// `None`, with a problem noted, when the list is empty.
    pub(crate) fn checked(list: Vec<T>, at: &At<'_>) -> Option<Self> {
        if list.is_empty() {
            at.problem("is empty; give at least one, or leave it out".into());
            return None;
        }
        Some(Self(list))
    }
}

impl<T: FromNode> FromNode for NonEmpty<T> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        refuse_files(node, at)?;
        let AtMost(list) = AtMost::<MAX_VALUES, T>::read(node, at)?;
        Self::checked(list, at)
    }

    schema!({"type": "array", "minItems": 1, "maxItems": MAX_VALUES,
    "items": {"anyOf": [T::schema(), {
        "type": "object",
        "description": "Each value of a file in the folder of the policy, one on each line; `#` begins a \
            comment. Only the command line and the policy file of a server read it.",
        "properties": {"file": {"type": "string"}},
        "required": ["file"],
        "additionalProperties": false
    }]}});
}

/// `None`, with a problem noted, when an item is a file: what reads policies from files has put its
/// values in its place.
fn refuse_files(node: &Node, at: &At<'_>) -> Option<()> {
    let Node::List(items) = node else { return Some(()) };
    let is_file =
        |item: &Node| matches!(item, Node::Object(it) if it.iter().any(|(name, _)| name == "file"));
    let Some(i) = items.iter().position(is_file) else { return Some(()) };
    at.item(i).problem(FILE.into());
    None
}

const FILE: &str = "is a file, which only the command line and the policy file of a server read; \"tollgate compile\" writes a policy that contains its values";

/// One value without a list, or a list of alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneOrMore<T>(pub(crate) Vec<T>);

impl<T: FromNode> FromNode for OneOrMore<T> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::List(_) => NonEmpty::read(node, at).map(|list| Self(list.0)),
            _ => T::read(node, at).map(|one| Self(alloc::vec![one])),
        }
    }

    schema!({"anyOf": [T::schema(), NonEmpty::<T>::schema()]});
}
