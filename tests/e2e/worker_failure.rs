//! Failures: an invalid policy, an invalid setting, a panic, an object that is silent.
//!
//! The shipped modules are not changed: a module in front of `entry.mjs` simulates the fault, and a
//! panic is a real trap of the shipped wasm, caused by giving its glue code a length that no memory
//! can hold.

use std::thread;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

use crate::worker_origin::serve;

const HEALTH: &str = "/.well-known/tollgate/health";

fn policy(on_failure: &str) -> Value {
    let quota =
        |name: &str| json!({"name": name, "algorithm": "gcra", "limit": 100, "window": "366d"});
    json!({"version": 1, "on_failure": on_failure, "rules": [
        {"name": "client", "key": ["client_ip"], "quotas": [quota("client")]},
        {"name": "vip", "when": {"paths": ["/vip"]}, "key": [{"header": "x-vip"}], "quotas": [quota("vip")]},
    ]})
}

// Guards: a policy that half works. Every mistake is in the health report, with its path, and
// nothing is served, in both uses.
#[test]
fn a_wrong_policy_is_reported_and_serves_nothing() {
    let wrong = r#"{"version":1,"rules":[{"name":"a","key":["client_ip"],"qotas":[],
        "quotas":[{"name":"q","limit":-1,"window":"0s"}]}]}"#;
    let origin = serve(|_| panic!("the origin was asked"));
    for setup in [Setup::new(wrong), Setup::new(wrong).binding("ORIGIN", &origin)] {
        let worker = setup.start();
        let health = worker.client().send(&Request::get(HEALTH));
        assert_eq!(health.status, 500);
        assert_eq!(health.header("content-type").as_deref(), Some("application/problem+json"));
        let report: Value = serde_json::from_slice(&health.body).expect("JSON");
        let paths: Vec<_> = (report["errors"].as_array().expect("a list").iter())
            .map(|error| error["path"].as_str().expect("a path").to_owned())
            .collect();
        for path in ["rules[0]", "rules[0].quotas[0].limit", "rules[0].quotas[0].window"] {
            assert!(paths.iter().any(|found| found == path), "{path}: {report}");
        }
        for request in [Request::get("/"), check_request("GET", "/", "192.0.2.1")] {
            let refused = worker.client().send(&request);
            assert_eq!(refused.status, 500);
            assert!(refused.text().contains(HEALTH), "{}", refused.text());
        }
    }
    let worker = Setup::new("not json").binding("CHECK_TOKEN", "t").start();
    let report = Request::get(HEALTH).header("authorization", "Bearer t");
    let health = worker.client().send(&report).text();
    assert!(health.contains("not JSON"), "{health}");
}

// Guards: an invalid setting that is ignored: an invalid origin must not turn a proxy into an open
// service, and an empty token must not open one.
#[test]
fn a_wrong_setting_is_reported_and_serves_nothing() {
    let setup =
        Setup::new(policy("allow")).binding("ORIGIN", "example.com").binding("CHECK_TOKEN", "");
    let worker = setup.start();
    let health = worker.client().send(&Request::get(HEALTH));
    let report: Value = serde_json::from_slice(&health.body).expect("JSON");
    let detail = "is wrong; the log shows the reason, and so does this report with CHECK_TOKEN";
    let expected = json!([
        {"path": "ORIGIN", "detail": detail},
        {"path": "CHECK_TOKEN", "detail": detail},
    ]);
    assert_eq!((health.status, &report["errors"]), (500, &expected));
    assert_eq!(worker.client().send(&check_request("GET", "/", "192.0.2.1")).status, 500);
    // HEAD has no body.
    assert_eq!(worker.client().send(&Request::new("HEAD", HEALTH)).status, 500);
}

