//! Another Worker calls the Worker through a service binding: `env.TOLLGATE.check(...)`.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

use crate::worker_failure::trapping;

/// A Worker that calls `check` with the JSON of its request's body, or with the value named in the
/// header, and responds with the result; with `x-trap` the wasm is aborted during the call. Every
/// other path is handled as usual.
const CALLER: &str = r#"
import Tollgate from "./entry.mjs";
export { Tollgate };

const STRANGE = {
  nothing: undefined,
  list: [],
  round: (() => { const it = {}; it.it = it; return it; })(),
  big: { method: "GET", path: "/", asn: 1n },
};

export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname !== "/call") return env.TOLLGATE.fetch(request);
    trapNextObject = request.headers.has("x-trap");
    const strange = request.headers.get("x-strange");
    const asked = strange === null ? JSON.parse(await request.text()) : STRANGE[strange];
    try {
      return Response.json({ answer: await env.TOLLGATE.check(asked) });
    } catch (error) {
      return Response.json({ name: error.name, message: error.message });
    }
  },
};
"#;

fn setup(limit: u64) -> Setup {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    let rule = json!({"name": "all", "key": ["client_ip"], "quotas": [quota]});
    let setup = Setup::new(json!({"version": 1, "rules": [rule]}));
    setup.front(&trapping(CALLER)).service_binding("TOLLGATE")
}

fn call(client: &mut Client, asked: &Value) -> Value {
    answer(&client.send(&Request::post("/call", asked.to_string())))
}

fn from(address: &str) -> Value {
    json!({"method": "GET", "path": "/", "client_ip": address})
}

fn decisions(called: &Value) -> Vec<&str> {
    let answers = called["answer"]["answers"].as_array().expect("answers");
    answers.iter().filter_map(|answer| answer["decision"].as_str()).collect()
}

// Guards: two different contracts. A call returns the same value as POST /check, uses the same
// counts, and of many simultaneous calls exactly as many are allowed as there are units.
#[test]
fn a_call_is_answered_like_post_check_and_counted_with_it() {
    let worker = setup(5).start();
    let mut client = worker.client();
    let mut called = call(&mut client, &from("192.0.2.1"));
    let mut over_http = answer(&client.send(&check_request("GET", "/", "192.0.2.2")));
    for field in
        [&mut called["answer"]["headers"]["ratelimit"], &mut over_http["headers"]["ratelimit"]]
    {
        // A second may have passed between the two.
        let said = field.as_str().and_then(|it| it.split_once(";t=")).expect("a time");
        *field = json!(said.0);
    }
    assert_eq!(called, json!({"answer": over_http}));
    assert_eq!(called["answer"]["decision"], "allow");
    // One unit is used by a call, one over HTTP; three are left for both.
    let second = answer(&client.send(&check_request("GET", "/", "192.0.2.1")));
    assert!(second["headers"]["ratelimit"].as_str().is_some_and(|it| it.contains("r=3;")));
    let many = json!({"requests": vec![from("192.0.2.1"); 50]});
    let called = call(&mut client, &many);
    let of = |wanted: &str| decisions(&called).iter().filter(|it| **it == wanted).count();
    assert_eq!((of("allow"), of("deny")), (3, 47), "{called}");
    let denied = call(&mut client, &from("192.0.2.1"));
    assert_eq!(denied["answer"]["status"], 429);
    assert!(denied["answer"]["retry_after_ms"].as_u64().is_some());
    // Calls that begin while others are in flight.
    let called: Vec<Value> = std::thread::scope(|scope| {
        let one = || call(&mut worker.client(), &from("192.0.2.3"));
        let calls: Vec<_> = (0..20).map(|_| scope.spawn(one)).collect();
        calls.into_iter().map(|call| call.join().expect("a call")).collect()
    });
    let allowed = called.iter().filter(|it| it["answer"]["decision"] == "allow").count();
    assert_eq!((allowed, called.len()), (5, 20));
}

