//! Requests that wait for their turn in the Worker: in line, with one call of the key's object per
//! turn.
//!
//! A module in front of `entry.mjs` counts calls and records arrivals and responses; no test
//! measures time.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::workerd::{Setup, Workerd, answer};

use crate::worker_origin::serve;

const NOTING: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let calls = 0;
const came = [], answered = [];
export default class extends Tollgate {
  async fetch(request) {
    if (request.headers.has("x-noted")) return Response.json({ calls, came, answered });
    const who = request.headers.get("x-who");
    came.push(who);
    const response = await super.fetch(request);
    const { decision } = await response.clone().json();
    answered.push([who, decision]);
    return response;
  }
}
export class Limiter extends Real {
  check(request) {
    calls += 1;
    return super.check(request);
  }
}
"#;

/// One count for all: `limit` in a window, one at once, and the rest waits.
fn worker(window: &str, limit: u32, max: &str, waiting: Value) -> Workerd {
    let quota = json!({"limit": limit, "window": window, "burst": 1, "algorithm": "gcra"});
    let rule = json!({"name": "turn", "key": ["path"], "action": {"delay": {"max": max}}, "quotas": [quota]});
    let policy = json!({"version": 1, "waiting": waiting, "rules": [rule]});
    Setup::new(policy).front(NOTING).start()
}

fn request(who: usize) -> Request {
    let body = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
    Request::post("/check", body.to_string()).header("x-who", who.to_string())
}

/// All at once, each on a connection of its own; the responses in the order of the requests.
fn all_at_once(worker: &Workerd, number: usize) -> Vec<Value> {
    let mut clients: Vec<Client> = (0..number).map(|_| worker.client()).collect();
    for (who, client) in clients.iter_mut().enumerate() {
        client.start(&request(who)).expect("the request is sent");
    }
    let finish = |client: &mut Client| answer(&client.finish(false).expect("an answer"));
    clients.iter_mut().map(finish).collect()
}

fn noted(worker: &Workerd) -> Value {
    answer(&worker.client().send(&Request::get("/").header("x-noted", "1")))
}

fn number(answers: &[Value], decision: &str) -> usize {
    answers.iter().filter(|answer| answer["decision"] == decision).count()
}

// Guards: a herd. Each waiter called the object again at its own time, as many as there are for one
// unit: 200 waiters made 17,700 calls. Now each calls when it arrives and when it is its turn.
#[test]
fn waiters_ask_once_when_they_come_and_once_when_it_is_their_turn() {
    let worker = worker("1s", 40, "5m", json!({}));
    let answers = all_at_once(&worker, 200);
    assert_eq!(number(&answers, "allow"), 200);
    let noted = noted(&worker);
    let calls = noted["calls"].as_u64().expect("calls");
    // A timer may fire a little early, and then the object reports it.
    assert!((200..=440).contains(&calls), "{calls} calls");
}

// Guards: a late-comer that is allowed because its call comes just when a unit is available. A
// request that finds a line waits behind it.
#[test]
fn whoever_finds_a_line_goes_behind_it() {
    let worker = worker("3s", 1, "5m", json!({}));
    let mut clients: Vec<Client> = (0..6).map(|_| worker.client()).collect();
    for (who, client) in clients.iter_mut().enumerate() {
        client.start(&request(who)).expect("the request is sent");
        while noted(&worker)["calls"].as_u64().expect("calls") <= who as u64 {}
    }
    for client in &mut clients {
        assert_eq!(answer(&client.finish(false).expect("an answer"))["decision"], "allow");
    }
    let noted = noted(&worker);
    let answered = noted["answered"].as_array().expect("a list").iter().map(|pair| &pair[0]);
    let came = noted["came"].as_array().expect("a list");
    assert_eq!(came.iter().collect::<Vec<_>>(), answered.collect::<Vec<_>>());
}

