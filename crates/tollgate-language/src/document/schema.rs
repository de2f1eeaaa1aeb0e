//! The JSON Schema of the policy document, made from the types that read it.
//!
//! Invariant: the schema and the reader come from one declaration (`record!`, `choice!`), so every
//! field that is read is described, and every field that is described is read. The schema does not
//! contain rules that depend on several values; `compile` checks those.

use alloc::string::String;

use serde_json::{Value, json};

use crate::document::root::Document;
use crate::json::reader::FromNode;

/// The JSON Schema (2020-12) of a policy, as indented text with a final line break.
#[must_use]
pub fn schema() -> String {
    let mut schema = Document::schema();
    if let Value::Object(schema) = &mut schema {
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".into(), "Tollgate policy, version 1".into());
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert(
                "$schema".into(),
                json!({"type": "string", "description": "For editors; not read."}),
            );
        }
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
