//! Denials without a call, in a real workerd: few requests of a flood reach an object, and no
//! request is denied from memory that an object would allow.
//!
//! A module in front of `entry.mjs` counts the calls, and is the platform's clock.

use std::thread;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::workerd::{Setup, Workerd, answer};

/// `x-calls`: the number of objects' calls while the request was decided. `x-at` is the time.
const COUNTING: &str = r#"
import Tollgate, { Limiter } from "./entry.mjs";
export { Limiter };

const realNow = Date.now;
let calls = 0;
let now;
Date.now = () => now ?? realNow();

const counting = (objects) => ({
  getByName(name) {
    const object = objects.getByName(name);
    return {
      check: (request) => (calls++, object.check(request)),
      refund: (request, reply) => (calls++, object.refund(request, reply)),
    };
  },
});

export default class extends Tollgate {
  constructor(ctx, env) {
    super(ctx, { ...env, LIMITER: counting(env.LIMITER) });
  }

  async fetch(request) {
    const at = request.headers.get("x-at");
    now = at === null ? undefined : Number(at);
    if (request.headers.has("x-count")) return new Response(String(calls));
    const before = calls;
    const response = await super.fetch(request);
    response.headers.set("x-calls", String(calls - before));
    return response;
  }
}
"#;

/// A quiet moment, in milliseconds since 1970.
const START: u64 = 1_780_000_000_000;

fn quota(name: &str, limit: u64, window: &str) -> Value {
    json!([{"name": name, "limit": limit, "window": window, "algorithm": "fixed-window"}])
}

fn start(rules: Value) -> Workerd {
    let policy = json!({"version": 1, "rules": rules});
    Setup::new(policy).front(COUNTING).files_in_memory().start()
}

/// All calls so far.
fn calls(worker: &Workerd) -> usize {
    let count = worker.client().send(&Request::get("/").header("x-count", "yes"));
    count.text().parse().expect("a number")
}

/// A request for `/check`, with a path and headers.
fn described(path: &str, headers: Value) -> Request {
    let body = json!({"method": "GET", "path": path, "headers": headers});
    Request::post("/check", body.to_string())
}

/// The response at a time, and the number of calls that it took.
fn ask(client: &mut Client, request: Request, ms: u64) -> (Value, usize) {
    let response = client.send(&request.header("x-at", (START + ms).to_string()));
    let calls = response.header("x-calls").expect("a count").parse().expect("a number");
    (answer(&response), calls)
}

/// Sends `each` requests for each of the keys, on several connections at once; returns how many
/// were allowed.
fn flood(worker: &Workerd, keys: usize, each: usize) -> usize {
    const CONNECTIONS: usize = 16;
    thread::scope(|scope| {
        let of_connection = |connection: usize| {
            let mut client = worker.client();
            let mut admitted = 0;
            for n in 0..keys * each / CONNECTIONS {
                let key = (n * CONNECTIONS + connection) % keys;
                let request = described("/", json!({"x-key": key.to_string()}));
                admitted += usize::from(answer(&client.send(&request))["decision"] == "allow");
            }
            admitted
        };
        let running: Vec<_> = (0..CONNECTIONS)
            .map(|connection| scope.spawn(move || of_connection(connection)))
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a connection")).sum()
    })
}

// Guards: a flood that costs a call for each request. In addition to the allowed ones at most one
// in a hundred reaches an object, whether units are returned one by one or not at all.
#[test]
fn of_a_flood_few_requests_reach_an_object() {
    for (algorithm, limit, window, keys, each) in [
        ("gcra", 20, "1s", 1, 12_800),
        ("fixed-window", 20, "1s", 1, 12_800),
        ("fixed-window", 1, "366d", 1_000, 32),
    ] {
        let quota = json!([{"limit": limit, "window": window, "algorithm": algorithm}]);
        let worker =
            start(json!([{"name": "each", "key": [{"header": "x-key"}], "quotas": quota}]));
        let admitted = flood(&worker, keys, each);
        let (calls, sent) = (calls(&worker), keys * each);
        println!("{algorithm}, {keys} keys: {sent} sent, {admitted} admitted, {calls} calls");
        assert!(calls >= admitted && (calls - admitted) * 100 <= sent, "{algorithm} {keys}");
        assert!(keys == 1 || admitted == keys, "{admitted}");
    }
}

/// Objects that respond 300 ms late after a request for `/slow`, and count their calls and writes.
const SLOW: &str = r#"
import Tollgate, { Limiter as Shipped } from "./entry.mjs";

const counts = { calls: 0, rows: 0 };
let late = 0;

