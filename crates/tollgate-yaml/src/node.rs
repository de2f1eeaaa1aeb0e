//! The tree, and the tree as JSON.
//!
//! Invariant: it contains the text as written, in order, names that are given twice included; the
//! reader of a scalar decides its meaning.

use serde::ser::{Error as _, Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use crate::scalar::{Form, Reading, Scalar, Value};

/// A value and where it begins.
#[derive(Clone, Debug)]
pub struct Node {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The content.
    pub kind: Kind,
}

/// The content of a node.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A text that may represent another value.
    Scalar(Scalar),
    /// Its items.
    List(Vec<Node>),
    /// In the order of the text, duplicates included.
    Object(Vec<Field>),
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// As it is written, without quotes.
    pub name: String,
    /// Where the name begins, counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The value of the field.
    pub value: Node,
}

/// Why a text is not YAML, or is too large.
#[derive(Debug)]
pub struct Fault {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// In lower case, without a full stop.
    pub message: String,
}

impl Node {
    /// The value of a field; of duplicates the last, as Envoy takes it.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let fields = self.fields().iter().rev();
        fields.into_iter().find(|field| field.name == name).map(|field| &field.value)
    }

    /// The fields of an object; any other node has none.
    pub fn fields(&self) -> &[Field] {
        if let Kind::Object(fields) = &self.kind { fields } else { &[] }
    }

    /// The items of a list; any other node has none.
    pub fn items(&self) -> &[Self] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    /// The item or field at `index`, and its line.
    pub fn child(&self, index: usize) -> Option<(usize, &Self)> {
        match &self.kind {
            Kind::Scalar(_) => None,
            Kind::List(items) => items.get(index).map(|item| (item.line, item)),
            Kind::Object(fields) => fields.get(index).map(|field| (field.line, &field.value)),
        }
    }

    /// The item or field at `index`, mutable.
    pub fn child_mut(&mut self, index: usize) -> Option<&mut Self> {
        match &mut self.kind {
            Kind::Scalar(_) => None,
            Kind::List(items) => items.get_mut(index),
            Kind::Object(fields) => fields.get_mut(index).map(|field| &mut field.value),
        }
    }

    /// The text of a scalar, regardless of its meaning.
    pub fn text(&self) -> Option<&str> {
        if let Kind::Scalar(scalar) = &self.kind { Some(&scalar.text) } else { None }
    }

    /// True for a scalar that means null.
    pub fn is_null(&self, reading: Reading) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if reading.value(scalar) == Value::Null)
    }

    /// The nesting depth of lists and objects, including this one.
    pub fn depth(&self) -> usize {
        let inner = match &self.kind {
            Kind::Scalar(_) => return 0,
            Kind::List(items) => items.iter().map(Self::depth).max(),
            Kind::Object(fields) => fields.iter().map(|field| field.value.depth()).max(),
        };
        inner.unwrap_or(0).saturating_add(1)
    }
}

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

/// A tree of JSON as JSON, its numbers to the digit as they are written: `1e3` is not `1000`.
pub(crate) struct AsWritten<'n>(pub(crate) &'n Node);

impl Serialize for AsWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.kind {
            Kind::Scalar(Scalar { text, form: Form::Plain }) => {
                let literal = RawValue::from_string(text.clone());
                literal.map_err(S::Error::custom)?.serialize(serializer)
            }
            Kind::Scalar(scalar) => serializer.serialize_str(&scalar.text),
            Kind::List(items) => serializer.collect_seq(items.iter().map(AsWritten)),
            Kind::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for Field { name, value, .. } in fields {
                    map.serialize_entry(name, &AsWritten(value))?;
                }
                map.end()
            }
        }
    }
}
