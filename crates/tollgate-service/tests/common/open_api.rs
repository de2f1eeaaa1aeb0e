//! The OpenAPI document, compared with real responses.
//!
//! Invariant: every response of every test is among those that the document lists for its path and
//! method, with the documented header fields and body.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};
use tollgate_service::{ApiResponse, OPEN_API};

thread_local! {
    static DOCUMENT: Value = serde_json::from_str(OPEN_API).expect("JSON");
    static SCHEMAS: RefCell<HashMap<String, jsonschema::Validator>> = RefCell::default();
    /// Operations and statuses that occurred in this test.
    static SEEN: RefCell<BTreeSet<String>> = RefCell::default();
}

/// Compares `answer` with the document.
pub fn check(method: &str, target: &str, answer: &ApiResponse) {
    DOCUMENT.with(|document| Spec(document).check(method, target, answer));
}

/// Operations with the statuses that occurred in this test: `readPolicy 200`.
pub fn seen() -> BTreeSet<String> {
    SEEN.with_borrow(Clone::clone)
}

/// Operations below the prefix with the statuses that the document lists.
pub fn documented() -> BTreeSet<String> {
    DOCUMENT.with(|document| {
        let paths = document["paths"].as_object().expect("paths").values();
        let operations = paths.flat_map(|methods| methods.as_object().expect("methods").values());
        let listed = |operation: &Value| -> Vec<String> {
            let id = operation["operationId"].as_str().expect("an id").to_owned();
            let statuses = operation["responses"].as_object().expect("responses").keys();
            statuses.map(|status| format!("{id} {status}")).collect()
        };
        operations.flat_map(listed).collect()
    })
}

struct Spec<'d>(&'d Value);

impl<'d> Spec<'d> {
    fn check(&self, method: &str, target: &str, answer: &ApiResponse) {
        let path = target.split('?').next().unwrap_or_default();
        let name = if method == "HEAD" { "get".into() } else { method.to_ascii_lowercase() };
        let methods = self.0["paths"].as_object().expect("paths");
        let methods = methods.iter().find(|(template, _)| is_like(template, path));
        let is_method = method.chars().all(|c| c.is_ascii_uppercase());
        let operation =
            methods.map(|(_, methods)| &methods[&name]).filter(|it| it.is_object() && is_method);
        let Some(operation) = operation else {
            assert!(
                matches!(answer.status, 400 | 404 | 405 | 414),
                "{method} {target}: {answer:?}"
            );
            return;
        };
        let id = operation["operationId"].as_str().expect("an id");
        SEEN.with_borrow_mut(|seen| seen.insert(format!("{id} {}", answer.status)));
        let response = self.resolved(&operation["responses"][answer.status.to_string()]);
        assert!(response.is_object(), "{id}: {} is not documented: {answer:?}", answer.status);
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let header = self.resolved(header);
            match answer.fields.get(name) {
                Some(value) => self.valid(&header["schema"], &json!(value), name),
                None => assert!(header["required"] != true, "{id}: no {name}: {answer:?}"),
            }
        }
        if method != "HEAD" {
            self.body(id, &response["content"], answer);
        }
    }

    fn body(&self, id: &str, content: &Value, answer: &ApiResponse) {
        let Some(content) = content.as_object() else {
            assert!(answer.body.is_empty(), "{id}: a body is not documented: {answer:?}");
            return;
        };
        let kind = answer.fields.get("content-type").expect("a content type");
        let kind = kind.split(';').next().unwrap_or_default();
        let schema = &content.get(kind).unwrap_or_else(|| panic!("{id}: {kind}"))["schema"];
        if kind.ends_with("json") {
            let body = serde_json::from_str(&answer.body).expect("JSON");
            self.valid(schema, &body, id);
        }
    }

    fn valid(&self, schema: &Value, value: &Value, what: &str) {
        SCHEMAS.with_borrow_mut(|schemas| {
            let validator = schemas.entry(schema.to_string()).or_insert_with(|| {
                let mut whole = schema.clone();
                whole["components"] = self.0["components"].clone();
                jsonschema::validator_for(&whole).expect("a schema")
            });
            let wrong: Vec<String> = validator
                .iter_errors(value)
                .map(|e| format!("{} {e}", e.instance_path()))
                .collect();
            assert!(wrong.is_empty(), "{what}: {wrong:#?}\n{value}");
        });
    }

    fn resolved(&self, value: &'d Value) -> &'d Value {
        let pointer = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        pointer.map_or(value, |pointer| self.0.pointer(pointer).expect("what is referred to"))
    }
}

fn is_like(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted == given => {}
            (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => {}
            _ => return false,
        }
    }
}
