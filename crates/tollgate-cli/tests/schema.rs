//! The JSON Schema: committed, up to date, and in agreement with the reader, by a third-party
//! validator.

use std::collections::BTreeSet;
use std::fs;

use jsonschema::Validator;
use serde_json::{Value, json};
use tollgate_policy::Surface;
use tollgate_test_support::golden::assert_file;

use crate::support::{Block, blocks, pages, root, tollgate};

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(&tollgate_language::schema()).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

/// The mistakes that the schema finds in a document.
fn mistakes(validator: &Validator, document: &Value) -> Vec<String> {
    validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn the_committed_schema_is_fresh() {
    let printed = tollgate(&root(), &["schema"]).stdout;
    assert_file(root().join("docs/policy.schema.json"), &printed);
}

#[test]
fn the_schema_is_one() {
    let schema: Value = serde_json::from_str(&tollgate_language::schema()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
}

/// Every policy that is shipped or shown: its position, and the policy.
fn shown() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let worker = "crates/tollgate-worker/policy.json";
    let text = fs::read_to_string(root().join(worker)).unwrap();
    all.push((worker.to_owned(), serde_json::from_str(&text).unwrap()));
    let envoy = fs::read_to_string(root().join("envoy/envoy.yaml")).unwrap();
    let envoy: Value = serde_yaml_ng::from_str(&envoy).unwrap();
    find_policies(&envoy, &mut |policy| all.push(("envoy/envoy.yaml".to_owned(), policy.clone())));
    let others = ["docs/policy.md", "docs/recipes.md"].map(str::to_owned);
    for name in pages("policy").into_iter().chain(others) {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        // Another input of a command, besides its policy, is a named file.
        let is_policy = |block: &Block| block.language == "json" && block.file.is_none();
        for block in blocks(&text).into_iter().filter(is_policy) {
            let place = format!("{name}:{}", block.line);
            all.push((place, serde_json::from_str(&block.text).unwrap()));
        }
    }
    let folder = root().join("crates/tollgate-cli/tests/policies");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if tollgate_language::compile(&text, Surface::Envoy).is_ok() {
            all.push((path.display().to_string(), serde_json::from_str(&text).unwrap()));
        }
    }
    all
}

/// Calls `found` with every object that looks like a policy.
fn find_policies(value: &Value, found: &mut dyn FnMut(&Value)) {
    match value {
        Value::Object(fields) if fields.contains_key("rules") && fields.contains_key("version") => {
            found(value);
        }
        Value::Object(fields) => fields.values().for_each(|v| find_policies(v, found)),
        Value::Array(items) => items.iter().for_each(|v| find_policies(v, found)),
        _ => {}
    }
}

#[test]
fn every_shown_policy_is_valid() {
    let validator = validator();
    let shown = shown();
    let documents = ["docs/policy.md", "docs/policy/key.md", "docs/recipes.md"];
    for place in documents.into_iter().chain(["crates/tollgate-worker", "envoy/envoy.yaml"]) {
        assert!(shown.iter().any(|(at, _)| at.starts_with(place)), "no policy in {place}");
    }
    for (place, policy) in &shown {
        assert_eq!(mistakes(&validator, policy), [""; 0], "{place}");
    }
}

/// Adds an unknown field to every object of every shown policy in turn: the schema rejects each,
/// and so does the reader, except where names are the user's own.
#[test]
fn unknown_fields_are_refused_everywhere() {
    let validator = validator();
    let mut tried = 0;
    for (place, policy) in shown() {
        for pointer in objects(&policy, String::new()) {
            if pointer.ends_with("/headers") || pointer.ends_with("/query") {
                continue; // names of headers and of query parameters
            }
            let mut changed = policy.clone();
            let object = changed.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
            object.insert("zzz".to_owned(), json!({}));
            assert!(!validator.is_valid(&changed), "{place}: the schema takes {pointer}/zzz");
            let text = changed.to_string();
            let refused = [Surface::Envoy, Surface::Worker]
                .iter()
                .all(|surface| tollgate_language::compile(&text, *surface).is_err());
            assert!(refused, "{place}: the reader takes {pointer}/zzz");
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

/// An editor must not warn about a valid policy: the schema accepts everything that the reader
/// accepts.
#[test]
fn the_schema_is_never_stricter_than_the_reader() {
    let validator = validator();
    let pool = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(2),
        json!(64),
        json!(1_000_000_000),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("*"),
        json!("a"),
        json!("0s"),
        json!("0h"),
        json!("500ms"),
        json!("1m"),
        json!("366d"),
        json!("GET"),
        json!("get"),
        json!("5xx"),
        json!("+401"),
        json!("DE"),
        json!("de"),
        json!("/a/{x}/**"),
        json!("*.example.com"),
        json!("10.0.0.0/8"),
        json!("::1"),
        json!("client_ip"),
        json!("sliding-log"),
        json!("shadow"),
        json!("deny"),
        json!("request"),
        json!("forwarded"),
        json!("x-ratelimit"),
        json!([]),
        json!(["a"]),
        json!(["GET"]),
        json!({}),
        json!({"header": "x"}),
        json!({"prefix": "a"}),
        json!({"enforce_percent": 0}),
        json!({"content_length_per": 1}),
        json!({"header": "x", "max": 5}),
        json!({"mark": {"header": "x", "value": ""}}),
        json!({"delay": {"max": "0d"}}),
        json!({"respond": {"status": 599}}),
        json!({"deny": {"status": 200, "body": "x"}}),
    ];
    let (mut taken, mut tried, mut fields) = (0, 0, BTreeSet::new());
    for (place, policy) in shown() {
        for pointer in values(&policy, String::new()) {
            // Each field once; `$schema` is not read at all.
            if pointer == "/$schema"
                || !fields.insert(pointer.replace(|c: char| c.is_ascii_digit(), ""))
            {
                continue;
            }
            for value in &pool {
                let mut changed = policy.clone();
                *changed.pointer_mut(&pointer).unwrap() = value.clone();
                let text = changed.to_string();
                tried += 1;
                let is_policy = [Surface::Envoy, Surface::Worker]
                    .iter()
                    .any(|surface| tollgate_language::compile(&text, *surface).is_ok());
                if is_policy {
                    taken += 1;
                    assert_eq!(
                        mistakes(&validator, &changed),
                        [""; 0],
                        "{place}: {pointer}: {value}"
                    );
                }
            }
        }
    }
    assert!(taken > 500, "{taken} of {tried}");
}

/// The JSON pointers of every value in `value`, except of itself.
fn values(value: &Value, at: String) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, v)| (name.replace('~', "~0").replace('/', "~1"), v)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    let each = children.into_iter().flat_map(|(name, child)| {
        let pointer = format!("{at}/{name}");
        let inner = values(child, pointer.clone());
        std::iter::once(pointer).chain(inner)
    });
    each.collect()
}

/// The JSON pointers of all objects in `value`.
fn objects(value: &Value, at: String) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let inner = fields.iter().flat_map(|(name, v)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                objects(v, format!("{at}/{name}"))
            });
            let inner: Vec<_> = inner.collect();
            std::iter::once(at).chain(inner).collect()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(i, v)| objects(v, format!("{at}/{i}"))).collect()
        }
        _ => Vec::new(),
    }
}
