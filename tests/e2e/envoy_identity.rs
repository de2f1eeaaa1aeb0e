//! Who is counted, in a real Envoy: the corpus of spoofing, with any peer that a case names.
//!
//! Invariant: what a client writes itself never makes it somebody else.

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::identity::Told;
use tollgate_e2e::identity::format::{Group, corpus};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// True when Envoy's own entry in the list changes nothing: proxies are known by their addresses.
fn knows_its_proxies(group: &Group) -> bool {
    group.settings.contains("x-forwarded-for") && group.settings.contains("trusted_proxies")
}

/// An Envoy with one listener for each group.
///
/// `use_remote_address` is what makes a peer of the connection's other end: without it Envoy takes
/// the last entry of X-Forwarded-For for the peer, whoever wrote it. It also appends the peer to
/// that list, which `skip_xff_append` stops.
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

/// Runs every case; gives how many ran.
fn run(groups: &[Group], appends: bool) -> usize {
    let envoy = start(groups, appends);
    let mut told = Told::default();
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

// Every attempt to be somebody else.
#[test]
fn the_corpus_of_spoofing() {
    let (groups, left_out) = corpus("envoy");
    assert_eq!((run(&groups, false), left_out), (65, 2));
}

// As most run it: Envoy appends the peer to the list. Where proxies are known by address nothing
// changes.
#[test]
fn the_corpus_holds_when_envoy_appends_the_peer() {
    let groups: Vec<Group> = corpus("envoy").0.into_iter().filter(knows_its_proxies).collect();
    assert_eq!(run(&groups, true), 29);
}

// Why envoy.yaml says `use_remote_address: true`: with Envoy's default the "connection" is whoever
// the client says.
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
