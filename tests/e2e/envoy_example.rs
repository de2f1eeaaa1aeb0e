//! The filter of `examples/proxy-wasm-filter`: what it does of its own, what its limiter refuses,
//! and that its limiter responds as the shipped filter does.
//!
//! That it limits as the shipped filter does is tested by the other files of this program, some of
//! which also run with the example in its place (`e2e_example` in xtask).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::process::{self, Server, TempDir};

use crate::envoy_server::{As, Envoy, Listener, Setup, envoy_bin, filter_wasm, tollgate};

/// The example, next to the module under test.
fn example_wasm() -> PathBuf {
    filter_wasm().with_file_name("example-proxy-wasm-filter.wasm")
}

/// The example with a policy and these lines of keys.
fn example(policy: &Value, keys: &str) -> Value {
    let mut filter = tollgate(policy, "example", As::Text);
    let vm = &mut filter["typed_config"]["config"]["vm_config"];
    vm["code"]["local"]["filename"] = json!(example_wasm());
    vm["configuration"] =
        json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": keys});
    filter
}

/// Five requests for a key of the plan gold, two for each other key, one without a key.
fn plans() -> Value {
    let rule = |name: &str, applies: &str, plan: &str, limit: u64| {
        json!({
            "name": name,
            applies: {"headers": {"x-plan": plan}},
            "key": [{"header": "x-api-key"}],
            "on_missing": "shared",
            "quotas": [{"limit": limit, "window": "1d"}],
        })
    };
    json!({"version": 1, "rules": [
        rule("gold", "when", "gold", 5),
        rule("free", "when", "free", 2),
        rule("none", "unless", "*", 1),
    ]})
}

fn start(filter: Value) -> Envoy {
    Setup::new(2, vec![Listener::new("main", vec![filter])]).start()
}

