//! The calls of a request to objects, and their failures: every call is bounded in time, all calls
//! are bounded in number, and every failure is counted and logged.
//!
//! Modules in front of `entry.mjs` simulate the faults and count; no test measures time.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

/// Two keys for a request of `/vip`, one for any other.
fn policy(on_failure: &str) -> Value {
    let quota =
        |name: &str| json!({"name": name, "algorithm": "gcra", "limit": 100, "window": "366d"});
    json!({"version": 1, "on_failure": on_failure, "rules": [
        {"name": "client", "key": ["client_ip"], "quotas": [quota("client")]},
        {"name": "vip", "when": {"paths": ["/vip"]}, "key": ["path"], "quotas": [quota("vip")]},
    ]})
}

fn left(answer: &Value, quota: &str) -> u64 {
    let field = answer["headers"]["ratelimit"].as_str().unwrap_or_default();
    let of = field.split(", ").find(|item| item.starts_with(&format!("\"{quota}\"")));
    let r = of.and_then(|item| item.split(";r=").nth(1)).and_then(|rest| rest.split(';').next());
    r.and_then(|r| r.parse().ok()).unwrap_or_else(|| panic!("no {quota} in {field}"))
}

/// The log lines about failures.
fn lines(worker: &Workerd) -> Vec<String> {
    let log = worker.log();
    let lines = log.lines().filter_map(|line| line.split_once("failures: "));
    lines.map(|(_, said)| said.to_owned()).collect()
}

/// Objects that execute calls and never respond, while the request sets a header; `x-later` moves
/// the clock.
const SILENT: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let silent = "";
const realNow = Date.now;
export default class extends Tollgate {
  fetch(request) {
    silent = request.headers.get("x-silent") ?? "";
    const later = Number(request.headers.get("x-later") ?? 0);
    Date.now = () => realNow() + later;
    return super.fetch(request);
  }
}
let first;
export class Limiter extends Real {
  check(request) {
    const reply = super.check(request);
    first ??= this.ctx.id.toString();
    const isSilent = silent === "all" || (silent === "others" && this.ctx.id.toString() !== first);
    return isSilent ? new Promise(() => setTimeout(() => {}, 60_000)) : reply;
  }
}
"#;

// Guards: failing open silently. A slow object is given up at the time-out, and the log has the
// result for the request: the first at once, a flood in one line, and totals.
#[test]
fn slow_objects_are_given_up_counted_and_told_in_few_lines() {
    for (on_failure, word) in [("allow", "let_through"), ("deny", "refused")] {
        let worker =
            Setup::new(policy(on_failure)).binding("OBJECT_TIMEOUT_MS", 20).front(SILENT).start();
        let mut client = worker.client();
        let mut ask = |later: u64| {
            let request = check_request("GET", "/", "192.0.2.1").header("x-silent", "all");
            answer(&client.send(&request.header("x-later", later.to_string())))
        };
        for _ in 0..30 {
            let failed = ask(0);
            assert_eq!(failed["decision"], on_failure);
            assert_eq!(failed["rules"], json!([{"name": "client", "result": "failed"}]));
            assert_eq!(failed["headers"].get("ratelimit"), None);
        }
        let told = lines(&worker);
        let first = format!("late=1 {word}=1; since this isolate started: late=1 {word}=1");
        assert_eq!(told.first(), Some(&first));
        assert!(told.len() < 10, "one line in ten seconds: {told:#?}");
        ask(3_600_000);
        let told = lines(&worker);
        let totals = format!("since this isolate started: late=31 {word}=31");
        assert!(told.last().is_some_and(|line| line.ends_with(&totals)), "{told:#?}");
    }
}

// Guards: one slow key that delays the others. They are called at the same time, they respond and
// count, and the slow one is not waited for twice.
#[test]
fn a_slow_key_does_not_hold_the_others() {
    let setup = Setup::new(policy("allow")).binding("OBJECT_TIMEOUT_MS", 3_000);
    let worker = setup.front(SILENT).start();
    let ask = |silent: &str| {
        let request = check_request("GET", "/vip", "192.0.2.1").header("x-silent", silent);
        answer(&worker.client().send(&request))
    };
    assert_eq!(left(&ask("none"), "client"), 99);
    for expected in [98, 97] {
        let answer = ask("others");
        assert_eq!((&answer["decision"], left(&answer, "client")), (&json!("allow"), expected));
        let results =
            json!([{"name": "client", "result": "allowed"}, {"name": "vip", "result": "failed"}]);
        assert_eq!(answer["rules"], results);
    }
}