export class Limiter extends Shipped {
  constructor(ctx, env) {
    super(ctx, env);
    const { storage } = ctx;
    const exec = (...query) => {
      const cursor = storage.sql.exec(...query);
      counts.rows += cursor.rowsWritten;
      return cursor;
    };
    Object.defineProperty(this, "ctx", { value: { storage: { sql: { exec }, setAlarm: (at) => storage.setAlarm(at) } } });
  }

  async check(request) {
    counts.calls++;
    await new Promise((wake) => setTimeout(wake, late));
    return super.check(request);
  }
}

export default class extends Tollgate {
  async fetch(request) {
    if (!request.url.endsWith("/slow")) return super.fetch(request);
    late = 300;
    return Response.json(counts);
  }
}
"#;

// Guards: a flood of fresh keys that reopens an exhausted count. Each time that a denial expires,
// one request checks it again, beginning with the object that denied; the others are denied
// meanwhile, so slow objects do not get all calls at once, are not given up, and write nothing.
#[test]
fn a_flood_of_fresh_keys_at_slow_objects_opens_nothing() {
    const AT_ONCE: usize = 64;
    const EACH: usize = 40;
    let policy = json!({"version": 1, "on_failure": "allow", "rules": [
        {"name": "each", "key": [{"header": "x-key"}], "quotas": quota("each", 9, "1h")},
        {"name": "site", "key": [], "quotas": [{"limit": 1, "window": "366d", "algorithm": "sliding-log"}]},
    ]});
    let worker = Setup::new(policy).front(SLOW).files_in_memory().start();
    let send = |client: &mut Client, key: &str| {
        let answer = answer(&client.send(&described("/", json!({"x-key": key}))));
        answer["decision"].as_str().expect("a decision").to_owned()
    };
    let mut first = worker.client();
    assert_eq!((send(&mut first, "a"), send(&mut first, "b")), ("allow".into(), "deny".into()));
    let counts = || -> Value { answer(&worker.client().send(&Request::get("/slow"))) };
    let before = counts();
    thread::scope(|scope| {
        for connection in 0..AT_ONCE {
            let (worker, send) = (&worker, &send);
            scope.spawn(move || {
                let mut client = worker.client();
                for n in 0..EACH {
                    assert_eq!(send(&mut client, &format!("{connection}-{n}")), "deny");
                    thread::sleep(std::time::Duration::from_millis(100));
                }
            });
        }
    });
    let after = counts();
    let more = |name: &str| {
        after[name].as_u64().expect("a count") - before[name].as_u64().expect("a count")
    };
    println!("{} denied, {} calls, {} rows", AT_ONCE * EACH, more("calls"), more("rows"));
    assert_eq!(more("rows"), 0, "a denial writes nothing");
    assert!(more("calls") * 20 <= (AT_ONCE * EACH) as u64, "{}", more("calls"));
    assert!(!worker.log().contains("failures:"), "{}", worker.log());
}

// Guards: a denial that outlives its time, that is applied to another cost, or that has other
// numbers than the object would return.
#[test]
fn a_remembered_refusal_is_the_objects_own() {
    let worker = start(json!([{"name": "each", "key": [{"header": "x-key"}],
        "cost": {"header": "x-cost", "default": 1, "max": 9}, "quotas": quota("hour", 10, "1h")}]));
    let mut client = worker.client();
    let mut at = |cost: u64, ms: u64| {
        let request = described("/", json!({"x-key": "k", "x-cost": cost.to_string()}));
        let (answer, calls) = ask(&mut client, request, ms);
        let field = answer["headers"]["ratelimit"].as_str().expect("a field").to_owned();
        (answer["decision"].as_str().expect("a decision").to_owned(), field, calls)
    };
    // 1,780,000,000 s is 1,600 s into its hour.
    let said =
        |decision: &str, field: &str, calls: usize| (decision.to_owned(), field.to_owned(), calls);
    assert_eq!(at(7, 0), said("allow", "\"hour\";r=3;t=2000", 1));
    assert_eq!(at(5, 10), said("deny", "\"hour\";r=0;t=2000", 0), "what was told with the answer");
    assert_eq!(at(5, 900), said("deny", "\"hour\";r=0;t=2000", 0));
    assert_eq!(at(3, 950), said("allow", "\"hour\";r=0;t=2000", 1), "a lower cost fits");
    assert_eq!(at(1, 1_950), said("deny", "\"hour\";r=0;t=1999", 0));
    assert_eq!(at(1, 1_951), said("deny", "\"hour\";r=0;t=1999", 1), "costs differ: a second");
    assert_eq!(at(1, 1_999_999).2, 1);
    assert_eq!(at(9, 2_000_000), said("allow", "\"hour\";r=1;t=3600", 1), "the next hour");
    assert_eq!(at(2, 2_000_500), said("deny", "\"hour\";r=0;t=3600", 0));
    assert_eq!(at(2, 1_000).2, 1, "a clock that was set back");
}

