//! The cost of a request.
//!
//! Invariant: at least 1, and never more than the document allows. Only a response can show a cost
//! of 0.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::document::scalar::NO_JOIN;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::json_pointer::is_pointer;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{
    ActualCost, Charging, Cost, HeaderName, JsonCost, MAX_COST, MAX_POINTER_LEN, MAX_POINTERS,
    MAX_WEIGHT, MetadataPath, Name, SettledCost, StatusCost, StatusPattern, WeightedNumber,
};

/// The cost of a rule: what a request is charged when it comes and, where the response settles it,
/// how.
#[derive(Clone, Debug)]
pub(crate) struct CostDoc {
    /// The cost, or its estimate.
    pub(crate) cost: Cost,
    /// How the response settles it.
    pub(crate) settled: Option<SettledCostOptions>,
}

/// How the response settles a cost, and what the document says about the excess.
#[derive(Clone, Debug)]
pub(crate) struct SettledCostOptions {
    /// How it is settled.
    pub(crate) cost: SettledCost,
    /// The document accepts that a quota forgives what one response uses beyond two bursts.
    pub(crate) forgives_excess: bool,
}

impl CostDoc {
    /// When it is charged, if the response settles it.
    pub(crate) fn charging(&self) -> Option<Charging> {
        self.settled.as_ref().map(|settled| Charging::Settled(settled.cost.clone()))
    }
}

record! {
    /// A cost that the response shows: an estimate is charged first.
    SettledCostDoc {
        /// The units that are held when a request is allowed: a number, or a header of the request.
        estimate: Estimate,
        /// The highest cost of one request; a response that shows more costs this.
        max: Units,
        /// The name of a quota unit, which is sent to clients; none by default.
        unit: Option<Name>,
        /// Where the response shows the cost.
        actual: ActualCost,
        /// The cost of responses with these statuses, whatever they show: "404", or "5xx" for a
        /// class.
        on_status: Option<StatusCosts>,
        /// Accept that a quota forgives what one response uses above the estimate beyond its
        /// capacity; false by default.
        forgive_excess: Option<bool>,
    }
}

record! {
    /// The cost in a header of the response.
    ResponseHeaderDoc {
        /// The name of the header.
        header: HeaderName,
    }
}

record! {
    /// The cost in the proxy's metadata, at the end of the response.
    ResponseMetadataDoc {
        /// The name of the filter that sets it, then the path in its metadata.
        metadata: MetadataPath,
    }
}

record! {
    /// The cost by the bytes of the body that the client gets.
    ResponseBytesDoc {
        /// The number of bytes per quota unit.
        bytes_per: Units,
    }
}

record! {
    /// The cost in the body of the response, as numbers in its JSON.
    ResponseJsonDoc {
        /// The places of the numbers, as pointers (RFC 6901).
        json: Vec<JsonPointer>,
        /// The units for each 1 of a number, one for each pointer; 1 by default.
        weights: Option<Vec<Weight>>,
        /// Ask the origin for a body that is not compressed; false by default.
        identity: Option<bool>,
    }
}

/// A pointer into a document in JSON.
#[derive(Clone, Debug)]
pub(crate) struct JsonPointer(String);

/// The units for each 1 of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight(u64);

/// The word in the document for the bytes of a response's body.
const BYTES: &str = "bytes";
/// The word for the length of a response in milliseconds.
const DURATION: &str = "duration";

/// The estimate of a cost: a number, or a header of the request.
#[derive(Clone, Debug)]
pub(crate) struct Estimate(Cost);

/// Costs by status.
#[derive(Clone, Debug)]
pub(crate) struct StatusCosts(Vec<StatusCost>);

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

impl FromNode for CostDoc {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Object(fields) if has(fields, "estimate") || has(fields, "actual") => {
                let doc = SettledCostDoc::read(node, at)?;
                let Estimate(cost) = doc.estimate;
                let max = doc.max.0;
                if let Some(estimate) = cost.as_estimate().filter(|estimate| *estimate > max) {
                    at.field("max").problem(format!("{max} is less than the estimate, {estimate}"));
                    return None;
                }
                let on_status = doc.on_status.map_or_else(Vec::new, |costs| costs.0);
                if let Some(above) = on_status.iter().find(|status| status.cost > max) {
                    at.field("max")
                        .problem(format!("{max} is less than a cost in on_status, {}", above.cost));
                    return None;
                }
                let settled = SettledCost { max, unit: doc.unit, actual: doc.actual, on_status };
                let forgives_excess = doc.forgive_excess == Some(true);
                let settled = SettledCostOptions { cost: settled, forgives_excess };
                Some(Self { cost, settled: Some(settled) })
            }
            _ => Cost::read(node, at).map(|cost| Self { cost, settled: None }),
        }
    }

    schema!({"anyOf": [Cost::schema(), SettledCostDoc::schema()]});
}

impl FromNode for Estimate {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(_) | Node::OtherNumber(_) => {
                Units::read(node, at).map(|n| Self(Cost::Fixed(n.0)))
            }
            Node::Object(_) => header_cost(node, at).map(Self),
            _ => at.wrong(node, "an estimate; use a number or {\"header\": name, \"max\": n}"),
        }
    }

    schema!({"anyOf": [Units::schema(), HeaderCostDoc::schema()]});
}

