//! Values that other filters have set in the metadata of a stream.

use crate::envoy::{self, Configuration, Set, Stream};

const STOPS: i32 = 4;

#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
fn policy(rule: &str) -> Configuration {
    Configuration::new(&format!(r#"{{"version": 1, "rules": [{rule}]}}"#)).unwrap()
}

/// By the value `name` of the filter "f"; requests without it are denied.
fn by_value(rule: &str, name: &str, more: &str) -> Configuration {
    policy(&format!(
        r#"{{"name": "{rule}", "key": [{{"metadata": ["f", "{name}"]}}], "on_missing": "deny",
            "quotas": [{{"limit": 10, "window": "1h"}}]{more}}}"#
    ))
}

fn with(metadata: &[(&'static str, &'static str, Set)]) -> Stream {
    Stream { metadata: metadata.to_vec().into(), ..Stream::get(&[]) }
}

// The rows of the test in a real Envoy, at the top of a filter's metadata.
#[test]
fn a_value_counts_by_its_type() {
    let rows = [
        (Set::Text("acme"), Some("acme")),
        (Set::Text(" acme "), Some(" acme ")),
        (Set::Text(""), Some("")),
        (Set::Text("0.5"), Some("0.5")),
        (Set::Text("abcdefgh"), Some("abcdefgh")),
        (Set::Number(7.0), Some("7")),
        (Set::Number(-7.0), Some("-7")),
        (Set::Number(-0.0), Some("0")),
        (Set::Number(9_007_199_254_740_991.0), Some("9007199254740991")),
        (Set::Number(9_007_199_254_740_992.0), None),
        (Set::Number(0.5), None),
        (Set::Number(f64::NAN), None),
        (Set::Truth(true), Some("true")),
        (Set::Truth(false), Some("false")),
        (Set::Other, None),
    ];
    for (value, text) in rows {
        let more = format!(
            r#", "tiers": [{{"name": "met", "key_values": ["{}"], "quotas": [{{"limit": 20, "window": "1h"}}]}}]"#,
            text.unwrap_or("x")
        );
        let configuration = by_value("types", "typed", &more);
        let stream = configuration.open(with(&[("f", "typed", value.clone())]));
        assert_eq!(stream.request() == STOPS, text.is_none(), "{value:?}");
        if text.is_some() {
            stream.response();
            let field = stream.response_header("ratelimit-policy");
            assert_eq!(field.as_deref(), Some(r#""types";q=20;w=3600"#), "{value:?}");
        }
        stream.end();
    }
}

// Guards: a value of another filter in place of the one that the policy names.
#[test]
fn only_the_named_value_of_the_named_filter_is_read() {
    let configuration = by_value("names", "tenant", "");
    for (filter, name, is_allowed) in
        [("f", "tenant", true), ("g", "tenant", false), ("f", "other", false), ("", "f", false)]
    {
        let stream = configuration.open(with(&[(filter, name, Set::Text("acme"))]));
        assert_eq!(stream.request() == 0, is_allowed, "{filter} {name}");
        stream.end();
    }
}

// Guards: an error of Envoy in its log with every request.
#[test]
fn a_type_is_tried_first_once_it_is_known() {
    let errors = || envoy::logged(4, "key numbered is not one");
    let configuration = by_value("known", "numbered", "");
    for (value, expected) in [
        (Set::Number(7.0), 1), // a text was expected
        (Set::Number(8.0), 1),
        (Set::Number(7.0), 1),
        (Set::Truth(true), 3),
        (Set::Truth(true), 3),
    ] {
        let stream = configuration.open(with(&[("f", "numbered", value)]));
        assert_eq!((stream.request(), errors()), (0, expected));
        stream.end();
    }
}

// Guards: a cost that stays an estimate for ever, and an error in the log about its type.
#[test]
fn the_end_of_a_response_settles_a_cost_in_metadata() {
    let configuration = policy(
        r#"{"name": "tokens", "key": [], "cost": {"estimate": 10, "max": 5000,
            "actual": {"metadata": ["io.envoy.ai_gateway", "llm_total_token"]}},
            "quotas": [{"limit": 10000, "window": "1h", "algorithm": "fixed-window"}]}"#,
    );
    let left = || {
        let stream = configuration.open(Stream::get(&[]));
        assert_eq!(stream.request(), 0);
        stream.response();
        stream.response_header("ratelimit").unwrap_or_default()
    };
    assert!(left().starts_with(r#""tokens";r=9990"#));
    let stream = configuration.open(Stream::get(&[]));
    assert_eq!(stream.request(), 0);
    stream.response();
    assert_eq!(stream.asked.get(), 0, "it is not there yet");
    let tokens = ("io.envoy.ai_gateway", "llm_total_token", Set::Number(1500.0));
    stream.metadata.borrow_mut().push(tokens);
    stream.end();
    assert_eq!(stream.asked.get(), 1);
    assert!(left().starts_with(r#""tokens";r=8480"#), "{}", left());
    assert_eq!(envoy::logged(4, "key llm_total_token is not one"), 0);
}

#[test]
fn a_policy_without_metadata_asks_for_none() {
    let configuration = policy(
        r#"{"name": "plain", "key": [{"header": "x-key"}], "cost": {"estimate": 1, "max": 9, "actual": "duration"},
            "quotas": [{"limit": 10, "window": "1h"}]}"#,
    );
    let stream = configuration.open(with(&[("f", "tenant", Set::Text("acme"))]));
    assert_eq!(stream.request(), 0);
    stream.response();
    stream.end();
    assert_eq!(stream.asked.get(), 0);
}