// Guards: a warning that only `tollgate check` gives. It is for the operator who reads the log, not
// for clients: it may show them how to bypass a limit.
#[test]
fn what_is_surely_not_meant_is_logged_and_not_told() {
    let mut suspicious = policy("allow");
    suspicious["client_ip"] = json!({"source": "x-forwarded-for"});
    suspicious["response"] = json!({"partition_key": true});
    let lines = |setup: Setup| {
        let worker = setup.binding("CHECK_TOKEN", "t").start();
        let health = worker.client().send(&Request::get(HEALTH));
        assert!(health.status == 200 && !health.text().contains("trusts"), "{}", health.text());
        let log = worker.log();
        let lines = log.lines().filter(|line| line.contains("tollgate:")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let told = lines(Setup::new(suspicious.clone()));
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("client_ip: trusts no proxy"), "{told:#?}");
    assert!(told[1].contains("pk can be guessed without the secret HASH_KEY"), "{told:#?}");
    assert_eq!(lines(Setup::new(suspicious).binding("HASH_KEY", "secret")).len(), 1);
    assert!(lines(Setup::new(policy("allow"))).is_empty());
}

/// An object whose wasm is aborted during its next decision after `trapNextObject` was set, by a
/// length that no memory has room for: `bomb`.
const TRAPPING_LIMITER: &str = r#"
import { Limiter as Real } from "./entry.mjs";

// No memory has room for this: the allocation in the wasm aborts it.
const bomb = { length: 0xffff_fff0, charCodeAt: () => 97 };
let trapNextObject = false;

export class Limiter extends Real {
  check(request) {
    if (!trapNextObject) return super.check(request);
    trapNextObject = false;
    const now = Date.now;
    Date.now = () => super.check(bomb); // the decision reads the clock once
    try {
      return super.check(request);
    } finally {
      Date.now = now;
    }
  }
}
"#;

/// `module` with that object in it.
pub(crate) fn trapping(module: &str) -> String {
    format!("{TRAPPING_LIMITER}{module}")
}

/// Traps the wasm like a panic does, during a request with `x-fault: worker` or during its object's
/// decision with `x-fault: object`. With `x-fault: exception` the runtime throws where Rust cannot
/// catch it, which also ends the instance.
const TRAPS: &str = r#"
import Tollgate from "./entry.mjs";

export default class extends Tollgate {
  fetch(request) {
    const fault = request.headers.get("x-fault");
    if (fault === "object") trapNextObject = true;
    if (fault !== "worker" && fault !== "exception") return super.fetch(request);
    return super.fetch(new Proxy(request, {
      get(target, name) {
        if (name === "url" && fault === "worker") return bomb;
        if (name === "url") throw new Error("an exception of the runtime");
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    }));
  }
}
"#;

fn remaining(worker: &Workerd, client_ip: &str) -> u64 {
    let answer = answer(&worker.client().send(&check_request("GET", "/", client_ip)));
    let field = answer["headers"]["ratelimit"].as_str().expect("a ratelimit field");
    let r = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next()).expect("r");
    r.parse().expect("a number")
}

// Guards: the hang. A trap aborts the wasm instance of the whole isolate; without the guard the
// caller would never get a response. The response must be quick, the next request must find a
// working instance, and no count may be lost.
#[test]
fn a_panic_is_an_error_at_once_and_loses_nothing() {
    let worker = Setup::new(policy("deny")).front(&trapping(TRAPS)).start();
    assert_eq!(remaining(&worker, "192.0.2.1"), 99);
    for round in 0..3 {
        // In the Worker itself: 500. In the object: it shares the isolate with its caller here, so
        // the caller's instance is gone too.
        for place in ["worker", "exception", "object"] {
            let fault = check_request("GET", "/", "192.0.2.1").header("x-fault", place);
            let response = worker.client().send(&fault);
            assert_eq!(response.status, 500, "{place}: {}", response.text());
            let problem = Some("application/problem+json".to_owned());
            assert_eq!(response.header("content-type"), problem, "{place}");
        }
        // Both work again, with every count.
        assert_eq!(remaining(&worker, "192.0.2.1"), 98 - round);
        assert_eq!(remaining(&worker, "192.0.2.2"), 99 - round);
    }
}

// Guards: requests that are in flight while another one's panic aborts the instance. Each must end,
// with a result or with a 500, and none may hang.
#[test]
fn a_panic_under_load_leaves_nobody_waiting() {
    fault_under_load("worker");
}

// Guards: the same when the runtime throws into wasm: that is not a trap, and only the glue code
// sees it.
#[test]
fn an_exception_under_load_leaves_nobody_waiting() {
    fault_under_load("exception");
}

fn fault_under_load(place: &'static str) {
    let worker = Setup::new(policy("deny")).front(&trapping(TRAPS)).start();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let client = |number: usize| {
            let worker = &worker;
            move || {
                let mut client = worker.client();
                let send = |i: usize| {
                    let request = check_request("GET", "/", &format!("192.0.2.{number}"));
                    let is_fault = number == 0 && i % 5 == 4;
                    let request = if is_fault { request.header("x-fault", place) } else { request };
                    let response = client.send(&request);
                    // The platform's own 500, when no code can respond any more, has none.
                    let media_type = response.header("content-type").unwrap_or_default();
                    assert!(media_type.starts_with("application/"), "{}", response.text());
                    response.status
                };
                (0..40).map(send).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(client(number))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a client was answered"))
            .collect()
    });
    assert_eq!(statuses.len(), 320);
    assert!(statuses.iter().all(|status| [200, 500].contains(status)), "{statuses:?}");
    let answered = statuses.iter().filter(|status| **status == 200).count();
    println!("{answered} of 320 answered, 8 faults");
    assert!(answered >= 200, "eight faults spoil few requests, not {}", 320 - answered);
    assert_eq!(worker.client().send(&check_request("GET", "/", "192.0.2.9")).status, 200);
}

/// Objects that fail, by the path of the request.
const SILENT: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let fault = null;
export default class extends Tollgate {
  fetch(request) {
    fault = request.headers.get("x-fault") ?? fault;
    return super.fetch(request);
  }
}
export class Limiter extends Real {
  check(request) {
    if (fault === "silent") return new Promise(() => setTimeout(() => {}, 60_000));
    if (fault === "throws") throw new Error("storage is broken");
    if (fault === "garbage") return new Uint8Array([1, 2, 3]);
    return super.check(request);
  }
}
"#;

// Guards: a store that cannot be reached. `on_failure` decides: allow, without invented fields, or
// deny with 503; a silent object is given up in time.
#[test]
fn an_object_that_fails_is_decided_by_on_failure() {
    for on_failure in ["allow", "deny"] {
        let setup = Setup::new(policy(on_failure)).binding("OBJECT_TIMEOUT_MS", 500);
        let worker = setup.front(SILENT).start();
        for fault in ["throws", "garbage", "silent"] {
            let request = check_request("GET", "/", "192.0.2.1").header("x-fault", fault);
            let failed = answer(&worker.client().send(&request));
            assert_eq!(failed["decision"], on_failure, "{fault}");
            assert_eq!(failed["rules"], json!([{"name": "client", "result": "failed"}]), "{fault}");
            assert_eq!(failed["violated"], json!([]), "{fault}");
            assert_eq!(failed["headers"].get("ratelimit"), None, "{fault}");
        }
    }
    // In front of an origin a denial because of a failure is a 503, and states that it is not a
    // quota.
    let origin = serve(|request| request.answer("200 OK", "", "hello"));
    let setup = Setup::new(policy("deny")).binding("ORIGIN", origin).front(SILENT);
    let worker = setup.start();
    let get =
        || Request::get("/").header("cf-connecting-ip", "192.0.2.1").header("x-fault", "throws");
    let refused = worker.client().send(&get());
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("temporary-reduced-capacity"), "{}", refused.text());
    let grpc = worker.client().send(&get().header("content-type", "application/grpc"));
    assert_eq!((grpc.status, grpc.header("grpc-status").as_deref()), (200, Some("14")));
}

// Guards: input that no client should send. Header values are bytes: they must count, apart from
// each other, and never break the Worker.
#[test]
fn odd_header_values_are_counted_apart() {
    let rules = json!([{"name": "r", "key": [{"header": "x-key"}], "quotas":
        [{"name": "q", "algorithm": "fixed-window", "limit": 1, "window": "366d"}]}]);
    let origin = serve(|request| request.answer("200 OK", "", "hello"));
    let worker =
        Setup::new(json!({"version": 1, "rules": rules})).binding("ORIGIN", origin).start();
    let status = |value: &[u8]| {
        let mut client: Client = worker.client();
        client.send(&Request::get("/").header("x-key", value)).status
    };
    let long = vec![b'x'; 7000];
    for value in [b"k".as_slice(), "\u{e4}".as_bytes(), &[0xe4], &[0xff, 0xfe], b"%00", &long] {
        assert_eq!(status(value), 200, "{value:?}");
        assert_eq!(status(value), 429, "{value:?}");
    }
}