/// How many of ten requests pass; the others are denied.
fn passed(client: &mut Client, request: &Request) -> usize {
    let statuses: Vec<u16> = (0..10).map(|_| client.send(request).status).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

// Guards: a client that chooses its plan, and limits that do not see what the filter has set.
#[test]
fn a_client_has_the_limit_of_its_keys_plan() {
    let envoy = start(example(&plans(), "a gold\nb gold\nc free\n"));
    let mut client = envoy.client();
    let of = |key: &str| Request::get("/").header("x-api-key", key);
    for (key, limit) in [("a", 5), ("b", 5), ("c", 2)] {
        assert_eq!(passed(&mut client, &of(key).header("x-plan", "gold")), limit, "{key}");
    }
    assert_eq!(passed(&mut client, &Request::get("/").header("x-plan", "gold")), 1);
    for key in ["d", "", "a gold"] {
        let unknown = client.send(&of(key));
        assert_eq!((unknown.status, unknown.text().as_str()), (401, "unknown API key\n"), "{key}");
        assert_eq!(unknown.header("ratelimit"), None, "it was not counted");
    }
    assert_eq!((envoy.decisions("gold", "allowed"), envoy.decisions("gold", "denied")), (10, 10));
}

/// A response as text, without what differs between two of one filter.
fn shown(response: &Response) -> String {
    let fields = response.headers.iter().filter(|(name, _)| name != "date");
    let fields = fields.map(|(name, value)| format!("{name}: {}\n", value.escape_ascii()));
    format!("{}\n{}\n{}", response.status, fields.collect::<String>(), response.text())
}

// Guards: another response for the same request, because the host calls of the two differ.
#[test]
fn it_responds_with_the_bytes_of_the_shipped_filter() {
    let quota = |limit: u64| json!([{"limit": limit, "window": "1d", "algorithm": "fixed-window"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": [{"header": "x-key"}], "quotas": quota(2)},
        {
            "name": "other", "when": {"paths": ["/other"]}, "key": [], "quotas": quota(1),
            "action": {"deny": {"status": 503}},
        },
    ]});
    let grpc = Request::post("/a.B/C", "").header("content-type", "application/grpc");
    let requests = [
        Request::get("/").header("x-key", "a"),
        Request::get("/other").header("x-key", b"\xff\xfe"),
        grpc.header("x-key", "a"),
    ];
    let responses = |filter: Value| {
        let mut setup = Setup::new(1, vec![Listener::new("main", vec![filter])]);
        setup.clock_ns = Some(1_000_000_000);
        let envoy = setup.start();
        let mut client = envoy.client();
        let all = requests.iter().flat_map(|request| [request; 3]);
        all.map(|request| shown(&client.send(request))).collect::<Vec<_>>()
    };
    let shipped = responses(tollgate(&policy, "vm", As::Text));
    let responses = responses(example(&policy, ""));
    for (response, shipped) in responses.iter().zip(&shipped) {
        assert_eq!(response, shipped);
    }
    let statuses: Vec<&str> = responses.iter().filter_map(|text| text.lines().next()).collect();
    assert_eq!(statuses, ["200", "200", "429", "200", "503", "503", "200", "200", "200"]);
    assert!(responses[6].contains("\ngrpc-status: 8\n"), "{}", responses[6]);
}

// Guards: a request that should wait and whose body sends it on, and a call whose response traps.
#[test]
fn what_it_cannot_do_is_refused_by_name() {
    const WAITING: &str =
        "delays requests; a filter with the proxy-wasm SDK cannot hold the body of a request";
    const CALLS: &str = "the proxy-wasm SDK traps on the response to a call that it has not made";
    const BODIES: &str = "this one does not read the bodies of responses";
    let rule = |more: Value| {
        let mut rule = json!({"name": "r", "key": [], "quotas": [{"limit": 1, "window": "1s"}]});
        rule.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
        json!({"version": 1, "rules": [rule]})
    };
    let delay = json!({"action": {"delay": {"max": "1s"}}});
    let place =
        json!({"concurrency": {"limit": 1, "max_age": "9s"}, "action": {"delay": {"max": "1s"}}});
    let queue = json!({"quotas": [{"limit": 1, "window": "1s", "algorithm": "leaky-queue"}]});
    let body = json!({"cost": {"estimate": 1, "max": 2, "actual": {"json": ["/n"]}}});
    let fleet = json!({"cluster": "a", "path": "/l", "token": "t", "secret": "0123456789abcdef"});
    for (policy, place, why) in [
        (rule(delay), "rules[0]: ", WAITING),
        (rule(place), "rules[0]: ", WAITING),
        (rule(queue), "rules[0]: ", WAITING),
        (rule(body), "rules[0].cost.actual: ", BODIES),
        (json!({"policy": rule(json!({"scope": "fleet"})), "fleet": fleet}), "fleet: ", CALLS),
        (
            json!({"policy": rule(json!({})), "policy_from": {"cluster": "a", "path": "/p"}}),
            "policy_from: ",
            CALLS,
        ),
    ] {
        let setup = Setup::new(1, vec![Listener::new("main", vec![example(&policy, "")])]);
        let output = setup.validate();
        assert!(!output.status.success(), "{policy} is accepted");
        let log = String::from_utf8_lossy(&output.stderr);
        let is_it = |line: &str| line.contains(&format!("tollgate: {place}")) && line.contains(why);
        assert!(log.lines().any(is_it), "{place}{why} is not in\n{log}");
    }
}

/// `envoy.yaml` of the example, with other places of its module and its port.
fn shipped() -> (Server, TempDir, u16) {
    const FILE: &str = include_str!("../../examples/proxy-wasm-filter/envoy.yaml");
    let (dir, port) = (TempDir::new("example"), process::free_port());
    let places = [
        ("target/tollgate/example-proxy-wasm-filter.wasm", example_wasm().display().to_string()),
        ("port_value: 10000", format!("port_value: {port}")),
    ];
    let text = places.iter().fold(FILE.to_owned(), |text, (place, new)| {
        assert_eq!(text.matches(place).count(), 1, "{place}");
        text.replace(place, new)
    });
    let path = dir.path().join("envoy.yaml");
    fs::write(&path, text).expect("no file");
    let mut command = Command::new(envoy_bin());
    command.arg("-c").arg(path).args(["--concurrency", "2", "--use-dynamic-base-id"]);
    let mut server = Server::start(command, dir.path().join("envoy.log"));
    server.wait_for_port(port);
    (server, dir, port)
}

// Guards: a configuration that readers copy and that Envoy refuses, or that limits otherwise than
// the README says.
#[test]
fn its_envoy_yaml_works_as_its_readme_says() {
    let (_server, _dir, port) = shipped();
    let mut client = Client::connect(port);
    let of = |key: &str| Request::get("/").header("x-api-key", key);
    assert_eq!(passed(&mut client, &of("key-of-ada")), 5);
    assert_eq!(passed(&mut client, &of("key-of-bob")), 2);
    assert_eq!(passed(&mut client, &Request::get("/")), 1);
    assert_eq!(client.send(&of("key-of-eve")).status, 401);
    let denied = client.send(&of("key-of-ada"));
    assert_eq!(denied.header("ratelimit-policy").as_deref(), Some("\"gold\";q=5;w=60"));
    assert!(denied.header("retry-after").is_some());
}
