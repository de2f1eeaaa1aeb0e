//! YAML as a tree that knows its lines, and that means what Envoy's own reader (yaml-cpp) makes of it.
//!
//! Invariant: whatever the text is, reading it takes bounded memory, and nothing of it is lost: names that are given
//! twice stand in the tree twice. Deliberately absent: merge keys (`<<`), which Envoy does not have, and a
//! second document, which Envoy would leave unread without a word.

mod builder;
mod node;
mod scalar;

use saphyr_parser::Parser;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use builder::Builder;
pub(crate) use node::{Fault, Field, Kind, Node};
pub(crate) use scalar::{Form, Reading, Scalar, Value};

impl Node {
    /// Reads `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let mut parser = Parser::new_from_str(text);
        let mut builder = Builder::default();
        while let Some(next) = parser.next_event() {
            let (event, span) = next.map_err(|error| Fault {
                line: error.marker().line(),
                message: format!("not YAML: {}", error.info()),
            })?;
            builder.take(event, span.start.line())?;
        }
        builder.finish()
    }
}

/// A tree as JSON, its scalars read in one way.
pub(crate) struct AsJson<'n>(pub(crate) &'n Node, pub(crate) Reading);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(node, reading) = self;
        match &node.kind {
            Kind::Scalar(scalar) => reading.value(scalar).serialize(serializer),
            Kind::List(items) => {
                serializer.collect_seq(items.iter().map(|item| Self(item, *reading)))
            }
            Kind::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for Field { name, value, .. } in fields {
                    map.serialize_entry(name, &Self(value, *reading))?;
                }
                map.end()
            }
        }
    }
}