/// Objects as in [`SILENT`], of which `first` is the client's own, and every timer that is set for
/// a request: the time from the request until it rings. `x-timers` returns the latest.
const TIMED: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let silent = "";
let first;
let since = 0;
let latest = 0;
const realTimeout = globalThis.setTimeout;
globalThis.setTimeout = (f, delay, ...rest) => {
  latest = Math.max(latest, Date.now() - since + delay);
  return realTimeout(f, delay, ...rest);
};
export default class extends Tollgate {
  fetch(request) {
    if (request.headers.has("x-timers")) return Response.json(latest);
    silent = request.headers.get("x-silent") ?? "";
    [since, latest] = [Date.now(), 0];
    return super.fetch(request);
  }
}
export class Limiter extends Real {
  check(request) {
    const id = this.ctx.id.toString();
    first ??= id;
    const isSilent = silent === "all" || silent === (id === first ? "first" : "others");
    return isSilent ? new Promise(() => realTimeout(() => {}, 60_000)) : super.check(request);
  }
}
"#;

// Guards: time-outs that add up, one for each round of calls; and a shared count that misses all
// requests of clients whose own object is slow, which an attacker may cause.
#[test]
fn all_objects_of_a_request_have_one_time_out_together() {
    const TIMEOUT: u64 = 6_000;
    for on_failure in ["allow", "deny"] {
        let setup = Setup::new(policy(on_failure)).binding("OBJECT_TIMEOUT_MS", TIMEOUT);
        let worker = setup.front(TIMED).start();
        let ask = |silent: &str| {
            let request = check_request("GET", "/vip", "192.0.2.1").header("x-silent", silent);
            let answered = answer(&worker.client().send(&request));
            let timers = worker.client().send(&Request::new("GET", "/").header("x-timers", "1"));
            let latest: f64 = timers.text().parse().expect("a number");
            // Two time-outs one after the other are 12 s; the rest is for a busy machine.
            assert!(latest < 11_000.0, "{on_failure}, {silent}: a timer rings after {latest} ms");
            answered
        };
        assert_eq!(left(&ask("none"), "vip"), 99);
        let all = ask("all");
        let failed = |name: &str| json!({"name": name, "result": "failed"});
        assert_eq!(all["decision"], on_failure);
        assert_eq!(all["rules"], json!([failed("client"), failed("vip")]));
        let half = ask("first");
        assert_eq!((&half["decision"], &half["rules"][0]), (&json!(on_failure), &failed("client")));
        // A request that passes is counted where possible, and one that is denied is not.
        let expected = if on_failure == "allow" { 97 } else { 98 };
        assert_eq!(left(&ask("none"), "vip"), expected, "{on_failure}");
    }
}

// Guards: the documented result of a charge whose response comes too late: it may have been
// counted, and it stays.
#[test]
fn a_charge_that_answers_too_late_stays() {
    let worker =
        Setup::new(policy("allow")).binding("OBJECT_TIMEOUT_MS", 3_000).front(SILENT).start();
    let ask = |silent: &str| {
        let request = check_request("GET", "/", "192.0.2.1").header("x-silent", silent);
        answer(&worker.client().send(&request))
    };
    for _ in 0..2 {
        assert_eq!(ask("all")["rules"], json!([{"name": "client", "result": "failed"}]));
    }
    assert_eq!(left(&ask("none"), "client"), 97);
}

/// Counts the calls of each key of a request, in the order of its keys, and simulates the faults
/// that `x-faults` names by key and call: `{"0:1": "retryable"}`. `drained`: another client uses
/// the quota up just before.
const COUNTING: &str = r#"
import Tollgate, { Limiter } from "./entry.mjs";
export { Limiter };

let faults = {};
let keys = new Map();

const failing = (properties) => Object.assign(new Error("a fault of the test"), properties);

async function play(fault, object, request) {
  if (fault === "retryable") throw failing({ retryable: true });
  if (fault === "overloaded") throw failing({ retryable: true, overloaded: true });
  if (fault === "drained") for (let i = 0; i < 200; i++) await object.check(request);
}

