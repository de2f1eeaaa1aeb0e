//! Requests of several keys, one of which denies them, while objects are far away.
//!
//! Invariant: a request that a client's own key denies takes nothing from the counts that it shares
//! with others, not even for a moment.

use std::thread;
use std::time::Duration;

use serde_json::json;
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, Workerd, answer};

/// An object that is 20 ms away.
const FAR: &str = r#"
import worker, { Limiter as Near } from "./entry.mjs";
export default worker;
const travel = () => new Promise((resolve) => setTimeout(resolve, 20));
async function far(call) {
  await travel();
  const reply = call();
  await travel();
  return reply;
}
export class Limiter extends Near {
  check(request) { return far(() => super.check(request)); }
  refund(request, reply) { return far(() => super.refund(request, reply)); }
}
"#;

fn decision(worker: &Workerd, client: &str) -> String {
    let body = json!({"method": "POST", "path": "/login", "client_ip": client});
    let reply = answer(&worker.client().send(&Request::post("/check", body.to_string())));
    reply["decision"].as_str().expect("a decision").to_owned()
}

// Guards: one address that locks all others out of a shared count, with requests that its own quota
// denies.
#[test]
fn a_flood_that_its_own_key_refuses_crowds_nobody_out() {
    let quota =
        |limit: u64| json!([{"limit": limit, "window": "366d", "algorithm": "fixed-window"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": quota(1)},
        {"name": "all", "key": [], "quotas": quota(5)},
    ]});
    let worker = &Setup::new(&policy).front(FAR).start();
    assert_eq!(decision(worker, "192.0.2.66"), "allow");
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(decision(worker, "192.0.2.66"), "deny");
                }
            });
        }
        for innocent in 1..=4 {
            thread::sleep(Duration::from_millis(60));
            assert_eq!(decision(worker, &format!("198.51.100.{innocent}")), "allow");
        }
    });
    assert_eq!(decision(worker, "198.51.100.5"), "deny", "all five are used");
}

/// Objects that never respond.
const SILENT: &str = r#"
import worker, { Limiter as Real } from "./entry.mjs";
export default worker;
export class Limiter extends Real {
  check() { return new Promise(() => setTimeout(() => {}, 60_000)); }
}
"#;

// Guards: a request that waits for each silent object separately, or for one repeatedly. There are
// two rounds at most: the client's count, then the shared one.
#[test]
fn silent_objects_are_waited_for_in_two_rounds() {
    let quota = json!([{"limit": 1, "window": "366d"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": quota},
        {"name": "all", "key": [], "quotas": quota},
    ]});
    // Three times as long would exceed the client's time-out.
    let setup = Setup::new(&policy).binding("OBJECT_TIMEOUT_MS", 7_500);
    let worker = setup.front(SILENT).start();
    assert_eq!(decision(&worker, "192.0.2.1"), "allow");
}
