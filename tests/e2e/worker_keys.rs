//! An operator's actions on one client, in a real workerd: blocks and resets that survive crashes
//! and changes of the policy.
//!
//! A module in front of `entry.mjs` passes an operator's bytes to the key's object.

use std::thread;

use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};
use tollgate_policy::{GivenKey, Surface};
use tollgate_storage::{KeyOperation, KeyState};
use tollgate_test_support::hex;

/// `x-operate`: a key and a request for its object, in hexadecimal digits. `x-later` moves the
/// clock.
const OPERATOR: &str = r#"
import Tollgate, { Limiter, Metrics, Policies, Tenants } from "./entry.mjs";
export { Limiter, Metrics, Policies, Tenants };

const realNow = Date.now;
let later = 0;
Date.now = () => realNow() + later;

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (digits) => parseInt(digits, 16));
const hexOf = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");

async function nameOf(key) {
  const input = new Uint8Array(8 + key.length);
  input.set(key, 8);
  return hexOf(await crypto.subtle.digest("SHA-256", input));
}

export default class extends Tollgate {
  async fetch(request) {
    later = Number(request.headers.get("x-later") ?? 0);
    const operate = request.headers.get("x-operate");
    if (operate === null) return super.fetch(request);
    const [key, asked] = operate.split(" ").map(bytesOf);
    const reply = await this.env.LIMITER.getByName(await nameOf(key)).operate(asked);
    // As the admin API does: isolates learn by it that a refusal may have ended.
    const change = { rule: "each", tenant: null, pk: 0, before: "", after: "" };
    const row = { at_ms: Date.now(), act: "reset", actor: null, change };
    const call = JSON.stringify({ policy: { note_key: row } });
    await this.env.POLICIES.getByName("policy").call(new TextEncoder().encode(call));
    return new Response(hexOf(reply));
  }
}
"#;

fn document(limit: u64) -> String {
    let quota = |limit: u64| json!([{"name": "q", "limit": limit, "window": "366d", "algorithm": "fixed-window"}]);
    let rule = |name: &str, limit: u64| json!({"name": name, "key": ["client_ip"], "quotas": quota(limit)});
    json!({"version": 1, "rules": [rule("each", limit), rule("more", 1_000)]}).to_string()
}

/// Applies the operation to a client, under the rule `each` of a document.
fn operate(worker: &Workerd, document: &str, client: &str, operation: KeyOperation) -> KeyState {
    let policy = tollgate_language::compile(document, Surface::Worker).expect("a policy");
    let key = GivenKey::new(&policy, "each", &[client.to_owned()]).expect("a key");
    let mut asked = Vec::new();
    key.request(&policy, operation, &mut asked);
    let operate = format!("{} {}", hex(key.bytes()), hex(&asked));
    let reply = worker.client().send(&Request::get("/").header("x-operate", operate)).text();
    let digit = |i: usize| u8::from_str_radix(&reply[i..i + 2], 16).expect("digits");
    let bytes: Vec<u8> = (0..reply.len()).step_by(2).map(digit).collect();
    KeyState::read(&bytes).expect("a state")
}

/// The response after this many more milliseconds: longer than a denial is remembered.
fn ask(worker: &Workerd, client: &str, later_ms: u64) -> Value {
    let request = check_request("GET", "/", client).header("x-later", later_ms.to_string());
    answer(&worker.client().send(&request))
}

/// A time to block until, by the clock of this machine.
fn in_an_hour() -> Timestamp {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time");
    let ms = u64::try_from(since.as_millis()).expect("a time of this age");
    Timestamp::from_millis(ms + 3_600_000)
}

