//! Rules that deny without counting, in the Worker: no object is called.

use serde_json::{Value, json};
use tollgate_e2e::workerd::{Setup, answer, check_request};

/// Objects that answer no call.
const BROKEN: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
export default Tollgate;
export class Limiter extends Real {}
for (const name of Object.getOwnPropertyNames(Real.prototype)) {
  if (name === "constructor") continue;
  Limiter.prototype[name] = () => {
    throw new Error("called");
  };
}
"#;

// Guards: a denial that costs a call, or that depends on an object.
#[test]
fn a_rule_denies_without_an_object() {
    let policy = json!({"version": 1, "on_failure": "deny", "rules": [
        {"name": "blocked", "deny": true, "when": {"client_cidrs": ["192.0.2.0/24"]}},
        {"name": "law", "deny": {"status": 451, "body": "not here"}, "when": {"countries": ["XX"]}},
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "366d"}]},
    ]});
    let worker = Setup::new(policy).front(BROKEN).start();
    let mut client = worker.client();
    let mut ask = |ip: &str| answer(&client.send(&check_request("GET", "/", ip)));
    let denied: Value = ask("192.0.2.1");
    assert_eq!((&denied["decision"], &denied["status"]), (&json!("deny"), &json!(403)));
    assert_eq!(denied["rules"], json!([{"name": "blocked", "result": "denied"}]));
    assert_eq!((&denied["violated"], &denied["retry_after_ms"]), (&json!([]), &Value::Null));
    assert_eq!(denied["headers"], json!({"cache-control": "no-store"}));
    assert_eq!(denied["content_type"], "application/problem+json");
    assert!(denied["body"].as_str().is_some_and(|body| body.contains("denied-by-rule")));
    let other = ask("198.51.100.1");
    assert_eq!(other["status"], 503, "a request that counts needs its object: {other}");
    assert_eq!(other["rules"], json!([{"name": "each", "result": "failed"}]));
}
