//! Settings whose effect must be the same for a client on every surface: partial enforcement,
//! jitter, bodies.
//!
//! Invariant: each check reads the responses only. A surface starts a server with a policy, and
//! returns it with a client; the server lives as long as the first of the pair. Deliberately
//! absent: how a request reaches the server.

use serde_json::{Value, json};

use crate::http::{Client, Request};

/// One request per hour for each `x-key`, with these settings of the rule and of the response.
fn policy(rule: &Value, response: &Value) -> Value {
    let quota = json!({"name": "q", "limit": 1, "window": "1h"});
    let mut all = json!({"name": "r", "key": [{"header": "x-key"}], "quotas": [quota]});
    let fields = rule.as_object().expect("fields of a rule").clone();
    all.as_object_mut().expect("a rule").extend(fields);
    json!({"version": 1, "response": response, "rules": [all]})
}

fn of(key: u32) -> Request {
    Request::get("/").header("x-key", format!("key-{key}"))
}

/// The first keys that are enforced; the policy selects them, so every surface has the same ones.
const ENFORCED: [u32; 10] = [0, 2, 4, 7, 8, 18, 24, 32, 33, 34];

/// Under `{"mode": {"enforce_percent": 30, "salt": ...}}`: about this share of keys is denied, the
/// others pass without rate limit fields, and a key's selection never changes.
pub fn check_percent<S>(start: impl Fn(&Value) -> (S, Client)) {
    const KEYS: u32 = 400;
    let rule = json!({"mode": {"enforce_percent": 30, "salt": "the same everywhere"}});
    let (_server, mut client) = start(&policy(&rule, &json!({})));
    let mut enforced = vec![];
    for key in 0..KEYS {
        let [first, second, third] = [(); 3].map(|()| client.send(&of(key)));
        assert_eq!((first.status, second.status), (200, third.status), "key {key}");
        match second.status {
            429 => enforced.push(key),
            200 => assert_eq!(second.header("ratelimit"), None, "key {key} is told of a limit"),
            other => panic!("key {key}: {other}"),
        }
    }
    assert_eq!(enforced.get(..ENFORCED.len()), Some(&ENFORCED[..]));
    // Five standard deviations of 9.2 around 120.
    assert!((75..=165).contains(&enforced.len()), "{} of {KEYS}", enforced.len());
}

/// Under `{"jitter": "5m", "body": "text"}`: no denied client gets an earlier `retry-after` than
/// without jitter, nor one more than five minutes later, nor do all get the same; the fields and
/// the body agree.
pub fn check_jitter<S>(start: impl Fn(&Value) -> (S, Client)) {
    const KEYS: u32 = 40;
    let response = json!({"jitter": "5m", "body": "text"});
    let (_server, mut client) = start(&policy(&json!({}), &response));
    let mut waits = vec![];
    for key in 0..KEYS {
        client.send(&of(key));
        let denied = client.send(&of(key));
        assert_eq!(denied.status, 429, "key {key}");
        let field = |name| denied.header(name).unwrap_or_else(|| panic!("no {name}: {denied:?}"));
        let wait: u64 = field("retry-after").parse().expect("whole seconds");
        assert_eq!(field("ratelimit"), format!("\"q\";r=0;t={wait}"));
        assert_eq!(denied.text(), format!("try again in {wait} seconds\n"));
        // Without jitter an hour, less the time of the two requests, at most one second.
        assert!((3599..=3600 + 300).contains(&wait), "key {key}: {wait}");
        waits.push(wait);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 30, "they come back together: {waits:?}");
    assert!(waits.iter().any(|wait| *wait > 3600 + 100), "hardly any jitter: {waits:?}");
}

/// The parts of a denial besides the fields: the content type and the body under each `body`.
const BODIES: [(&str, Option<&str>, &str); 2] =
    [("text", Some("text/plain"), "try again in 3600 seconds\n"), ("none", None, "")];

/// Under each `{"body": kind}`.
pub fn check_bodies<S>(start: impl Fn(&Value) -> (S, Client)) {
    for (kind, content_type, body) in BODIES {
        let (_server, mut client) = start(&policy(&json!({}), &json!({"body": kind})));
        client.send(&of(0));
        let denied = client.send(&of(0));
        assert_eq!((denied.status, denied.text().as_str()), (429, body), "{kind}");
        assert_eq!(denied.header("content-type").as_deref(), content_type, "{kind}");
        assert_eq!(denied.header("retry-after").as_deref(), Some("3600"), "{kind}");
    }
}