const counting = (objects) => ({
  getByName(name) {
    if (!keys.has(name)) keys.set(name, { index: keys.size, checks: 0, refunds: 0 });
    const key = keys.get(name);
    const object = objects.getByName(name);
    return {
      async check(request) {
        key.checks += 1;
        await play(faults[`${key.index}:${key.checks}`], object, request);
        return await object.check(request);
      },
      async refund(request, reply) {
        key.refunds += 1;
        await play(faults[`${key.index}:refund`], object, request);
        return await object.refund(request, reply);
      },
    };
  },
});

export default class extends Tollgate {
  constructor(ctx, env) {
    super(ctx, { ...env, LIMITER: counting(env.LIMITER) });
  }

  async fetch(request) {
    faults = JSON.parse(request.headers.get("x-faults") ?? "{}");
    keys = new Map();
    const response = await super.fetch(request);
    const calls = [...keys.values()].map(({ checks, refunds }) => [checks, refunds]);
    response.headers.set("x-calls", JSON.stringify(calls));
    return response;
  }
}
"#;

// Guards: an unbounded number of calls, at which the platform ends the invocation and every key
// fails. For one key: one inquiry and one charge, one retry in total, one refund; whatever fails,
// and however often.
#[test]
fn the_calls_of_a_request_are_bounded() {
    let rule = |name: &str| {
        let quota = json!({"name": name, "algorithm": "gcra", "limit": 100, "window": "366d"});
        json!({"name": name, "when": {"paths": ["/all"]}, "key": [{"header": name}], "quotas": [quota]})
    };
    let one = json!({"name": "one", "when": {"paths": ["/one"]}, "key": ["path"], "quotas":
        [{"name": "one", "algorithm": "gcra", "limit": 100, "window": "366d"}]});
    let rules = json!([rule("x-a"), rule("x-b"), rule("x-c"), one]);
    let policy = json!({"version": 1, "on_failure": "deny", "rules": rules});
    let worker = Setup::new(policy).front(COUNTING).start();
    let mut fresh = 0;
    let mut calls = |path: &str, faults: Value| {
        fresh += 1;
        let headers = json!({"x-a": format!("a{fresh}"), "x-b": "b", "x-c": format!("c{fresh}")});
        let body = json!({"method": "GET", "path": path, "headers": headers});
        let request = Request::post("/check", body.to_string());
        let response = worker.client().send(&request.header("x-faults", faults.to_string()));
        let calls = response.header("x-calls").expect("a count of calls");
        let answer = answer(&response);
        (answer["decision"].as_str().expect("a decision").to_owned(), calls)
    };
    let retry = "retryable";
    // One key is called once, and retried at most once.
    for (faults, decision, expected) in [
        (json!({}), "allow", "[[1,0]]"),
        (json!({"0:1": retry}), "allow", "[[2,0]]"),
        (json!({"0:1": retry, "0:2": retry, "0:3": retry}), "deny", "[[2,0]]"),
        (json!({"0:1": "overloaded"}), "deny", "[[1,0]]"),
    ] {
        assert_eq!(calls("/one", faults.clone()), (decision.into(), expected.into()), "{faults}");
    }
    // Of several keys the first is charged at once, the middle one is inquired and then charged,
    // and the last is charged when no other denies. There is one retry for both calls.
    let always = |key: usize| (1..9).map(move |call| (format!("{key}:{call}"), json!(retry)));
    let everything: Value = (0..3).flat_map(always).collect::<serde_json::Map<_, _>>().into();
    for (faults, decision, expected) in [
        (json!({}), "allow", "[[1,0],[2,0],[1,0]]"),
        (everything, "deny", "[[2,0],[2,0],[2,0]]"),
        (json!({"1:1": retry, "1:3": retry}), "deny", "[[1,1],[3,0],[1,1]]"),
        (json!({"0:1": retry, "1:2": retry}), "allow", "[[2,0],[3,0],[1,0]]"),
        // The last key is used up.
        (json!({"2:1": "drained"}), "deny", "[[1,1],[2,1],[1,0]]"),
        // The first key is: the results of the others belong to the response, and no key is
        // charged.
        (json!({"0:1": "drained"}), "deny", "[[1,0],[1,0],[1,0]]"),
        // All faults together.
        (
            json!({"0:1": retry, "1:2": retry, "0:refund": retry, "2:1": retry, "2:2": "drained"}),
            "deny",
            "[[2,1],[3,1],[2,0]]",
        ),
        // A lost race: other clients use up the middle one between inquiry and charge. That denial
        // is remembered, so this is the last row.
        (json!({"1:2": "drained"}), "deny", "[[1,1],[2,0],[1,1]]"),
    ] {
        assert_eq!(calls("/all", faults.clone()), (decision.into(), expected.into()), "{faults}");
    }
}

