//! The tree.
//!
//! Invariant: it holds what was written, in its order; what a scalar means is a question to its
//! reader.

use super::scalar::{Reading, Scalar, Value};

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Counted from 1.
    pub(crate) line: usize,
    /// In characters, counted from 1.
    pub(crate) column: usize,
    pub(crate) kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order of the text, duplicates included.
    Object(Vec<Field>),
}

/// A field of an object.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Where the name stands.
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) value: Node,
}

/// Why a text is no YAML, or too much of it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    /// In characters, counted from 1.
    pub(crate) column: usize,
    pub(crate) message: String,
}

impl Node {
    /// The value of a field; of several the last, as Envoy takes it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let fields = self.fields().iter().rev();
        fields.into_iter().find(|field| field.name == name).map(|field| &field.value)
    }

    /// The fields of an object; anything else has none.
    pub(crate) fn fields(&self) -> &[Field] {
        if let Kind::Object(fields) = &self.kind { fields } else { &[] }
    }

    /// The items of a list; anything else has none.
    pub(crate) fn items(&self) -> &[Self] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    /// An item or a field, by its number, and its line.
    pub(crate) fn child(&self, index: usize) -> Option<(usize, &Self)> {
        match &self.kind {
            Kind::Scalar(_) => None,
            Kind::List(items) => items.get(index).map(|item| (item.line, item)),
            Kind::Object(fields) => fields.get(index).map(|field| (field.line, &field.value)),
        }
    }

    /// An item or a field, by its number, to change it.
    pub(crate) fn child_mut(&mut self, index: usize) -> Option<&mut Self> {
        match &mut self.kind {
            Kind::Scalar(_) => None,
            Kind::List(items) => items.get_mut(index),
            Kind::Object(fields) => fields.get_mut(index).map(|field| &mut field.value),
        }
    }

    /// The text of a scalar, whatever it means.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Kind::Scalar(scalar) = &self.kind { Some(&scalar.text) } else { None }
    }

    /// True for what stands for nothing.
    pub(crate) fn is_null(&self, reading: Reading) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if reading.value(scalar) == Value::Null)
    }

    /// How many lists and objects lie in each other, this one counted.
    pub(crate) fn depth(&self) -> usize {
        let inner = match &self.kind {
            Kind::Scalar(_) => return 0,
            Kind::List(items) => items.iter().map(Self::depth).max(),
            Kind::Object(fields) => fields.iter().map(|field| field.value.depth()).max(),
        };
        inner.unwrap_or(0).saturating_add(1)
    }
}
