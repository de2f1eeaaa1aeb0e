//! A tree as JSON.
//!
//! Invariant: nothing of the tree is lost, names that are given twice included.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::node::{Field, Kind, Node};
use crate::scalar::Reading;

/// A tree as JSON, its scalars read in one way.
pub struct AsJson<'n>(pub &'n Node, pub Reading);

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