impl FromNode for ActualCost {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == BYTES => Some(Self::BytesPer(1)),
            Node::Text(text) if text == DURATION => Some(Self::Duration),
            Node::Object(fields) if has(fields, "metadata") => {
                ResponseMetadataDoc::read(node, at).map(|doc| Self::Metadata(doc.metadata))
            }
            Node::Object(fields) if has(fields, "bytes_per") => {
                ResponseBytesDoc::read(node, at).map(|doc| Self::BytesPer(doc.bytes_per.0))
            }
            Node::Object(fields) if has(fields, "json") => json_cost(node, at).map(Self::Json),
            Node::Object(_) => {
                ResponseHeaderDoc::read(node, at).map(|doc| Self::Header(doc.header))
            }
            _ => at.wrong(
                node,
                "a source of the cost; use {\"header\": name}, {\"metadata\": [filter, name]}, {\"json\": [pointer]}, \"bytes\", \
                 {\"bytes_per\": n} or \"duration\"",
            ),
        }
    }

    schema!({"anyOf": [
        {"enum": [BYTES, DURATION]},
        ResponseHeaderDoc::schema(), ResponseMetadataDoc::schema(), ResponseBytesDoc::schema(),
        ResponseJsonDoc::schema()
    ]});
}

/// The cost in the body of the response.
fn json_cost(node: &Node, at: &At<'_>) -> Option<JsonCost> {
    let ResponseJsonDoc { json, weights, identity } = ResponseJsonDoc::read(node, at)?;
    let json_at = at.field("json");
    if !(1..=MAX_POINTERS).contains(&json.len()) {
        json_at.problem(format!("has {} pointers; use 1 to {MAX_POINTERS}", json.len()));
        return None;
    }
    for (i, pointer) in json.iter().enumerate() {
        if json.iter().take(i).any(|other| other.0 == pointer.0) {
            json_at.item(i).problem("is given twice; give it once".into());
            return None;
        }
    }
    let weights = weights.unwrap_or_else(|| vec![Weight(1); json.len()]);
    if weights.len() != json.len() {
        let (has, needs) = (weights.len(), json.len());
        at.field("weights")
            .problem(format!("has {has} for {needs} pointers; give each one its own"));
        return None;
    }
    let number = |(JsonPointer(pointer), Weight(weight))| WeightedNumber { pointer, weight };
    let numbers = json.into_iter().zip(weights).map(number).collect();
    Some(JsonCost { numbers, identity: identity == Some(true) })
}

impl FromNode for JsonPointer {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text.len() > MAX_POINTER_LEN => {
                at.problem(format!("has {} bytes; use at most {MAX_POINTER_LEN}", text.len()));
                None
            }
            Node::Text(text) if is_pointer(text) => Some(Self(text.clone())),
            _ => at.wrong(node, "a pointer (RFC 6901); use \"/usage/total_tokens\", with ~0 for ~ and ~1 for / in a name"),
        }
    }

    schema!({"type": "string", "pattern": "^(/([^/~]|~[01])*)*$", "maxLength": MAX_POINTER_LEN});
}

impl FromNode for Weight {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(n) if (1..=MAX_WEIGHT).contains(n) => Some(Self(*n)),
            _ => at.wrong(node, &format!("a whole number from 1 to {MAX_WEIGHT}")),
        }
    }

    schema!({"type": "integer", "minimum": 1, "maximum": MAX_WEIGHT});
}

impl FromNode for StatusCosts {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an object; use {\"4xx\": 0, \"5xx\": 0}");
        };
        let mut costs: Vec<StatusCost> = Vec::new();
        let mut is_read = true;
        for (name, value) in fields {
            let at = at.user_field(name);
            let statuses = StatusPattern::read(&Node::Text(name.clone()), &at);
            let cost = match value {
                Node::Integer(n) if *n <= MAX_COST => Some(*n),
                _ => at.wrong(value, &format!("a whole number from 0 to {MAX_COST}")),
            };
            let (Some(statuses), Some(cost)) = (statuses, cost) else {
                is_read = false;
                continue;
            };
            if costs.iter().any(|other| other.statuses == statuses) {
                at.problem("is given twice; give it once".into());
                is_read = false;
                continue;
            }
            costs.push(StatusCost { statuses, cost });
        }
        is_read.then_some(Self(costs))
    }

    schema!({
        "type": "object",
        "propertyNames": StatusPattern::schema(),
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": MAX_COST}
    });
}

impl FromNode for Cost {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(_) | Node::OtherNumber(_) => Units::read(node, at).map(|n| Self::Fixed(n.0)),
            Node::Text(text) if text == REPORTED => Some(Self::Reported),
            Node::Object(fields) if has(fields, "content_length_per") => {
                LengthCostDoc::read(node, at).map(|doc| Self::ContentLengthPer(doc.content_length_per.0))
            }
            Node::Object(_) => header_cost(node, at),
            _ => at.wrong(
                node,
                "a cost; use a number, {\"header\": name, \"max\": n}, {\"content_length_per\": n}, an estimate with \"actual\", or \
                 \"reported\"",
            ),
        }
    }

    schema!({"anyOf": [
        Units::schema(), {"const": REPORTED}, HeaderCostDoc::schema(), LengthCostDoc::schema()
    ]});
}

/// The cost in a header of the request.
fn header_cost(node: &Node, at: &At<'_>) -> Option<Cost> {
    let doc = HeaderCostDoc::read(node, at)?;
    let default = doc.default.map_or(1, |n| n.0);
    if default > doc.max.0 {
        at.field("default").problem(format!("{default} is more than max, {}", doc.max.0));
    }
    if doc.repeated == Some(Repeated::Join) {
        at.field("repeated").problem(NO_JOIN.into());
    }
    let (max, repeated) = (doc.max.0, doc.repeated);
    Some(Cost::Header { name: doc.header, default, max, repeated })
}

/// True when an object has this field.
fn has(fields: &[(String, Node)], name: &str) -> bool {
    fields.iter().any(|(other, _)| other == name)
}
