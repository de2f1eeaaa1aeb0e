//! The cost of a request.
//!
//! Invariant: at least 1, and never more than the document allows.

use alloc::format;

use crate::document::repeated::NO_JOIN;
use crate::document::scalar::HeaderName;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::repeated::Repeated;

/// The highest cost of one request, and the highest value of `max`.
const MAX_COST: u64 = 1_000_000_000;

/// The cost of one request, in quota units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The same for every request.
    Fixed(u64),
    /// The whole number in a header.
    Header {
        /// Its name.
        name: HeaderName,
        /// The cost when the header is absent or is not a whole number.
        default: u64,
        /// At most this.
        max: u64,
        /// The meaning of several costs.
        repeated: Option<Repeated>,
    },
    /// One unit per this many bytes of the announced body, rounded up, at least 1.
    ContentLengthPer(u64),
    /// The hits that a descriptor reports: they were used already, and are recorded whether or not
    /// they fit.
    Reported,
}

impl Cost {
    /// True for a cost that a document may set.
    pub(crate) fn is_one(&self) -> bool {
        let units = 1..=MAX_COST;
        match self {
            Self::Fixed(cost) | Self::ContentLengthPer(cost) => units.contains(cost),
            Self::Reported => true,
            Self::Header { name: _, default, max, repeated } => {
                (1..=*max).contains(default)
                    && units.contains(max)
                    && *repeated != Some(Repeated::Join)
            }
        }
    }
}

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
