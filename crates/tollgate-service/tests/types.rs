//! The types of the npm package match docs/openapi.json: for a request and for its response.
//!
//! Invariant: the text between the marks of `index.d.ts` is made from the schemas;
//! `TOLLGATE_BLESS=1` writes it again. A JSON Schema keyword that is not translated fails.

use std::fmt::Write;
use std::fs;

use serde_json::Value;
use tollgate_service::OPEN_API;
use tollgate_test_support::golden::assert_file;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate-worker/npm/index.d.ts");
const BEGIN: &str = "// From docs/openapi.json:\n";
const END: &str = "// End of docs/openapi.json.\n";
const TYPES: [&str; 13] = [
    "CheckRequest",
    "CheckBatch",
    "CheckAnswer",
    "Charged",
    "CheckAnswers",
    "Settled",
    "SettledOtherwise",
    "SettleExpired",
    "Renewed",
    "InFlightExpired",
    "Done",
    "Problem",
    "Error",
];

/// The file's name of a schema, if it differs: `Error` is one of JavaScript's own.
fn name(schema: &str) -> &str {
    if schema == "Error" { "ProblemError" } else { schema }
}

/// The type of a schema inside another one.
fn type_of(schema: &Value, indent: usize) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return name(reference.strip_prefix("#/components/schemas/").expect("a schema")).to_owned();
    }
    if let Some(constant) = schema.get("const") {
        return constant.to_string();
    }
    let joined = |all: &Value, each: &dyn Fn(&Value) -> String| {
        all.as_array().expect("a list").iter().map(each).collect::<Vec<_>>().join(" | ")
    };
    if let Some(values) = schema.get("enum") {
        return joined(values, &Value::to_string);
    }
    if let Some(choices) = schema.get("oneOf") {
        return joined(choices, &|choice| type_of(choice, indent));
    }
    match &schema["type"] {
        Value::Array(_) => joined(&schema["type"], &|kind| plain(kind, schema, indent)),
        kind => plain(kind, schema, indent),
    }
}

fn plain(kind: &Value, schema: &Value, indent: usize) -> String {
    match kind.as_str().expect("a type") {
        kind @ ("string" | "boolean" | "null") => kind.to_owned(),
        "integer" => "number".to_owned(),
        "array" => {
            let item = type_of(&schema["items"], indent);
            if item.contains(" | ") { format!("Array<{item}>") } else { format!("{item}[]") }
        }
        "object" => match &schema["additionalProperties"] {
            values @ Value::Object(_) => format!("Record<string, {}>", type_of(values, indent)),
            _ => members(schema, indent),
        },
        other => panic!("{other} is not translated"),
    }
}

/// Required members first, each group by name.
fn members(schema: &Value, indent: usize) -> String {
    let properties = schema["properties"].as_object().expect("properties");
    let required: Vec<&str> =
        schema["required"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
    names.sort_unstable_by_key(|name| (!required.contains(name), *name));
    let mut text = "{\n".to_owned();
    let inner = "  ".repeat(indent + 1);
    for name in names {
        let property = &properties[name];
        if let Some(said) = property["description"].as_str() {
            writeln!(text, "{inner}/** {said} */").expect("a string");
        }
        let mark = if required.contains(&name) { "" } else { "?" };
        let kind = type_of(property, indent + 1);
        writeln!(text, "{inner}{name}{mark}: {kind};").expect("a string");
    }
    text + &"  ".repeat(indent) + "}"
}

// Guards: types that promise more than a response contains, or forbid what a request may contain.
#[test]
fn the_types_are_those_of_the_open_api_document() {
    let document: Value = serde_json::from_str(OPEN_API).unwrap();
    let mut made = String::new();
    for schema in TYPES {
        let said = &document["components"]["schemas"][schema];
        if let Some(about) = said["description"].as_str() {
            writeln!(made, "\n/** {about} */").unwrap();
        } else {
            made.push('\n');
        }
        writeln!(made, "export interface {} {}", name(schema), members(said, 0)).unwrap();
    }
    made.push('\n');
    let file = fs::read_to_string(FILE).unwrap();
    let (head, rest) = file.split_once(BEGIN).expect("the mark where the types begin");
    let (_, tail) = rest.split_once(END).expect("the mark where the types end");
    assert_file(FILE, &format!("{head}{BEGIN}{made}{END}{tail}"));
}
