//! The client under which a request is counted, in a real Envoy: the spoofing corpus, with any peer
//! that a case names.
//!
//! Invariant: nothing that a client writes makes it count as another client.

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::http2;
use tollgate_e2e::identity::KeyNames;
use tollgate_e2e::identity::format::{Group, corpus};
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_policy::{GivenKey, Surface, pk_text, plugin_hash_key};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// True when Envoy's own entry in the list changes nothing: proxies are identified by their
/// addresses.
fn knows_its_proxies(group: &Group) -> bool {
    group.settings.contains("x-forwarded-for") && group.settings.contains("trusted_proxies")
}

/// An Envoy with one listener for each group.
///
/// With `use_remote_address` the peer is the other end of the connection: without it Envoy uses the
/// last entry of X-Forwarded-For as the peer, even if a client wrote it. It also appends the peer
/// to that list, which `skip_xff_append` prevents.
fn start(groups: &[Group], appends: bool) -> Envoy {
    let listener = |(number, group): (usize, &Group)| {
        // A listener's name is unique, and lives as long as the test.
        let name = format!("group-{number}").leak();
        let mut listener = Listener::new(name, vec![tollgate(&group.policy(), "vm", As::Text)]);
        listener.manager = json!({"use_remote_address": true, "skip_xff_append": !appends});
        listener.behind_proxy_protocol()
    };
    Setup::new(1, groups.iter().enumerate().map(listener).collect()).start()
}

/// Runs every case; returns the number of cases.
fn run(groups: &[Group], appends: bool) -> usize {
    let envoy = start(groups, appends);
    let mut told = KeyNames::default();
    for (group, port) in groups.iter().zip(&envoy.ports) {
        let mut client = Client::connect_as(group.peer, *port);
        for case in &group.cases {
            let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
            let response = client.send(&case.headers.iter().fold(Request::get("/"), add));
            assert_eq!(response.status, 200, "line {}", case.line);
            told.record(case, &response.header("ratelimit").unwrap_or_default());
        }
    }
    told.ran()
}

// Every attempt to count as another client.
#[test]
fn the_corpus_of_spoofing() {
    let (groups, left_out) = corpus("envoy");
    assert_eq!((run(&groups, false), left_out), (65, 2));
}

// In the usual configuration: Envoy appends the peer to the list. Where proxies are identified by
// address nothing changes.
#[test]
fn the_corpus_holds_when_envoy_appends_the_peer() {
    let groups: Vec<Group> = corpus("envoy").0.into_iter().filter(knows_its_proxies).collect();
    assert_eq!(run(&groups, true), 29);
}

// The reason for `use_remote_address: true` in envoy.yaml: with Envoy's default, the client chooses
// the address of its "connection".
#[test]
fn only_use_remote_address_makes_the_connection_the_client() {
    let policy = json!({"version": 1, "rules": [{
        "name": "r", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h"}],
    }]});
    for (manager, second) in [(json!({"use_remote_address": true}), 429), (json!({}), 200)] {
        let mut listener = Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]);
        listener.manager = manager;
        let envoy = Setup::new(1, vec![listener]).start();
        let mut client = envoy.client();
        let mut as_if = |ip| client.send(&Request::get("/").header("x-forwarded-for", ip)).status;
        assert_eq!([as_if("1.2.3.4"), as_if("1.2.3.5")], [200, second]);
    }
}

/// The policy that reads only the address, so that the filter has no other reason to read headers.
fn by_address() -> serde_json::Value {
    json!({"version": 1, "rules": [{
        "name": "r", "key": ["client_ip"], "quotas": [{"limit": 1000, "window": "1h"}],
    }]})
}

/// Starts a manager with two workers, and sends `requests` to both.
fn after(manager: serde_json::Value, policy: &serde_json::Value, requests: &[Request]) -> Envoy {
    let mut listener = Listener::new("main", vec![tollgate(policy, "vm", As::Text)]);
    listener.manager = manager;
    let envoy = Setup::new(2, vec![listener]).start();
    for mut client in envoy.clients(8) {
        requests.iter().for_each(|request| assert_eq!(client.send(request).status, 200));
    }
    envoy
}

/// The gauge, and the number of warnings in the log.
fn seen_by(envoy: &Envoy) -> (u64, usize) {
    let warned = envoy.server.log().matches("a request came without X-Forwarded-For").count();
    (envoy.stat("wasmcustom.tollgate.unverified_addresses"), warned)
}

