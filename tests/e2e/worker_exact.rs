//! Exactness: however many clients race for one key, exactly the limit is allowed.

use std::thread;

use serde_json::{Value, json};
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

const CLIENTS: usize = 16;
const REQUESTS_EACH: usize = 12;

/// A window in which nothing is returned while a test runs.
const LONG: &str = "366d";

/// How many of the requests that `CLIENTS` connections race for `path` are allowed.
fn race(worker: &Workerd, path: &str, client_ip: &str) -> usize {
    let requests = || {
        let mut client = worker.client();
        let request = check_request("GET", path, client_ip);
        (0..REQUESTS_EACH).filter(|_| answer(&client.send(&request))["decision"] != "deny").count()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(requests)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client failed")).sum()
    })
}

fn rule(name: &str, quotas: Value) -> Value {
    let paths = [format!("/{name}")];
    json!({"name": name, "when": {"paths": paths}, "key": ["client_ip"], "quotas": quotas})
}

// Guards: two requests of one key that read the same count. The object must decide and write in one
// step, whatever the algorithm and its limit; and one key's denials must not touch another key.
#[test]
fn racing_clients_are_admitted_exactly_as_often_as_allowed() {
    let quotas: [(&str, u64, Value); 10] = [
        ("gcra-1", 1, json!({"algorithm": "gcra", "limit": 1})),
        ("gcra-50", 50, json!({"algorithm": "gcra", "limit": 50})),
        ("gcra-burst", 20, json!({"algorithm": "gcra", "limit": 50, "burst": 20})),
        ("token-bucket", 33, json!({"algorithm": "token-bucket", "limit": 33})),
        ("leaky-bucket", 33, json!({"algorithm": "leaky-bucket", "limit": 33})),
        ("leaky-queue", 7, json!({"algorithm": "leaky-queue", "limit": 7})),
        ("fixed-window", 100, json!({"algorithm": "fixed-window", "limit": 100})),
        ("sliding-window", 64, json!({"algorithm": "sliding-window", "limit": 64})),
        (
            "sliding-buckets",
            40,
            json!({"algorithm": "sliding-buckets", "limit": 40, "buckets": 60}),
        ),
        ("sliding-log", 30, json!({"algorithm": "sliding-log", "limit": 30})),
    ];
    let rules: Vec<Value> = (quotas.iter())
        .map(|(name, _, quota)| {
            let mut quota = quota.clone();
            quota["name"] = json!(name);
            quota["window"] = json!(LONG);
            rule(name, json!([quota]))
        })
        .collect();
    let worker = Setup::new(json!({"version": 1, "rules": rules})).start();
    for (name, allowed, _) in quotas {
        let admitted = race(&worker, &format!("/{name}"), "192.0.2.1");
        assert_eq!(u64::try_from(admitted), Ok(allowed), "{name}");
    }
    // A second client gets all of it.
    assert_eq!(race(&worker, "/gcra-50", "192.0.2.2"), 50);
    // The first one still has nothing.
    assert_eq!(race(&worker, "/gcra-50", "192.0.2.1"), 0);
}

// Guards: layered quotas of one key. Exactly the smaller limit is allowed, and the larger quota is
// charged for those only.
#[test]
fn layered_quotas_of_one_key_are_charged_together() {
    let quotas = json!([
        {"name": "large", "algorithm": "sliding-log", "limit": 100, "window": LONG},
        {"name": "small", "algorithm": "gcra", "limit": 9, "window": LONG},
    ]);
    let worker = Setup::new(json!({"version": 1, "rules": [rule("layered", quotas)]})).start();
    assert_eq!(race(&worker, "/layered", "192.0.2.1"), 9);
    let denied = answer(&worker.client().send(&check_request("GET", "/layered", "192.0.2.1")));
    assert_eq!(denied["violated"], json!(["small"]));
    let left = denied["headers"]["ratelimit"].as_str().expect("a ratelimit field");
    assert!(left.contains("\"large\";r=91;"), "{left}");
}

/// More time passes between two requests than a denial by several keys is remembered.
const FORGETFUL: &str = r#"
import Tollgate, { Limiter } from "./entry.mjs";
export { Limiter };
const realNow = Date.now;
let later = 0;
Date.now = () => realNow() + later;
export default class extends Tollgate {
  fetch(request) {
    later += 2_000;
    return super.fetch(request);
  }
}
"#;

// Guards: rules with different keys, so different objects. All or nothing applies across them: an
// object's charge is refunded when another denies, and the client's own count shows it.
#[test]
fn a_request_denied_by_one_key_is_charged_to_none() {
    let by_client = json!({"name": "client", "key": ["client_ip"], "quotas":
        [{"name": "client", "algorithm": "sliding-log", "limit": 10, "window": LONG}]});
    let by_header = json!({"name": "all", "key": [], "quotas":
        [{"name": "all", "algorithm": "sliding-log", "limit": 3, "window": LONG}]});
    let policy = json!({"version": 1, "rules": [by_client, by_header]});
    let worker = Setup::new(policy).front(FORGETFUL).start();
    let mut client = worker.client();
    let mut send = |ip: &str| answer(&client.send(&check_request("GET", "/", ip)));
    for _ in 0..3 {
        assert_eq!(send("192.0.2.1")["decision"], "allow");
    }
    for _ in 0..20 {
        let denied = send("192.0.2.1");
        assert_eq!(denied["decision"], "deny");
        assert_eq!(denied["violated"], json!(["all"]));
        let rules =
            json!([{"name": "client", "result": "allowed"}, {"name": "all", "result": "denied"}]);
        assert_eq!(denied["rules"], rules);
        // Twenty denials later the client's own quota still has seven.
        let left = denied["headers"]["ratelimit"].as_str().expect("a ratelimit field");
        assert!(left.starts_with("\"client\";r=7;"), "{left}");
    }
}