// Guards: a caller that treats an error as permission, because it looked for "deny": a call without
// a decision throws, with every mistake in its message; and one invalid request of several stops no
// other.
#[test]
fn what_cannot_be_decided_throws() {
    let worker = setup(2).start();
    let mut client = worker.client();
    let wrong = json!({"method": 7, "path": "x", "client_ip": "192.0.2.1"});
    let said = "400 Bad Request; the check request is wrong; see errors; \
                method: 7 is not a request method; use a token such as \"GET\"; \
                path: \"x\" is not a path; use one that begins with \"/\"";
    assert_eq!(call(&mut client, &wrong), json!({"name": "TypeError", "message": said}));
    for (asked, said) in [
        (json!(null), "400 Bad Request; "),
        (json!("x"), "400 Bad Request; "),
        (json!({"requests": []}), "400 Bad Request; "),
        (json!({"method": "GET", "path": format!("/{}", "a".repeat(65_536))}), "413 Content Too "),
    ] {
        let thrown = call(&mut client, &asked);
        assert_eq!(thrown["name"], "TypeError", "{thrown}");
        assert!(thrown["message"].as_str().is_some_and(|it| it.starts_with(said)), "{thrown}");
    }
    for strange in ["nothing", "list", "round", "big"] {
        let thrown = answer(&client.send(&Request::post("/call", "").header("x-strange", strange)));
        assert_eq!(thrown["name"], "TypeError", "{strange}: {thrown}");
    }
    let both = json!({"requests": [wrong, from("192.0.2.1")]});
    let called = call(&mut client, &both);
    assert_eq!(called["answer"]["answers"][0]["status"], 400);
    assert_eq!(decisions(&called), ["allow"]);
    // The invalid requests were not charged.
    assert_eq!(call(&mut client, &from("192.0.2.1"))["answer"]["decision"], "allow");
    assert_eq!(call(&mut client, &from("192.0.2.1"))["answer"]["decision"], "deny");
}

// Guards: a misconfigured Worker that allows every request, or leaves its caller hanging.
#[test]
fn a_worker_without_a_policy_throws() {
    let worker = Setup::new("{").front(&trapping(CALLER)).service_binding("TOLLGATE").start();
    let thrown = call(&mut worker.client(), &from("192.0.2.1"));
    assert_eq!(thrown["name"], "Error");
    assert!(thrown["message"].as_str().is_some_and(|it| it.starts_with("500 ")), "{thrown}");
}

// Guards: a caller that hangs, or that is allowed, because the wasm was aborted during its call;
// and an instance that is not replaced.
#[test]
fn a_call_whose_instance_is_aborted_throws_at_once() {
    let worker = setup(9).start();
    let mut client = worker.client();
    for _ in 0..3 {
        assert_eq!(call(&mut client, &from("192.0.2.1"))["answer"]["decision"], "allow");
        let asked = Request::post("/call", from("192.0.2.1").to_string());
        let thrown = answer(&client.send(&asked.header("x-trap", "1")));
        assert_eq!(thrown, json!({"name": "Error", "message": "500 Internal Server Error"}));
    }
    // Counted requests stay counted, and aborted ones were not counted.
    let last = call(&mut client, &from("192.0.2.1"));
    assert!(last["answer"]["headers"]["ratelimit"].as_str().is_some_and(|it| it.contains("r=5;")));
}

fn asks(worker: &Workerd) -> (u16, Value) {
    let status = worker.client().send(&check_request("GET", "/", "192.0.2.9")).status;
    (status, call(&mut worker.client(), &from("192.0.2.9")))
}

// Guards: a binding that is rejected for lack of the token for outside callers, and outside callers
// that need none because there is a binding; and a Worker in front of an origin that cannot be
// called.
#[test]
fn a_binding_needs_no_token_and_no_service() {
    let (status, called) = asks(&setup(9).binding("CHECK_TOKEN", "a-token-of-the-outside").start());
    assert_eq!((status, &called["answer"]["decision"]), (401, &json!("allow")));
    let worker = setup(9).binding("ORIGIN", "http://127.0.0.1:9").start();
    let (status, called) = asks(&worker);
    assert_eq!((status, &called["answer"]["decision"]), (502, &json!("allow")));
    // No path of HTTP reaches the call.
    let direct = worker.client().send(&Request::post("/check", from("192.0.2.9").to_string()));
    assert_eq!(direct.status, 502);
}

// Guards: the second half of a decision, the response's status, which a caller reports by a call
// with the same request.
#[test]
fn a_status_is_reported_by_a_call() {
    let quota = json!({"name": "fails", "algorithm": "fixed-window", "limit": 1, "window": "366d"});
    let rule = json!({"name": "login", "key": ["client_ip"], "quotas": [quota],
        "charge": {"response_status": ["401"]}});
    let policy = json!({"version": 1, "rules": [rule]});
    let worker = Setup::new(policy).front(&trapping(CALLER)).service_binding("TOLLGATE").start();
    let mut client = worker.client();
    assert_eq!(call(&mut client, &from("192.0.2.1"))["answer"]["report"], "response_status");
    let report = |status: u16| json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1", "response_status": status});
    assert_eq!(call(&mut client, &report(200)), json!({"answer": {"charged": false}}));
    assert_eq!(call(&mut client, &report(401)), json!({"answer": {"charged": true}}));
    assert_eq!(call(&mut client, &from("192.0.2.1"))["answer"]["decision"], "deny");
}
