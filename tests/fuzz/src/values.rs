//! The value that a key takes from a header, in any spelling of the header.
//!
//! Invariant checked: white space around a value, empty elements, and the order and number of
//! elements never make a new key: a request has the key of its one value, or is malformed. A client
//! that adds a line to another client's gets no key of its own.

use std::cell::OnceCell;

use tollgate_policy::{Plan, Policy, Surface};

use super::request::Request;

const HEADER: &str = "x-key";

/// Checks the key of `list`, and its key in combination with `other`.
pub fn check(list: &[u8], other: &[u8]) {
    let key = key(list);
    let with = |parts: &[&[u8]]| self::key(&parts.concat());
    assert_eq!(with(&[b" \t", list, b"\t  "]), key, "white space is a key");
    assert_eq!(with(&[b",", list, b", ,\t,"]), key, "empty elements are a key");
    assert_eq!(with(&[list, b", ", list]), key, "the same line again is a key");
    let mut elements: Vec<&[u8]> = list.split(|byte| *byte == b',').collect();
    elements.reverse();
    assert_eq!(self::key(&elements.join(&b","[..])), key, "the order is a key");
    let is_empty = |list: &[u8]| list.iter().all(|byte| b", \t".contains(byte));
    if key.is_none() {
        assert_eq!(with(&[list, b",", other]), None, "a line more makes it readable");
    } else if !is_empty(list) {
        for both in [with(&[list, b",", other]), with(&[other, b", ", list])] {
            assert!(both.is_none() || both == key, "a line more is a key of its own");
        }
    }
}

/// The key of a request with this header; `None` when it is malformed.
fn key(list: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static POLICY: OnceCell<Policy> = const { OnceCell::new() };
    }
    let compile = || {
        let document = r#"{"version": 1, "rules": [{"name": "r", "key": [{"header": "x-key"}],
            "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
        tollgate_language::compile(document, Surface::Envoy).expect("a policy")
    };
    let mut plan = Plan::new();
    POLICY.with(|policy| {
        policy.get_or_init(compile).plan(&Request::from_peer(None, HEADER, list), &mut plan);
    });
    assert!(!plan.is_empty(), "a header that is there is no missing part");
    (plan.len() == 1).then(|| plan.partition(0).unwrap().key().to_vec())
}
