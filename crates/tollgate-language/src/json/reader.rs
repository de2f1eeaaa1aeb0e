//! From the tree to typed documents, collecting every mistake on the way.
//!
//! Invariant: reading never stops at the first mistake. A value is `None` only after a problem was
//! noted, so `None` everywhere with no problem cannot occur. `record!` and `choice!` generate each
//! type from one declaration, which also provides the names in messages.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::json::node::Node;
use crate::json::node::quoted;
use crate::json::place::At;
use crate::json::suggest::unknown;

/// A type that a document contains.
pub(crate) trait FromNode: Sized {
    /// The value, or `None` after noting the problem.
    fn read(node: &Node, at: &At<'_>) -> Option<Self>;

    /// The value of a field that is absent; `None` when the field is required.
    fn absent() -> Option<Self> {
        None
    }

    /// The JSON Schema of such values.
    #[cfg(feature = "schema")]
    fn schema() -> serde_json::Value;
}

/// The schema of a type, in JSON Schema 2020-12.
macro_rules! schema {
    ($($json:tt)*) => {
        #[cfg(feature = "schema")]
        fn schema() -> serde_json::Value {
            serde_json::json!($($json)*)
        }
    };
}

impl<T: FromNode> FromNode for Option<T> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        T::read(node, at).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    #[cfg(feature = "schema")]
    fn schema() -> serde_json::Value {
        T::schema()
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::List(items) = node else {
            return match node {
                Node::Text(_) if !at.is_full() => {
                    let wrong = at.wrong(node, &format!("a list; use [{}]", quoted(node)));
                    T::read(node, at); // and its mistakes as an item
                    wrong
                }
                Node::Object(_) => at.wrong(node, "a list; use [{...}]"),
                _ => at.wrong(node, "a list"),
            };
        };
        // Items that are not read any more have only mistakes that would not be listed.
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .take_while(|_| !at.is_full())
            .map(|(i, item)| T::read(item, &at.item(i)))
            .collect();
        read.into_iter().collect()
    }

    schema!({"type": "array", "items": T::schema()});
}

/// An item whose mistakes do not prevent its neighbours from being read.
#[derive(Clone, Debug)]
pub(crate) struct Lenient<T>(pub(crate) Option<T>);

impl<T: FromNode> FromNode for Lenient<T> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        Some(Self(T::read(node, at)))
    }

    #[cfg(feature = "schema")]
    fn schema() -> serde_json::Value {
        T::schema()
    }
}

impl FromNode for bool {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Bool(value) => Some(*value),
            _ => at.wrong(node, "true or false"),
        }
    }

    schema!({"type": "boolean"});
}

impl FromNode for String {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) => Some(text.clone()),
            _ => at.not_text(node, "a string"),
        }
    }

    schema!({"type": "string"});
}

impl FromNode for u64 {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(value) => Some(*value),
            _ => at.wrong(node, "a whole number of at least 0"),
        }
    }

    schema!({"type": "integer", "minimum": 0});
}

/// The fields of an object, checked against the names it may have.
pub(crate) struct Fields<'n> {
    fields: &'n [(String, Node)],
}

impl<'n> Fields<'n> {
    /// Opens `node` as an object; unknown and duplicate names are noted as problems.
    pub(crate) fn open(node: &'n Node, at: &At<'_>, known: &[&'static str]) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an object");
        };
        for (i, (name, _)) in fields.iter().enumerate() {
            if at.is_full() {
                break;
            }
            if name == "$schema" && at.is_root() {
                continue; // for editors
            }
            match known.iter().find(|known| **known == name.as_str()) {
                None => at.problem(unknown("field", name, known)),
                Some(known) if fields.iter().take(i).any(|(earlier, _)| earlier == name) => {
                    at.field(known).problem("is given twice; give it once".to_string());
                }
                Some(_) => {}
            }
        }
        Some(Self { fields })
    }

    /// The field `name` as it is in the document.
    pub(crate) fn node(&self, name: &str) -> Option<&'n Node> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, node)| node)
    }

    /// The value of the field `name`.
    pub(crate) fn read<T: FromNode>(&self, name: &'static str, at: &At<'_>) -> Option<T> {
        match self.fields.iter().find(|(field, _)| field == name) {
            // An optional field with a wrong value counts as absent: its problem is noted, and the
            // rest can still be read.
            Some((_, node)) => T::read(node, &at.field(name)).or_else(T::absent),
            None => {
                let absent = T::absent();
                if absent.is_none() {
                    at.field(name).problem("is missing".to_string());
                }
                absent
            }
        }
    }
}

