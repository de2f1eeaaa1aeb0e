//! JSON Schemas of objects.
//!
//! Invariant: names that are not listed are not allowed.

use alloc::vec::Vec;

use serde_json::{Map, Value, json};

/// One field of an object.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) schema: Value,
    pub(crate) required: bool,
}

/// The schema of an object with these fields and no others.
pub(crate) fn object(fields: &[Field]) -> Value {
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
