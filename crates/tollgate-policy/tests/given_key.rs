//! A key that is named by its values is the one that requests with these values are counted by.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use tollgate_policy::{NoKey, Plan, Policy, Problem, Surface};

use support::{Request, get};

const POLICY: &str = r#"{"version": 1,
    "jwt": {"keys": [{"kty": "oct", "alg": "HS256", "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]},
    "rules": [
    {"name": "address", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "parts", "key": ["client_ip", {"header": "X-Key"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "host", "key": ["host"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "path", "key": ["path", "method"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "cookie", "key": [{"cookie": "sid"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "query", "key": [{"query": "a b"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "item", "key": [{"path_param": "id"}], "when": {"paths": ["/items/{id}"]}, "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "claim", "key": [{"jwt_claim": "sub"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "edge", "key": ["country", "asn"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "all", "key": [], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "token", "key": [{"header": "x-token"}], "on_missing": "shared", "quotas": [{"limit": 1, "window": "1h"}]}
    ]}"#;

fn policy() -> Policy {
    Policy::compile(POLICY, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
}

fn key_of(rule: &str, values: &[&str]) -> Result<Vec<u8>, NoKey> {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    policy().key_of(rule, &values).map(|key| key.bytes().to_vec())
}

/// The keys that a request is counted by.
fn keys(request: &Request) -> Vec<Vec<u8>> {
    let mut plan = Plan::new();
    policy().plan(request, &mut plan);
    plan.partitions().map(|partition| partition.key().to_vec()).collect()
}

#[test]
fn a_named_key_is_that_of_its_requests() {
    let items = || get("/items/a%2Fb", "192.0.2.1");
    let rows: Vec<(&str, Vec<&str>, Request)> = vec![
        ("address", vec!["192.0.2.1"], get("/", "192.0.2.1")),
        ("address", vec!["::ffff:192.0.2.1"], get("/", "192.0.2.1")),
        ("address", vec!["2001:DB8::9:9:9:9"], get("/", "2001:db8::1")),
        ("parts", vec!["2001:db8::9", "k, k"], get("/", "2001:db8::1").header("x-key", "k, k")),
        ("host", vec!["EXAMPLE.com:443"], Request { host: "example.com", ..get("/", "192.0.2.1") }),
        ("path", vec!["/a/./b//c%41", "get"], get("/a/b/cA?x", "192.0.2.1")),
        ("path", vec!["/a/b/cA", "GET"], get("/a/./b//c%41", "192.0.2.1")),
        ("cookie", vec!["s 1"], get("/", "192.0.2.1").header("cookie", "a=b; sid=s 1; sid2=x")),
        ("query", vec!["ö&=%41 +"], get("/?a%20b=%C3%B6%26%3D%2541%20%2B", "192.0.2.1")),
        ("claim", vec!["user 1"], Request { claims: vec![("sub", "user 1")], ..items() }),
        (
            "edge",
            vec!["de", "64500"],
            Request { country: Some("DE"), asn: Some("64500"), ..items() },
        ),
        ("all", vec![], items()),
        ("token", vec!["t"], items().header("x-token", "t")),
        ("token", vec![], items()),
    ];
    for (rule, values, request) in rows {
        let key = key_of(rule, &values).unwrap();
        assert!(keys(&request).contains(&key), "{rule} {values:?}");
    }
    // What a segment of the path captured, as it is counted.
    let captured = key_of("item", &["a"]).unwrap();
    assert!(keys(&get("/items/a", "192.0.2.1")).contains(&captured));
}

#[test]
fn other_values_are_other_keys_and_what_is_none_is_refused() {
    assert_ne!(key_of("address", &["192.0.2.1"]), key_of("address", &["192.0.2.2"]));
    assert_ne!(key_of("parts", &["192.0.2.1", "a"]), key_of("parts", &["192.0.2.1", "b"]));
    assert_ne!(key_of("token", &["t"]), key_of("token", &[]));
    assert_eq!(key_of("none", &[]), Err(NoKey::NoRule));
    for (rule, values, path, why) in [
        ("address", vec!["secret"], "key[0]", "client_ip: is no address"),
        ("address", vec![""], "key[0]", "client_ip: is no address"),
        ("address", vec![], "key", "has 1 part (client_ip), and 0 values are given"),
        ("parts", vec!["::1"], "key", "has 2 parts (client_ip, header), and 1 values are given"),
        ("parts", vec!["192.0.2.1", ""], "key[1]", "header: no request has this value"),
        ("host", vec!["a b"], "key[0]", "host: a request with it cannot be read"),
    ] {
        let wrong = NoKey::Wrong(Problem::new(path, why.into()));
        assert_eq!(key_of(rule, &values), Err(wrong), "{rule} {values:?}");
    }
}
