//! The examples of `docs/worker.md`, run: each request is sent to the service with the policy
//! before it, and must get the documented response.

use serde_json::Value;
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, answer};

const DOCUMENT: &str = include_str!("../../docs/worker.md");

/// The blocks of kinds `json policy`, `json request` and `json answer`, in their order.
fn blocks() -> Vec<(&'static str, Value)> {
    let mut blocks = vec![];
    let mut rest = DOCUMENT;
    while let Some((_, found)) = rest.split_once("```json ") {
        let (kind, found) = found.split_once('\n').expect("a block");
        let (text, after) = found.split_once("\n```").expect("the end of a block");
        let value = serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"));
        blocks.push((kind, value));
        rest = after;
    }
    blocks
}

/// True when `shown` is `got`, except for times: `...` replaces any text, and alone any value.
fn is_like(shown: &Value, got: &Value) -> bool {
    match (shown, got) {
        (Value::String(shown), _) if shown == "..." => !got.is_null(),
        (Value::String(shown), Value::String(got)) => {
            let mut rest = got.as_str();
            let pieces: Vec<&str> = shown.split("...").collect();
            let last = pieces.len() - 1;
            pieces.iter().enumerate().all(|(i, piece)| {
                let at =
                    if i == 0 { rest.starts_with(piece).then_some(0) } else { rest.find(piece) };
                let Some(at) = at else { return false };
                rest = &rest[at + piece.len()..];
                i < last || rest.is_empty() || (i > 0 && piece.is_empty())
            })
        }
        (Value::Array(shown), Value::Array(got)) => {
            shown.len() == got.len()
                && shown.iter().zip(got).all(|(shown, got)| is_like(shown, got))
        }
        (Value::Object(shown), Value::Object(got)) => {
            shown.len() == got.len()
                && shown
                    .iter()
                    .all(|(name, shown)| got.get(name).is_some_and(|got| is_like(shown, got)))
        }
        _ => shown == got,
    }
}

// Guards: a document that differs from the service.
#[test]
fn the_examples_of_the_document_are_answered_so() {
    let (mut worker, mut got, mut compared) = (None, Value::Null, 0);
    for (kind, value) in blocks() {
        match kind {
            "policy" => worker = Some(Setup::new(value).start()),
            "request" => {
                let worker = worker.as_ref().expect("a policy stands before its requests");
                got = answer(&worker.client().send(&Request::post("/check", value.to_string())));
            }
            "answer" => {
                assert!(
                    is_like(&value, &got),
                    "the document shows\n{value}\nthe service says\n{got}"
                );
                compared += 1;
            }
            other => panic!("a block of an unknown kind: {other}"),
        }
    }
    assert_eq!(compared, 7);
}

#[test]
fn an_example_that_differs_is_seen() {
    let value = |text: &str| serde_json::from_str(text).expect(text);
    for (shown, got, expected) in [
        (r#"{"a":"x...z"}"#, r#"{"a":"xyz"}"#, true),
        (r#"{"a":"x...z"}"#, r#"{"a":"xyzz!"}"#, false),
        (r#"{"a":"x..."}"#, r#"{"a":"xyz"}"#, true),
        (r#"{"a":"..."}"#, r#"{"a":5}"#, true),
        (r#"{"a":"..."}"#, r#"{"a":null}"#, false),
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
        (r#"{"a":[1]}"#, r#"{"a":[1,2]}"#, false),
        (r#"{"a":"x"}"#, r#"{"a":"xy"}"#, false),
    ] {
        assert_eq!(is_like(&value(shown), &value(got)), expected, "{shown} {got}");
    }
}