// Guards: units that can be returned, and a denial that lasts as if they could not. With one rule
// and one cost it lasts until its time.
#[test]
fn a_refusal_lasts_as_long_as_nothing_can_come_back() {
    let key = json!([{"header": "x-key"}]);
    let alone = json!({"name": "each", "key": key, "quotas": quota("hour", 1, "1h")});
    let with = |more: Value| {
        let mut rule = alone.clone();
        for (name, value) in more.as_object().expect("fields") {
            rule[name] = value.clone();
        }
        rule
    };
    let all = json!({"name": "all", "key": [], "quotas": quota("all", 100, "1h")});
    for (what, rules, calls_later) in [
        ("nothing can come back", json!([alone]), 0),
        (
            "two rules of one key",
            json!([alone, with(json!({"name": "more", "quotas": quota("more", 9, "1h")}))]),
            0,
        ),
        ("several keys", json!([alone, all]), 2),
        (
            "costs differ",
            json!([with(json!({"cost": {"header": "x-cost", "default": 1, "max": 9}}))]),
            1,
        ),
    ] {
        let worker = start(rules);
        let mut client = worker.client();
        let mut at = |ms| {
            let (answer, calls) = ask(&mut client, described("/", json!({"x-key": "k"})), ms);
            (answer["decision"].as_str().expect("a decision").to_owned(), calls)
        };
        assert_eq!(at(0).0, "allow", "{what}");
        assert_eq!(at(1_000), ("deny".to_owned(), 0), "{what}");
        assert_eq!(at(1_001), ("deny".to_owned(), calls_later), "{what}");
        assert_eq!(at(1_999_999).0, "deny", "{what}");
        assert_eq!(at(2_000_000).0, "allow", "{what}");
    }
}

// Guards: a client whose own key denies every request, and that makes each a call by another key
// that is always new. The results of rules that were not evaluated are then absent, and nothing is
// charged.
#[test]
fn a_fresh_second_key_costs_no_call() {
    let rules = json!([
        {"name": "client", "key": [{"header": "x-client"}], "quotas": quota("client", 2, "1h")},
        {"name": "token", "key": [{"header": "x-token"}], "quotas": quota("token", 9, "1h")},
        {"name": "watched", "key": [{"header": "x-token"}], "mode": "shadow", "quotas": quota("watched", 1, "1h")},
    ]);
    let worker = start(rules);
    let mut client = worker.client();
    let mut at = |client_key: &str, token: String, ms| {
        ask(&mut client, described("/", json!({"x-client": client_key, "x-token": token})), ms)
    };
    for n in 0..2 {
        assert_eq!(at("c", format!("t{n}"), 0).0["decision"], "allow");
    }
    for n in 0..50 {
        let (answer, calls) = at("c", format!("fresh{n}"), 20 * n);
        assert_eq!((&answer["decision"], calls), (&json!("deny"), 0), "{n}");
        assert_eq!(answer["rules"], json!([{"name": "client", "result": "denied"}]));
        assert_eq!(answer["violated"], json!(["client"]));
        assert_eq!(answer["headers"]["ratelimit"], "\"client\";r=0;t=2000");
    }
    // No token was charged for it.
    let (answer, _) = at("other", "fresh7".to_owned(), 990);
    assert_eq!(answer["decision"], "allow");
    assert!(answer["headers"]["ratelimit"].as_str().expect("a field").contains("\"token\";r=8;"));
}

// Guards: a shadow rule that denies from memory, and a mark that is not set.
#[test]
fn what_only_watches_or_marks_is_asked_every_time() {
    for more in
        [json!({"mode": "shadow"}), json!({"action": {"mark": {"header": "x-over", "value": "1"}}})]
    {
        let mut rule =
            json!({"name": "each", "key": [{"header": "x-key"}], "quotas": quota("hour", 1, "1h")});
        for (name, value) in more.as_object().expect("fields") {
            rule[name] = value.clone();
        }
        let worker = start(json!([rule]));
        let mut client = worker.client();
        for n in 0..5 {
            let (answer, calls) = ask(&mut client, described("/", json!({"x-key": "k"})), n);
            assert_eq!((&answer["decision"], calls), (&json!("allow"), 1), "{rule}");
        }
    }
}

const OPERATOR: &str = "an-operator-who-writes";

