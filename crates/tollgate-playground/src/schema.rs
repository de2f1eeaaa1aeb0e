//! The policy's schema as the editor walks it.
//!
//! Invariant: the allowed text at a place is read from the schema and nowhere else, so the editor
//! never offers text that the compiler does not know. It is the file that the policy crate wrote
//! and a test compares: the code that writes it would be a tenth of the bytes that the page
//! fetches.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::context::Step;

const SCHEMA: &str = include_str!("../../../docs/policy.schema.json");

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(SCHEMA).unwrap_or_default());

/// The schemas for a value at the end of a path: every alternative on its own.
pub(crate) fn at(path: &[Step]) -> Vec<&'static Map<String, Value>> {
    let mut here = alternatives(&DOCUMENT);
    for step in path {
        let next = here.iter().filter_map(|schema| match step {
            Step::Field(name) => field(schema, name),
            Step::Item => schema.get("items"),
        });
        here = next.flat_map(alternatives).collect();
    }
    here
}

/// The alternatives of a schema, in their order.
pub(crate) fn alternatives(schema: &'static Value) -> Vec<&'static Map<String, Value>> {
    let Value::Object(schema) = schema else { return Vec::new() };
    let several = ["anyOf", "oneOf"].iter().find_map(|name| schema.get(*name)?.as_array());
    several.map_or_else(|| vec![schema], |several| several.iter().flat_map(alternatives).collect())
}

/// The schema of the field `name` of an object.
pub(crate) fn field(schema: &'static Map<String, Value>, name: &str) -> Option<&'static Value> {
    let any = || schema.get("additionalProperties").filter(|any| any.is_object());
    schema.get("properties").and_then(|properties| properties.get(name)).or_else(any)
}

/// The fields that an object may have, by name.
pub(crate) fn fields(
    schema: &'static Map<String, Value>,
) -> impl Iterator<Item = (&'static str, &'static Value)> {
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    fields.map(|(name, schema)| (name.as_str(), schema))
}

/// The fields that an object must have; of several that it must have one of, the first.
pub(crate) fn required(schema: &'static Map<String, Value>) -> impl Iterator<Item = &'static str> {
    let all_of = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    let first = all_of.filter_map(|one| one.get("anyOf")?.get(0)?.get("required"));
    let names = schema.get("required").into_iter().chain(first).filter_map(Value::as_array);
    names.flatten().filter_map(Value::as_str)
}

/// The description of a schema.
pub(crate) fn description(schema: &'static Value) -> &'static str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// The values that a schema names, with their descriptions: its constant, its enumeration, both
/// booleans.
pub(crate) fn constants(schema: &'static Map<String, Value>) -> Vec<(String, &'static str)> {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let mut all: Vec<_> = schema
        .get("const")
        .into_iter()
        .chain(listed)
        .map(|value| (value.to_string(), description))
        .collect();
    if schema.get("type").and_then(Value::as_str) == Some("boolean") {
        all.extend(["true", "false"].map(|truth| (truth.to_owned(), description)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards: outdated offers. TOLLGATE_BLESS=1 with the command line's tests writes the file.
    #[test]
    fn the_schema_is_the_policy_crates_own() {
        assert_eq!(SCHEMA, tollgate_language::schema());
        assert!(!at(&[]).is_empty());
    }
}
