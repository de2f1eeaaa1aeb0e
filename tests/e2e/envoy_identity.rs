//! Who is counted, in a real Envoy: the corpus of spoofing, and users by what jwt_authn verified.
//!
//! Invariant: what a client writes itself never makes it somebody else.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

const CORPUS: &str = include_str!("../identity/spoofing.txt");

/// Cases under one `settings:` and one `peer:` line.
struct Group {
    settings: Value,
    peer: Ipv4Addr,
    cases: Vec<Case>,
}

struct Case {
    line: usize,
    headers: Vec<(String, String)>,
    client: String,
}

/// The corpus with its peers on the loopback interface, and the number of cases left out.
///
/// Envoy sees the real end of a connection, and all of 127/8 is ours to connect from: so the trusted
/// network 10/8 becomes 127/9, and the stranger 203.0.113.9 becomes 127.200.0.9, wherever they stand. 127.0.0.1
/// itself is avoided: for that peer alone Envoy appends the machine's own address to the list.
fn corpus() -> (Vec<Group>, usize) {
    let (mut groups, mut settings, mut peer, mut left_out) = (vec![], "".into(), None, 0);
    for (number, line) in (1..).zip(CORPUS.lines()) {
        let line = on_loopback(line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(text) = line.strip_prefix("settings: ") {
            settings = text.to_owned();
        } else if let Some(text) = line.strip_prefix("peer: ") {
            peer = text.parse().ok();
            if let Some(peer) = peer {
                let settings = serde_json::from_str(&settings).expect("settings are JSON");
                groups.push(Group { settings, peer, cases: vec![] });
            }
        } else if peer.is_none() {
            left_out += 1; // an IPv6 peer: there is only one such loopback address
        } else {
            groups.last_mut().expect("a peer").cases.push(Case::read(number, &line));
        }
    }
    (groups, left_out)
}

fn on_loopback(line: &str) -> String {
    let mut out = String::new();
    for piece in line.replace("203.0.113.9", "127.200.0.9").split_inclusive("10.") {
        let before = piece.strip_suffix("10.");
        match before.filter(|text| !text.ends_with(|c: char| c.is_ascii_digit() || c == '.')) {
            Some(before) => out.extend([before, "127."]),
            None => out.push_str(piece),
        }
    }
    out.replace("127.0.0.0/8", "127.0.0.0/9").replace("127.0.0.1", "127.99.0.1")
}

impl Case {
    fn read(line: usize, text: &str) -> Self {
        let (headers, client) = text.split_once("=>").expect("a case");
        let headers = headers.trim().split(" | ").filter(|header| *header != "-");
        let pair = |header: &str| {
            let (name, value) = header.split_once(": ").expect("a header");
            (name.to_owned(), value.trim().to_owned())
        };
        Self { line, headers: headers.map(pair).collect(), client: client.trim().to_owned() }
    }

    fn request(&self) -> Request {
        let add = |request: Request, (name, value): &(String, String)| request.header(name, value);
        self.headers.iter().fold(Request::get("/"), add)
    }
}

impl Group {
    /// A rule for each expected client, named after it, which applies to that client alone.
    fn policy(&self) -> Value {
        let mut clients: Vec<&str> = self.cases.iter().map(|case| case.client.as_str()).collect();
        clients.sort_unstable();
        clients.dedup();
        let rule = |client: &str| {
            let whole = if client.contains(':') { 128 } else { 32 };
            json!({
                "name": client,
                "when": {"client_cidrs": [format!("{client}/{whole}")]},
                "key": ["client_ip"],
                "quotas": [{"limit": 1000, "window": "1h"}],
            })
        };
        let mut client_ip = self.settings.clone();
        client_ip["ipv6_prefix"] = json!(128);
        let rules: Vec<Value> = clients.into_iter().map(rule).collect();
        json!({"version": 1, "client_ip": client_ip, "response": {"partition_key": true}, "rules": rules})
    }

    /// True when Envoy's own entry in the list changes nothing: proxies are known by their addresses.
    fn knows_its_proxies(&self) -> bool {
        self.settings["source"] == "x-forwarded-for" && self.settings["trusted_proxies"].is_array()
    }
}

/// An Envoy with one listener for each group.
///
/// `use_remote_address` is what makes a peer of the connection's other end: without it Envoy takes the last
/// entry of X-Forwarded-For for the peer, whoever wrote it. It also appends the peer to that list, which
/// `skip_xff_append` stops.
fn start(groups: &[Group], appends: bool) -> Envoy {
    let listener = |(number, group): (usize, &Group)| {
        let name = format!("group-{number}").leak(); // a listener's name is unique, and lives as long as the test
        let mut listener = Listener::new(name, vec![tollgate(&group.policy(), "vm", As::Text)]);
        listener.manager = json!({"use_remote_address": true, "skip_xff_append": !appends});
        listener
    };
    Setup::new(1, groups.iter().enumerate().map(listener).collect()).start()
}

/// The partition key in the answer, and the only quota it names.
fn told(response: &Response) -> (String, String) {
    let field = response.header("ratelimit").unwrap_or_default();
    let mut parts = field.split(';').map(|part| part.trim_matches('"').to_owned());
    let name = parts.next().unwrap_or_default();
    (name, parts.find(|part| part.starts_with("pk=")).unwrap_or_default())
}

/// Runs every case; gives how many ran. The same client has the same partition key in all of them, and
/// another has another.
fn check(groups: &[Group], appends: bool) -> usize {
    let envoy = start(groups, appends);
    let (mut keys, mut ran) = (BTreeMap::<String, String>::new(), 0);
    for (group, port) in groups.iter().zip(&envoy.ports) {
        let mut client = Client::connect_from(group.peer, *port);
        for case in &group.cases {
            let response = client.send(&case.request());
            let (name, key) = told(&response);
            assert_eq!((response.status, &name), (200, &case.client), "line {}", case.line);
            let known = keys.entry(name).or_insert_with(|| key.clone());
            assert_eq!(*known, key, "line {}", case.line);
            ran += 1;
        }
    }
    let mut distinct: Vec<&String> = keys.values().collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), keys.len(), "two clients are counted as one");
    ran
}

// Every attempt to be somebody else, on real connections from several addresses.
#[test]
fn the_corpus_of_spoofing() {
    let (groups, left_out) = corpus();
    let ran = check(&groups, false);
    assert_eq!(left_out, 1, "only the case with an IPv6 peer cannot run here");
    assert!(ran > 50, "only {ran} cases ran");
    println!("{ran} cases of the corpus ran, {left_out} with an IPv6 peer was left out");
}

// As most run it: Envoy appends the peer to the list. Where proxies are known by address nothing changes.
#[test]
fn the_corpus_holds_when_envoy_appends_the_peer() {
    let groups: Vec<Group> = corpus().0.into_iter().filter(Group::knows_its_proxies).collect();
    let ran = check(&groups, true);
    assert!(ran > 25, "only {ran} cases ran");
}

// Why envoy.yaml says `use_remote_address: true`: with Envoy's default the "connection" is whoever the client says.
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