/// Two isolates over the same objects, which use the first one's clock, where an operator can reset
/// a key.
fn start_operated(rules: Value) -> Workerd {
    let policy = json!({"version": 1, "rules": rules});
    let front = COUNTING.replace("{ Limiter }", "{ Limiter, Metrics, Policies, Tenants }");
    let counted = "check: (request)";
    let front = front.replace(
        counted,
        &format!("operate: (request) => object.operate(request),\n      {counted}"),
    );
    let setup = Setup::new(&policy).operated().binding("ADMIN_TOKEN", OPERATOR);
    setup.front(&front).beside(&policy).files_in_memory().start()
}

// Guards: keys that each come rarely in a flood of many, and cost a call each time because an
// operator might have reset them.
#[test]
fn of_a_slow_flood_few_requests_reach_an_object_where_an_operator_may_reset() {
    const KEYS: usize = 1_000;
    const EACH: u64 = 15;
    let worker = start_operated(
        json!([{"name": "each", "key": [{"header": "x-key"}], "quotas": quota("hour", 1, "1h")}]),
    );
    let mut client = worker.client();
    let mut admitted = 0;
    for n in 0..EACH {
        for first in (0..KEYS).step_by(100) {
            let one =
                |key| json!({"method": "GET", "path": "/", "headers": {"x-key": format!("{key}")}});
            let requests: Vec<Value> = (first..first + 100).map(one).collect();
            let body = json!({"requests": requests}).to_string();
            // Each key comes once in three seconds.
            let at = (START + 3_000 * n).to_string();
            let answers = answer(&client.send(&Request::post("/check", body).header("x-at", at)));
            let answers = answers["answers"].as_array().expect("answers");
            assert_eq!(answers.len(), 100);
            admitted += answers.iter().filter(|answer| answer["decision"] == "allow").count();
        }
    }
    let sent = KEYS * usize::try_from(EACH).expect("a number");
    let calls = calls(&worker);
    println!("{sent} sent, {admitted} admitted, {calls} calls");
    assert_eq!(admitted, KEYS);
    assert!((calls - admitted) * 50 <= sent, "{calls}");
}

// Guards: a reset, or the end of a block, that an isolate does not notice, whether it handled the
// operator's request or not; and a block that one of them does not enforce.
#[test]
fn what_an_operator_gives_back_is_found_within_five_seconds() {
    let worker = start_operated(
        json!([{"name": "each", "key": [{"header": "x-key"}], "quotas": quota("day", 1, "1d")}]),
    );
    let mut clients = worker.ports.iter().map(|port| Client::connect(*port)).collect::<Vec<_>>();
    assert_eq!(clients.len(), 2);
    let mut at = |isolate: usize, ms: u64| {
        // The objects use the first isolate's clock.
        ask(&mut clients[0], described("/", json!({"x-key": "other"})), ms);
        let (answer, calls) = ask(&mut clients[isolate], described("/", json!({"x-key": "k"})), ms);
        (answer["decision"].as_str().expect("a decision").to_owned(), calls)
    };
    let act = |what: &str, ms: u64, more: Value| {
        let mut body = json!({"rule": "each", "key": ["k"]});
        for (name, value) in more.as_object().expect("members") {
            body[name] = value.clone();
        }
        let path = format!("/.well-known/tollgate/admin/keys/{what}");
        let request = Request::post(&path, body.to_string())
            .header("authorization", format!("Bearer {OPERATOR}"))
            .header("content-type", "application/json")
            .header("x-at", (START + ms).to_string());
        assert_eq!(worker.client().send(&request).status, 204, "{what}");
    };
    let (allowed, refused) = (("allow".to_owned(), 1), ("deny".to_owned(), 0));
    assert_eq!(at(0, 0), allowed);
    assert_eq!(at(1, 10).0, "deny");
    for ms in [4_000, 60_000, 3_600_000] {
        assert_eq!((at(0, ms), at(1, ms)), (refused.clone(), refused.clone()), "{ms}");
    }
    // The isolate that handled the request finds it at once, the other at its next look, which is
    // due.
    act("reset", 3_601_000, json!({}));
    assert_eq!(at(0, 3_601_001), allowed);
    act("reset", 3_602_000, json!({}));
    assert_eq!(at(1, 3_606_000), allowed);
    assert_eq!(at(0, 3_606_000).0, "deny");
    // Blocked without any used units, and for longer than any memory of a second.
    act("reset", 3_610_000, json!({}));
    act("block", 3_610_001, json!({"until_ms": START + 7_000_000}));
    assert_eq!((at(0, 3_610_002).0, at(1, 3_615_010).0), ("deny".to_owned(), "deny".to_owned()));
    assert_eq!((at(0, 6_000_000), at(1, 6_000_000)), (refused.clone(), refused));
    act("unblock", 6_000_001, json!({}));
    assert_eq!(at(1, 6_005_002), allowed);
}