/// One field of an object, for its schema.
#[cfg(feature = "schema")]
pub(crate) struct FieldSchema {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) schema: serde_json::Value,
    pub(crate) required: bool,
}

/// The schema of an object with these fields and no others.
#[cfg(feature = "schema")]
pub(crate) fn object_schema(fields: &[FieldSchema]) -> serde_json::Value {
    use serde_json::{Map, Value, json};

    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let mut schema = field.schema.clone();
        if let Value::Object(schema) = &mut schema {
            schema.insert("description".into(), Value::String(field.description.trim().into()));
        }
        properties.insert(field.name.into(), schema);
        if field.required {
            required.push(field.name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Declares an object of the document: its struct and how it is read. A field that may be left out
/// is an `Option`. Every field is read before a missing one is reported, so all problems are noted.
macro_rules! record {
    ($(#[doc = $about:literal])* $(#[derive($($derive:ident),*)])? $name:ident {
        $($(#[doc = $doc:literal])* $field:ident : $ty:ty,)*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug $(, $($derive),*)?)]
        pub(crate) struct $name { $($(#[doc = $doc])* pub(crate) $field: $ty,)* }

        $crate::json::reader::object! { $name { $($(#[doc = $doc])* $field: $ty,)* } }
    };
}

/// Declares how an object is read that is a struct of the policy with the same fields.
macro_rules! object {
    ($name:ident { $($(#[doc = $doc:literal])* $field:ident : $ty:ty,)* }) => {
        impl $crate::json::reader::FromNode for $name {
            fn read(node: &$crate::json::node::Node, at: &$crate::json::place::At<'_>) -> Option<Self> {
                let fields = $crate::json::reader::Fields::open(node, at, &[$($crate::json::reader::name_of(stringify!($field))),*])?;
                $(let $field = fields.read::<$ty>($crate::json::reader::name_of(stringify!($field)), at);)*
                Some(Self { $($field: $field?,)* })
            }

            #[cfg(feature = "schema")]
            fn schema() -> serde_json::Value {
                $crate::json::reader::object_schema(&[$($crate::json::reader::FieldSchema {
                    name: $crate::json::reader::name_of(stringify!($field)),
                    description: concat!($($doc),*),
                    schema: <$ty as $crate::json::reader::FromNode>::schema(),
                    required: <$ty as $crate::json::reader::FromNode>::absent().is_none(),
                }),*])
            }
        }
    };
}

/// Declares a closed set of names: its enum and how it is read.
macro_rules! choice {
    ($(#[doc = $about:literal])* $name:ident ($what:literal) { $(#[doc = $doc:literal] $text:literal => $variant:ident,)* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $(#[doc = $doc] $variant,)* }

        $crate::json::reader::names! {
            $name ($what) { $(#[doc = $doc] $text => $variant,)* }
        }
    };
}

/// Declares the names in a document of an enum of the policy.
macro_rules! names {
    ($name:ident ($what:literal) { $(#[doc = $doc:literal] $text:literal => $variant:ident,)* }) => {
        // A variant that no name of a document gives does not compile.
        const _: fn(&$name) = |value| match value {
            $($name::$variant => (),)*
        };

        impl $crate::json::reader::FromNode for $name {
            fn read(node: &$crate::json::node::Node, at: &$crate::json::place::At<'_>) -> Option<Self> {
                match node {
                    $($crate::json::node::Node::Text(text) if text == $text => Some(Self::$variant),)*
                    $crate::json::node::Node::Text(text) => {
                        at.problem($crate::json::suggest::unknown($what, text, &[$($text),*]));
                        None
                    }
                    _ => at.not_text(node, &$crate::json::suggest::one_of(&[$($text),*])),
                }
            }

            $crate::json::reader::schema!({"oneOf": [$({"const": $text, "description": $doc.trim()}),*]});
        }
    };
}

/// The name in a document of a field of a struct: a raw identifier has its `r#` removed.
pub(crate) const fn name_of(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

pub(crate) use {choice, names, object, record, schema};
