//! The cost of a request.
//!
//! Invariant: at least 1, and never more than the document allows.

use alloc::format;

use crate::document::scalar::NO_JOIN;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{Cost, HeaderName, MAX_COST};

record! {
    /// The cost in a header.
    HeaderCostDoc {
        /// The name of the header with the cost.
        header: HeaderName,
        /// The cost when the header is absent or is not a whole number; 1 by default.
        default: Option<Units>,
        /// The highest cost that the header can set.
        max: Units,
        /// The meaning of several costs that differ; "join" is not allowed.
        repeated: Option<Repeated>,
    }
}

record! {
    /// The cost by the announced size of the body.
    LengthCostDoc {
        /// The number of bytes per quota unit.
        content_length_per: Units,
    }
}

/// The word in the document for a reported cost.
const REPORTED: &str = "reported";

/// A number of quota units, 1 to 1,000,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units(u64);

impl FromNode for Units {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(n) if (1..=MAX_COST).contains(n) => Some(Self(*n)),
            _ => at.wrong(node, &format!("a whole number from 1 to {MAX_COST}")),
        }
    }

    schema!({"type": "integer", "minimum": 1, "maximum": MAX_COST});
}

impl FromNode for Cost {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(_) | Node::OtherNumber(_) => Units::read(node, at).map(|n| Self::Fixed(n.0)),
            Node::Text(text) if text == REPORTED => Some(Self::Reported),
            Node::Object(fields) if fields.iter().any(|(name, _)| name == "content_length_per") => {
                LengthCostDoc::read(node, at).map(|doc| Self::ContentLengthPer(doc.content_length_per.0))
            }
            Node::Object(_) => {
                let doc = HeaderCostDoc::read(node, at)?;
                let default = doc.default.map_or(1, |n| n.0);
                if default > doc.max.0 {
                    at.field("default").problem(format!("{default} is more than max, {}", doc.max.0));
                }
                if doc.repeated == Some(Repeated::Join) {
                    at.field("repeated").problem(NO_JOIN.into());
                }
                let (max, repeated) = (doc.max.0, doc.repeated);
                Some(Self::Header { name: doc.header, default, max, repeated })
            }
            _ => at.wrong(
                node,
                "a cost; use a number, {\"header\": name, \"max\": n}, {\"content_length_per\": n} or \"reported\"",
            ),
        }
    }

    schema!({"anyOf": [
        Units::schema(), {"const": REPORTED}, HeaderCostDoc::schema(), LengthCostDoc::schema()
    ]});
}
