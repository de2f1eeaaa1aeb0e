//! Envoy in front of real origins: spellings that they read as one resource have one count.
//!
//! Invariant: the listener with bare settings forwards paths as received; the one with shipped
//! settings has the path settings of `envoy/envoy.yaml`.

use serde_json::{Value, json};
use tollgate_e2e::differential::{self, REQUESTS};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::origins::{Kind, Origin};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// The settings of the shipped configuration for paths and addresses.
fn shipped() -> Value {
    let text = include_str!("../../envoy/envoy.yaml");
    for line in [
        "path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD",
        "normalize_path: true",
        "merge_slashes: true",
        "use_remote_address: true",
        "headers_with_underscores_action: REJECT_REQUEST",
    ] {
        assert!(text.contains(line), "envoy.yaml has no {line}");
    }
    json!({
        "path_with_escaped_slashes_action": "UNESCAPE_AND_FORWARD",
        "normalize_path": true,
        "merge_slashes": true,
        "use_remote_address": true,
        "common_http_protocol_options": {"headers_with_underscores_action": "REJECT_REQUEST"},
    })
}

/// Two listeners with one policy: bare settings first, then the shipped ones.
fn start(policy: &Value, origin: u16) -> Envoy {
    let listener = |(name, manager): (&'static str, Value)| {
        let mut listener = Listener::new(name, vec![tollgate(policy, name, As::Text)]);
        listener.manager = manager;
        listener.behind_origin()
    };
    let listeners = [("bare", json!({})), ("shipped", shipped())].map(listener);
    Setup { origin, ..Setup::new(1, listeners.into()) }.start()
}

// Every spelling that nginx serves as /login or /admin is counted by its rule; none is exempt.
#[test]
fn nginx_serves_nothing_uncounted() {
    let origin = Origin::start(Kind::Nginx);
    let policy = differential::guarded();
    let envoy = start(&policy, origin.port);
    for port in &envoy.ports {
        differential::check_spellings(&mut Client::connect(*port), Request::get);
    }
}

// The comparison works: under a policy that is wrong for nginx, one resource has several counts.
#[test]
fn a_wrong_policy_is_found() {
    let origin = Origin::start(Kind::Nginx);
    let mut policy = differential::policy();
    policy["escaped_slashes"] = json!("literal");
    let envoy = start(&policy, origin.port);
    assert!(differential::doubled("literal, bare, to nginx", envoy.ports[0], 7, 2_000) > 10);
}

#[test]
fn one_thing_has_one_count_at_every_origin() {
    for (seed, kind) in (1..).zip(Kind::ALL) {
        let origin = Origin::start(kind);
        let envoy = start(&differential::policy(), origin.port);
        for (part, name) in ["bare", "shipped"].into_iter().enumerate() {
            let surface = format!("Envoy, {name}, to {kind:?}");
            let seed = seed * 10 + part as u64;
            differential::check(&surface, envoy.ports[part], seed, REQUESTS * 4 / 5 / 6);
        }
    }
}
