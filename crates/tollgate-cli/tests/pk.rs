//! `tollgate pk`: the hash is the one that a surface reports.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Surface, pk_text, plugin_hash_key};

use crate::support::{Ran, scratch, tollgate};

const SECRET: &str = "0123456789abcdef-of-a-test";

fn policy() -> Value {
    json!({"version": 1, "response": {"partition_key": true}, "rules": [
        {"name": "by client", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "by key", "key": ["client_ip", {"header": "x-key"}], "quotas": [{"limit": 1, "window": "1m"}]},
    ]})
}

fn folder(name: &str) -> PathBuf {
    let folder = scratch(&format!("pk/{name}"));
    fs::write(folder.join("policy.json"), policy().to_string()).unwrap();
    fs::write(folder.join("secret"), format!("{SECRET}\n")).unwrap();
    folder
}

fn good(ran: &Ran) -> String {
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout.clone()
}

/// The hash that a surface with this key reports for a request under both rules.
fn reported(key: [u8; 16]) -> Vec<String> {
    let mut policy = tollgate_language::compile(&policy().to_string(), Surface::Library).unwrap();
    policy.set_hash_key(key);
    let request = json!({"method": "GET", "path": "/", "client_ip": "2001:db8::7", "headers": {"x-key": "k"}});
    let request = DescribedRequest::parse(request.to_string().as_bytes()).unwrap();
    let mut plan = Plan::default();
    policy.plan(&request, &mut plan);
    plan.decide(&policy, Timestamp::ZERO);
    let outcome = plan.outcome(&policy);
    let pk = |i| outcome.partition_pk(i).map(pk_text);
    outcome.decisions().filter_map(|decision| decision.partition.and_then(pk)).collect()
}

#[test]
fn the_hash_is_the_one_that_a_request_has() {
    let folder = folder("same");
    let pk = |more: &[&str]| {
        let arguments = [&["pk", "policy.json", "--hash-key", "secret"], more].concat();
        good(&tollgate(&folder, &arguments)).trim_end().to_owned()
    };
    let of_client = ["--rule", "by client", "--key", "2001:DB8:0::9"];
    let of_key = ["--rule", "by key", "--key", "2001:db8::1", "--key", "k"];
    let expected = reported(plugin_hash_key(SECRET));
    assert_eq!([pk(&of_client), pk(&of_key)], expected[..]);
    // The server and the Worker derive another key from the same secret.
    let of_server = pk(&[&of_client[..], &["--surface", "server"]].concat());
    assert_ne!(of_server, expected[0]);
    assert_eq!(of_server, pk(&[&of_client[..], &["--surface", "worker"]].concat()));
}

#[test]
fn a_configuration_of_envoy_has_the_secret() {
    let folder = folder("envoy");
    let filter = |value: Value| {
        json!([{"name": "tollgate", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {"configuration": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": value}}}}])
        .to_string()
    };
    fs::write(folder.join("with.json"), filter(json!({"policy": policy(), "hash_key": SECRET})))
        .unwrap();
    fs::write(folder.join("without.json"), filter(policy())).unwrap();
    let asked = ["--rule", "by client", "--key", "2001:db8::7"];
    let pk = |file: &str| tollgate(&folder, &[&["pk", file], &asked[..]].concat());
    assert_eq!(good(&pk("with.json")).trim_end(), reported(plugin_hash_key(SECRET))[0]);
    // Of two filters, the one with a secret is used.
    let [one, other] = ["with.json", "without.json"].map(|name| {
        serde_json::from_str::<Value>(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    });
    fs::write(folder.join("both.json"), json!([other[0], one[0]]).to_string()).unwrap();
    assert_eq!(good(&pk("both.json")).trim_end(), reported(plugin_hash_key(SECRET))[0]);
    let without = pk("without.json");
    assert_eq!(without.code, 2);
    assert!(without.stderr.contains("a filter without hash_key makes a new secret"), "{without:?}");
}

#[test]
fn what_names_no_client_is_refused() {
    let folder = folder("refused");
    let rows: [(&[&str], &str); 5] = [
        (&["--rule", "none"], "has no rule \"none\""),
        (&["--rule", "by client", "--key", "here"], "key"),
        (&["--rule", "by client"], "key"),
        (&["--rule", "by client", "--key", "192.0.2.1", "--tenant", "t"], "tenant"),
        (
            &["--rule", "by client", "--key", "192.0.2.1", "--surface", "library"],
            "chooses its key itself",
        ),
    ];
    for (more, expected) in rows {
        let ran =
            tollgate(&folder, &[&["pk", "policy.json", "--hash-key", "secret"], more].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{more:?} {ran:?}");
        assert!(ran.stderr.contains(expected), "{more:?} {ran:?}");
        assert!(!ran.stderr.contains(SECRET), "{ran:?}");
    }
}