/// Counts the calls of one request's objects, and the most at one time.
const UNDER_WAY: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let calls, now, most;
export class Limiter extends Real {
  async check(request) {
    calls++;
    most = Math.max(most, ++now);
    await new Promise((resolve) => setTimeout(resolve, 5));
    now--;
    return super.check(request);
  }
}
export default class extends Tollgate {
  async fetch(request) {
    calls = now = most = 0;
    const response = await super.fetch(request);
    response.headers.set("x-calls", JSON.stringify([calls, most]));
    return response;
  }
}
"#;

// Guards: a batch that makes more calls than the platform permits per invocation, so that every key
// of it fails; and one that calls all its objects at the same moment. A request beyond the bound
// gets an error in its place, and is charged nowhere; the others are decided.
#[test]
fn the_calls_of_a_batch_are_bounded() {
    let rule = |name: &str, path: &str| {
        let quota = json!({"name": name, "algorithm": "gcra", "limit": 1000, "window": "366d"});
        json!({"name": name, "when": {"paths": [path]}, "key": [{"header": name}], "quotas": [quota]})
    };
    let rules = json!([rule("x-a", "/**"), rule("x-b", "/all"), rule("x-c", "/all")]);
    let worker = Setup::new(json!({"version": 1, "rules": rules})).front(UNDER_WAY).start();
    let request = |path: &str, i: usize| {
        let headers =
            json!({"x-a": format!("a{i}"), "x-b": format!("b{i}"), "x-c": format!("c{i}")});
        json!({"method": "GET", "path": path, "headers": headers})
    };
    let ask = |requests: Vec<Value>| {
        let body = json!({ "requests": requests }).to_string();
        let response = worker.client().send(&Request::post("/check", body));
        let calls = response.header("x-calls").expect("a count of calls");
        let calls: [usize; 2] = serde_json::from_str(&calls).expect("two numbers");
        (answer(&response)["answers"].as_array().expect("a list").clone(), calls)
    };
    let mut requests: Vec<_> = (0..99).map(|i| request("/all", i)).collect();
    requests.push(request("/one", 99));
    let (answers, [calls, most]) = ask(requests);
    let is_decided = |answer: &Value| answer["decision"] == "allow";
    // 250 keys: three for each of 83 requests, and one is left for the last, which needs no more.
    let decided: Vec<_> = (0..100).filter(|i| is_decided(&answers[*i])).collect();
    assert_eq!(decided, (0..83).chain([99]).collect::<Vec<_>>());
    let detail = "is too much for one body: it and those before it are counted under more than 250 \
                  keys; ask for it in another one";
    for refused in &answers[83..99] {
        assert_eq!(refused["status"], 400, "{refused}");
        assert_eq!(refused["errors"], json!([{"path": "", "detail": detail}]));
    }
    assert_eq!(calls, 83 * 4 + 1);
    assert!((32..=64).contains(&most), "{most} at once");
    // The rejected requests were not charged.
    let (answers, _) = ask(vec![request("/all", 90), request("/all", 1)]);
    assert_eq!((left(&answers[0], "x-a"), left(&answers[1], "x-a")), (999, 998));
}

// Guards: a number of wrangler.toml, which arrives as a number, ignored; and a secret of a store,
// which arrives as an object, treated as absent: it would open the service.
#[test]
fn bindings_that_are_no_text_are_read_or_refused() {
    let health = |setup: Setup| {
        let worker = setup.start();
        worker.client().send(&Request::get("/.well-known/tollgate/health")).status
    };
    let setup = || Setup::new(policy("allow"));
    assert_eq!(health(setup().json_binding("OBJECT_TIMEOUT_MS", json!(750))), 200);
    assert_eq!(health(setup().json_binding("OBJECT_TIMEOUT_MS", json!(7))), 500);
    assert_eq!(health(setup().json_binding("OBJECT_TIMEOUT_MS", json!(10.5))), 500);
    assert_eq!(health(setup().json_binding("CHECK_TOKEN", json!({"get": "x"}))), 500);
    assert_eq!(health(setup().json_binding("ORIGIN", json!(["https://example.com"]))), 500);
    assert_eq!(health(setup().json_binding("HASH_KEY", json!(true))), 500);
}
