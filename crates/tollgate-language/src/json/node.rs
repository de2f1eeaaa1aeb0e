//! A JSON document as a tree that keeps its order and its duplicates.
//!
//! Invariant: no part of the document is lost before the reader has seen it. `serde_json::Value` is
//! not used because it silently keeps the last of two equal names, and is larger once compiled.
//! Depth is bounded by `serde_json` (128), size by [`MAX_DOCUMENT`].

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use tollgate_policy::spec::{Problem, Problems, quoted_text};

/// The largest document, in bytes: 1 MiB.
pub const MAX_DOCUMENT: usize = 1 << 20;

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    /// A number without fraction, from 0 to 2^64 - 1.
    Integer(u64),
    /// Any other number, as messages show it.
    OtherNumber(String),
    Text(String),
    List(Vec<Node>),
    /// Names in their order, duplicates included.
    Object(Vec<(String, Node)>),
}

impl Node {
    /// Parses `document`.
    pub(crate) fn parse(document: &str) -> Result<Self, Problems> {
        if document.len() > MAX_DOCUMENT {
            return Err(whole("the policy is longer than 1 MiB".to_string()));
        }
        // Editors on Windows begin a file with a byte order mark (RFC 8259, 8.1).
        let document = document.strip_prefix('\u{feff}').unwrap_or(document);
        serde_json::from_str(document).map_err(|error| whole(alloc::format!("not JSON: {error}")))
    }

    /// Parses the bytes of a document.
    pub(crate) fn parse_bytes(document: &[u8]) -> Result<Self, Problems> {
        let text = core::str::from_utf8(document);
        Self::parse(text.map_err(|error| whole(alloc::format!("not JSON: {error}")))?)
    }

    /// The kind of value, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::OtherNumber(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// A mistake of the whole document.
pub(crate) fn whole(message: String) -> Problems {
    Problems(alloc::vec![Problem::new("", message)])
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Integer(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::OtherNumber(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // Not printed: the float printer would be a tenth of the Envoy filter, and is used nowhere
        // else.
        let is_large = !(-9.0e18..=9.0e18).contains(&value);
        let kind = if is_large { "a number beyond 64 bits" } else { "a fraction or exponent" };
        Ok(Node::OtherNumber(kind.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Object(fields))
    }
}

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
