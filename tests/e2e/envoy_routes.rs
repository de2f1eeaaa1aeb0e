//! Several policies of one filter: a route names its own in its metadata.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

fn policy(limit: u64) -> Value {
    json!({"version": 1, "rules": [
        {"name": "r", "key": [{"header": "x-key"}], "quotas": [
            {"limit": limit, "window": "1d", "algorithm": "sliding-log"},
        ]},
    ]})
}

/// Routes by the first segment of the path, each with its metadata.
fn start(workers: u32, configuration: &Value, form: As, routes: &[(&str, Value)]) -> Envoy {
    let route = |(prefix, named): &(&str, Value)| {
        json!({
            "match": {"prefix": prefix},
            "direct_response": {"status": 200, "body": {"inline_string": "hello\n"}},
            "metadata": {"filter_metadata": {"tollgate": named}},
        })
    };
    let mut listener = Listener::new("main", vec![tollgate(configuration, "vm", form)]);
    listener.routes = routes.iter().map(route).collect();
    Setup::new(workers, vec![listener]).start()
}

fn statuses(client: &mut Client, path: &str, count: usize) -> Vec<u16> {
    let request = Request::get(path).header("x-key", "one");
    (0..count).map(|_| client.send(&request).status).collect()
}

// Guards: a route that has the limits of another one, or counts with it though it has its own
// policy; and one that names a missing policy, which must never be without limits.
#[test]
fn a_route_has_the_policy_that_it_names() {
    let configuration = json!({
        "policy": policy(2),
        "policies": {"partners": policy(5), "staff": policy(3)},
    });
    let routes = [
        ("/partners", json!({"policy": "partners"})),
        ("/staff", json!({"policy": "staff", "other": 1})),
        ("/unknown", json!({"policy": "partner"})),
        ("/empty", json!({"policy": ""})),
        ("/number", json!({"policy": 7})),
        ("/object", json!({"policy": {"partners": true}})),
        ("/other", json!({"other": "partners"})),
        ("/", json!({})),
    ];
    let envoy = start(2, &configuration, As::Struct, &routes);
    let mut clients = envoy.clients(4);
    for (path, limit) in [("/staff", 3), ("/", 2), ("/partners", 5)] {
        let asked: Vec<u16> =
            clients.iter_mut().flat_map(|client| statuses(client, path, 2)).collect();
        let passed = asked.iter().filter(|status| **status == 200).count();
        assert_eq!(passed, limit, "{path}: {asked:?}");
        assert!(asked.iter().all(|status| [200, 429].contains(status)), "{path}: {asked:?}");
    }
    let client = &mut clients[0];
    assert_eq!(statuses(client, "/other", 1), [429], "it names none, so its policy is the usual");
    for path in ["/unknown", "/empty", "/number", "/object"] {
        assert_eq!(statuses(client, path, 2), [500, 500], "{path}");
    }
    let rule = "wasmcustom.tollgate.decisions.plugin=tollgate";
    let stats = envoy.counted();
    for (plugin, allowed, denied) in [("", 2, 7), ("_partners", 5, 3), ("_staff", 3, 5)] {
        for (result, count) in [("result=allowed", allowed), ("quota=r.result=denied", denied)] {
            let line = format!("{rule}{plugin}.rule=r.{result}: {count}");
            assert!(stats.lines().any(|it| it == line), "{line} is not in\n{stats}");
        }
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 8);
    // The shipped alert uses this one.
    assert_eq!(envoy.stat("wasmcustom.tollgate.failed_requests.on_failure=deny"), 8);
    assert_eq!(envoy.stat("wasmcustom.tollgate.requests.answer=refused"), 7 + 3 + 5 + 8);
    let said = envoy.server.log().matches("names a policy that is not among").count();
    assert!((1..=2).contains(&said), "each worker says it once: {said}");
}

// Guards: requests of one policy that wait in the line of another, whose rules are the same.
#[test]
fn lines_of_policies_are_apart() {
    let slow = json!({"version": 1, "rules": [{
        "name": "r", "key": [],
        "quotas": [{"limit": 1, "window": "1m", "burst": 3, "algorithm": "leaky-queue"}],
        "action": {"delay": {"max": "5m"}},
    }]});
    let configuration = json!({"policy": slow, "policies": {"partners": slow}});
    let routes = [("/partners", json!({"policy": "partners"})), ("/", json!({}))];
    let envoy = start(1, &configuration, As::Text, &routes);
    assert_eq!(statuses(&mut envoy.client(), "/", 1), [200]);
    let mut waits = envoy.client();
    waits.start(&Request::get("/")).expect("it is sent");
    process::wait_until("a request waits", process::READY_WITHIN, || {
        (envoy.stat("wasmcustom.tollgate.waiting") == 1).then_some(())
    });
    // Behind the other it would wait for a minute.
    let mut partner = envoy.client();
    partner.start(&Request::get("/partners")).expect("it is sent");
    process::wait_until("the partner is served", process::READY_WITHIN, || {
        partner.has_answer().then_some(())
    });
    assert_eq!(partner.finish(false).expect("an answer").status, 200);
    assert!(!waits.has_answer());
}