// Guards: a block that is lost: by a crash at once after it, in an object without other data, or by
// a changed quota; and one that affects another client.
#[test]
fn a_block_outlives_a_crash_and_ends_at_its_time() {
    let mut worker =
        Setup::new(document(5)).operated().binding("ADMIN_TOKEN", "secret").front(OPERATOR).start();
    let until = in_an_hour();
    let state = operate(&worker, &document(5), "192.0.2.1", KeyOperation::Block(until));
    assert_eq!(state.blocked_until, Some(until));
    worker.kill();
    worker.restart();
    let blocked = ask(&worker, "192.0.2.1", 0);
    assert_eq!(blocked["decision"], "deny");
    let rules =
        json!([{"name": "each", "result": "blocked"}, {"name": "more", "result": "allowed"}]);
    assert_eq!(blocked["rules"], rules);
    let wait = blocked["retry_after_ms"].as_u64().expect("a wait");
    assert!((3_000_000..=3_600_000).contains(&wait), "{wait}");
    assert_eq!(ask(&worker, "192.0.2.2", 0)["decision"], "allow", "another client");
    // From memory it is the same.
    let remembered = ask(&worker, "192.0.2.1", 0);
    assert_eq!((&remembered["decision"], &remembered["rules"][0]), (&json!("deny"), &rules[0]));
    assert_eq!(ask(&worker, "192.0.2.1", 3_500_000)["decision"], "deny");
    assert_eq!(ask(&worker, "192.0.2.1", 3_601_000)["decision"], "allow", "it is over");
    operate(&worker, &document(5), "192.0.2.1", KeyOperation::Unblock);
    assert_eq!(ask(&worker, "192.0.2.1", 2_000)["decision"], "allow", "ended before");
}

// Guards: a reset in the middle of a flood that allows more than a fresh quota, or that a crash
// undoes.
#[test]
fn a_reset_in_a_flood_admits_one_fresh_quota() {
    let mut worker =
        Setup::new(document(7)).operated().binding("ADMIN_TOKEN", "secret").front(OPERATOR).start();
    let flood = |worker: &Workerd| -> usize {
        thread::scope(|scope| {
            let send =
                || (0..40).filter(|_| ask(worker, "192.0.2.1", 0)["decision"] == "allow").count();
            let running: Vec<_> = (0..8).map(|_| scope.spawn(send)).collect();
            running.into_iter().map(|thread| thread.join().expect("a client")).sum()
        })
    };
    assert_eq!(flood(&worker), 7);
    let mut admitted = 0;
    thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&worker));
        operate(&worker, &document(7), "192.0.2.1", KeyOperation::Reset);
        admitted = flooding.join().expect("a flood");
    });
    // The request denied from memory is allowed now.
    admitted +=
        (0..20).filter(|n| ask(&worker, "192.0.2.1", 6_000 + n)["decision"] == "allow").count();
    assert_eq!(admitted, 7);
    operate(&worker, &document(7), "192.0.2.1", KeyOperation::Reset);
    worker.kill();
    worker.restart();
    let state = operate(&worker, &document(7), "192.0.2.1", KeyOperation::Describe);
    let policy = tollgate_language::compile(&document(7), Surface::Worker).expect("a policy");
    let set = policy.rules()[0].quota_sets(&policy).next().expect("quotas");
    assert_eq!(state.of(&set.to_stored()), None, "nothing is used");
    let more = GivenKey::new(&policy, "more", &["192.0.2.1".into()]).expect("a key");
    assert_eq!(more.rule, 1);
}

const ADMIN: &str = "/.well-known/tollgate/admin";

