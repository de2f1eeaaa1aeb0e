//! Penalties in a real Envoy: racing workers start each of them once.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};

use crate::envoy_server::Setup;

const KEYS: usize = 1_000;
const DAY: u64 = 86_400;

fn retry_after(reply: &Response) -> u64 {
    reply.header("retry-after").expect("a wait").parse().expect("seconds")
}

// Guards: two workers that deny at once and take two steps; a denial whose penalty is lost with a
// race; and a wait that is not the end of the penalty. The quota alone would deny for a day.
#[test]
fn workers_that_deny_at_once_take_one_step() {
    let quota = json!({"limit": 2, "window": "1d", "penalty": ["2d", "9d"]});
    let policy = json!({"version": 1, "rules": [
        {"name": "shared", "key": [], "quotas": [{"limit": 1_000_000, "window": "1d"}]},
        {"name": "each", "key": [{"header": "x-key"}], "quotas": [quota], "capacity": 65_536}]});
    let envoy = Setup::policy(4, &policy).start();
    let mut clients = envoy.clients(8);
    for round in 0..2 {
        for key in 0..KEYS {
            let request = Request::get("/").header("x-key", format!("key-{key}"));
            for client in &mut clients {
                client.start(&request).expect("Envoy takes the request");
            }
            let replies: Vec<Response> =
                clients.iter_mut().map(|c| c.finish(false).expect("Envoy answers")).collect();
            let admitted = replies.iter().filter(|reply| reply.status == 200).count();
            assert_eq!(admitted, if round == 0 { 2 } else { 0 }, "{key}");
            for denied in replies.iter().filter(|reply| reply.status != 200) {
                let wait = retry_after(denied);
                if round == 0 && wait == 1 {
                    continue; // its worker read the clock before the charge that it met: no offence
                }
                // A worker that is a moment behind the one that started it counts a second more.
                assert!(DAY < wait && wait <= 2 * DAY + 1, "{key}: {wait} s, the first step");
            }
        }
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0, "no try was exhausted");
    let decisions = |result: &str| {
        let rule = "wasmcustom.tollgate.decisions.plugin=tollgate.rule=each";
        envoy.stat(&format!("{rule}.{result}"))
    };
    let keys = u64::try_from(KEYS).expect("a number");
    let denied = decisions("quota=each.result=penalised") + decisions("quota=each.result=denied");
    assert_eq!((decisions("result=allowed"), denied), (2 * keys, 14 * keys));
    let denied = envoy.client().send(&Request::get("/").header("x-key", "key-0"));
    let body: Value = serde_json::from_slice(&denied.body).expect("a problem");
    let kind = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
    assert_eq!((&body["type"], &body["violated-policies"]), (&json!(kind), &json!(["each"])));
}