// Guards: a limit by address that any client can bypass, unseen by the operator; and an alarm for a
// manager that is safe.
#[test]
fn an_address_that_envoy_has_not_verified_is_noticed() {
    let plain = [Request::get("/")];
    let forwarded = [Request::get("/").header("x-forwarded-for", "203.0.113.9")];
    let hops = {
        let mut policy = by_address();
        policy["client_ip"] = json!({"source": "x-forwarded-for", "trusted_hops": 1});
        policy
    };
    let no_address = json!({"version": 1, "rules": [{
        "name": "r", "key": [{"header": "x-key"}], "quotas": [{"limit": 1000, "window": "1h"}],
    }]});
    let local = json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]});
    let elsewhere = json!([{"name": "xff", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.http.original_ip_detection.xff.v3.XffConfig",
        "xff_trusted_cidrs": {"cidrs": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]},
    }}]);
    let safe = [
        (json!({"use_remote_address": true}), by_address(), &plain),
        (json!({"use_remote_address": true}), by_address(), &forwarded),
        (json!({"use_remote_address": true, "skip_xff_append": true}), by_address(), &plain),
        (json!({"use_remote_address": true, "xff_num_trusted_hops": 1}), by_address(), &plain),
        (
            json!({"use_remote_address": true, "skip_xff_append": true, "internal_address_config": local}),
            by_address(),
            &plain,
        ),
        (json!({"original_ip_detection_extensions": elsewhere}), by_address(), &plain),
        (json!({}), by_address(), &forwarded),
        (json!({}), hops, &plain),
        (json!({}), no_address, &plain),
    ];
    for (manager, policy, requests) in safe {
        let shown = format!("{manager} {policy}");
        assert_eq!(seen_by(&after(manager, &policy, requests)), (0, 0), "{shown}");
    }
    for manager in [json!({}), json!({"xff_num_trusted_hops": 1})] {
        let what = format!("both workers see it, and one line says so: {manager}");
        let envoy = after(manager, &by_address(), &plain);
        // The log arrives later than the responses.
        wait_until(&what, READY_WITHIN, || (seen_by(&envoy) == (2, 1)).then_some(()));
    }
}

#[test]
fn an_address_is_verified_over_http2_and_once_the_policy_is_replaced() {
    let listener = |limit: u32, manager| {
        let policy = json!({"version": 1, "rules": [{
            "name": "r", "key": ["client_ip"], "quotas": [{"limit": limit, "window": "1h"}],
        }]});
        let mut listener = Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]);
        listener.manager = manager;
        listener
    };
    let first = listener(100, json!({}));
    let port = first.port;
    let mut setup = Setup::new(1, vec![first]);
    setup.dynamic = true;
    let mut envoy = setup.start();
    assert_eq!(http2::send(port, &Request::get("/")).response.status, 200);
    let gauge = |envoy: &Envoy| envoy.stat("wasmcustom.tollgate.unverified_addresses");
    assert_eq!(gauge(&envoy), 1);
    let safe = Listener { port, ..listener(101, json!({"use_remote_address": true})) };
    assert!(envoy.replace_listeners(&[safe]));
    assert_eq!(envoy.client().send(&Request::get("/")).status, 200);
    wait_until("the gauge goes down", READY_WITHIN, || (gauge(&envoy) == 0).then_some(()));
}

// Guards: a hash that changes with each start, so that no log can be searched for the customer that
// reports a denial.
#[test]
fn a_hash_key_makes_pk_the_same_in_every_envoy() {
    let policy = json!({"version": 1, "response": {"partition_key": true}, "rules": [{
        "name": "r", "key": [{"header": "x-key"}], "quotas": [{"limit": 10, "window": "1h"}],
    }]});
    let secret = "0123456789abcdef-of-a-test";
    let pk = |configuration: &serde_json::Value| {
        let listener = Listener::new("main", vec![tollgate(configuration, "vm", As::Text)]);
        let envoy = Setup::new(1, vec![listener]).start();
        let response = envoy.client().send(&Request::get("/").header("x-key", "a"));
        let field = response.header("ratelimit").expect("the field");
        let (_, pk) = field.split_once("pk=:").expect("the hash");
        pk.split_once(':').expect("its end").0.to_owned()
    };
    let keyed = json!({"policy": policy, "hash_key": secret});
    let mut compiled =
        tollgate_language::compile(&policy.to_string(), Surface::Envoy).expect("a policy");
    compiled.set_hash_key(plugin_hash_key(secret));
    let key = GivenKey::new(&compiled, "r", &["a".to_owned()]).expect("a key");
    let expected = pk_text(key.pk(&compiled));
    assert_eq!([pk(&keyed), pk(&keyed)], [expected.clone(), expected]);
    assert_ne!(pk(&policy), pk(&policy), "without one it is random");
}