// Guards: 220 of 1,000 requests without a response a minute after `max`. A request that cannot be
// allowed in time is denied at once, with a `retry_after`; the others are decided when their turn
// comes, or when their time is over.
#[test]
fn whoever_cannot_be_let_through_in_time_is_refused_at_once() {
    let worker = worker("1s", 10, "3s", json!({}));
    let answers = all_at_once(&worker, 1_000);
    let (allowed, denied) = (number(&answers, "allow"), number(&answers, "deny"));
    assert_eq!(allowed + denied, 1_000);
    // One at once, thirty in three seconds; more while the machine is still opening a thousand
    // connections.
    assert!(allowed >= 10, "{allowed} allowed");
    for denied in answers.iter().filter(|answer| answer["decision"] == "deny") {
        let retry_after = denied["retry_after_ms"].as_u64().expect("a time to come back");
        assert!((1_000..=10_000).contains(&retry_after), "{denied}");
        assert_eq!(denied["failure"].as_str(), None, "{denied}");
    }
    let noted = noted(&worker);
    let calls = noted["calls"].as_u64().expect("calls");
    assert!(calls <= 1_000 + 2 * allowed as u64 + 100, "{calls} calls, {allowed} allowed");
}

// Guards: limits that would be decided by `on_failure`: a request beyond the limit is denied,
// though a failure would allow it.
#[test]
fn too_many_are_refused_and_never_let_through() {
    for (waiting, status) in [(json!({"per_key": 5}), 429), (json!({"total": 5}), 503)] {
        // Long enough for a slow machine: a request half a minute later finds a place.
        let worker = worker("30s", 1, "5m", waiting);
        let mut clients: Vec<Client> = (0..30).map(|_| worker.client()).collect();
        for (who, client) in clients.iter_mut().enumerate() {
            client.start(&request(who)).expect("the request is sent");
        }
        let refused = loop {
            let noted = noted(&worker);
            let answered = noted["answered"].as_array().expect("a list").clone();
            let refused = answered.iter().filter(|pair| pair[1] == "deny").count();
            if refused > 0 && answered.len() + 5 >= 30 {
                break refused;
            }
        };
        assert!(refused >= 20, "{refused}");
        let denied = answer(&worker.client().send(&request(99)));
        assert_eq!(denied["decision"], "deny", "{denied}");
        assert_eq!(denied["status"], status, "{denied}");
        assert!(denied["retry_after_ms"].as_u64() >= Some(1_000), "{denied}");
    }
}

const COUNTING: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let calls = 0;
export default class extends Tollgate {
  fetch(request) {
    return request.headers.has("x-noted") ? Response.json({ calls }) : super.fetch(request);
  }
}
export class Limiter extends Real {
  check(request) {
    calls += 1;
    return super.check(request);
  }
}
"#;

// Guards: a request that has waited for its turn, is then given a place in a queue, and does not
// wait for it.
#[test]
fn a_place_that_comes_after_a_turn_is_waited_for() {
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    let origin = serve(move |request| {
        log.lock().expect("a log").push(request.target.clone());
        request.answer("200 OK", "", "");
    });
    let rule = |name: &str, path: &str, quota: Value| {
        json!({"name": name, "when": {"paths": [path]}, "key": ["client_ip"], "action": {"delay": {"max": "5m"}},
            "quotas": [quota]})
    };
    let turn = json!({"limit": 1, "window": "1s", "burst": 1});
    let queue = json!({"limit": 1, "window": "3s", "burst": 10, "algorithm": "leaky-queue"});
    let rules = [rule("turn", "/turn/**", turn), rule("queue", "/**", queue)];
    let policy = json!({"version": 1, "rules": rules});
    let worker = Setup::new(policy).binding("ORIGIN", &origin).front(COUNTING).start();
    let mut clients = vec![];
    for (number, path) in ["/turn/1", "/queue", "/turn/2"].into_iter().enumerate() {
        while noted(&worker)["calls"].as_u64().expect("calls") < number as u64 {}
        let mut client = worker.client();
        client.start(&Request::get(path).header("cf-connecting-ip", "192.0.2.1")).expect("sent");
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.finish(false).expect("an answer").status, 200);
    }
    assert_eq!(*seen.lock().expect("a log"), ["/turn/1", "/queue", "/turn/2"]);
}