/// The response to an operator's request.
fn operator(worker: &Workerd, request: Request) -> (u16, Value) {
    let request = request.header("authorization", "Bearer secret");
    let reply = worker.client().send(&request.header("content-type", "application/json"));
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

// Guards: an operator that means another client than the one that requests count, or sees numbers
// that are not the client's; and a key that is returned in a response or is in the log.
#[test]
fn an_operator_explains_looks_resets_and_blocks() {
    let setup = Setup::new(document(3)).operated().binding("ADMIN_TOKEN", "secret");
    let worker = setup.binding("HASH_KEY", "a secret of this test").start();
    let ask = |client: &str| answer(&worker.client().send(&check_request("GET", "/", client)));
    let explain = || {
        let body = json!({"method": "GET", "path": "/", "client_ip": "2001:db8::1"});
        operator(&worker, Request::post(&format!("{ADMIN}/explain"), body.to_string()))
    };
    let state =
        |key: &str| operator(&worker, Request::get(&format!("{ADMIN}/keys?rule=each&key={key}")));
    let act = |what: &str, more: Value| {
        let mut body = json!({"rule": "each", "key": ["2001:DB8:0:0:7::"]});
        for (name, value) in more.as_object().expect("members") {
            body[name] = value.clone();
        }
        operator(&worker, Request::post(&format!("{ADMIN}/keys/{what}"), body.to_string())).0
    };
    for _ in 0..4 {
        ask("2001:db8::1");
    }
    // Explained twice, no unit is used; the same network is the same client.
    for _ in 0..2 {
        let (status, explained) = explain();
        assert_eq!(
            (status, &explained["decision"], &explained["status"]),
            (200, &json!("deny"), &json!(429))
        );
        let rule = &explained["rules"][0];
        assert_eq!(
            (&rule["name"], &rule["key"], &rule["result"]),
            (&json!("each"), &json!(["client_ip"]), &json!("denied"))
        );
        let (status, told) = state("2001:db8::ffff");
        assert_eq!(status, 200);
        let quota = &told["quotas"][0];
        assert_eq!(
            (&quota["used"], &quota["remaining"], &quota["limit"]),
            (&json!(3), &json!(0), &json!(3))
        );
        assert_eq!(told["blocked_until_ms"], json!(null));
        assert!(
            told["words"].as_str().is_some_and(|words| words.contains("3 of 3 used, 0 left")),
            "{told}"
        );
    }
    assert_eq!(act("reset", json!({})), 204);
    assert_eq!(state("2001:db8::1").1["words"], "nothing is used");
    assert_eq!(explain().1["decision"], "allow");
    let until = in_an_hour().since(Timestamp::ZERO).as_millis_ceil();
    assert_eq!(act("block", json!({"until_ms": until})), 204);
    let (_, explained) = explain();
    assert_eq!(
        (&explained["decision"], &explained["rules"][0]["result"]),
        (&json!("deny"), &json!("blocked"))
    );
    assert_eq!(state("2001:db8::1").1["blocked_until_ms"], until);
    assert_eq!(ask("2001:db8::1")["decision"], "deny");
    assert_eq!(ask("2001:db8:0:1::1")["decision"], "allow", "another network");
    assert_eq!(act("unblock", json!({})), 204);
    assert_eq!(explain().1["decision"], "allow");
    // The history shows it: the action, the client's hash, and the state before.
    let history = operator(&worker, Request::get(&format!("{ADMIN}/keys/history?limit=2"))).1;
    let acts: Vec<&Value> =
        history["changes"].as_array().expect("rows").iter().map(|it| &it["act"]).collect();
    assert_eq!(
        (acts, &history["next_before"]),
        (vec![&json!("unblock"), &json!("block")], &json!(2))
    );
    let last = &history["changes"][0];
    assert!(
        last["before"].as_str().is_some_and(|it| it.starts_with("blocked for another ")),
        "{last}"
    );
    assert_eq!((&last["after"], &last["rule"]), (&json!("q: 0 of 3 used, 3 left"), &json!("each")));
    assert_eq!(last["pk"], state("2001:db8::1").1["pk"]);
    let pk = last["pk"].as_str().expect("a hash").to_owned();
    let first = operator(&worker, Request::get(&format!("{ADMIN}/keys/history?before=2"))).1;
    assert_eq!(
        (&first["changes"][0]["act"], &first["next_before"]),
        (&json!("reset"), &json!(null))
    );
    assert!(!(history.to_string() + &first.to_string()).to_lowercase().contains("db8"));
    // Invalid requests.
    assert_eq!(state("here").0, 422);
    assert_eq!(act("block", json!({"until_ms": until + 367 * 86_400_000})), 422);
    assert_eq!(operator(&worker, Request::get(&format!("{ADMIN}/keys?rule=none&key=x"))).0, 404);
    let log = worker.log();
    assert!(
        log.contains(&format!("unblock rule=\"each\" pk={pk} "))
            && !log.to_lowercase().contains("db8"),
        "{log}"
    );
    // The line about the denial names the key by the same hash.
    assert!(log.contains(&format!(r#""pk":"{pk}""#)), "{log}");
}
