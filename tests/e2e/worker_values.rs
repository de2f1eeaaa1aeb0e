//! Each credential and each host has one count, in any spelling: in front of an origin, and as
//! described to `POST /check`.
//!
//! Invariant: of all spellings that an origin reads as one value, exactly one request is allowed
//! under a limit of 1.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::values::{padded, unreadable};
use tollgate_e2e::workerd::{Setup, Workerd, answer};

use crate::worker_origin::serve;

const HOST: &str = "api.example.com";

fn policy(rule: &Value) -> Value {
    let mut rule = rule.clone();
    rule["name"] = json!("r");
    rule["quotas"] = json!([{"limit": 1, "window": "1h"}]);
    json!({"version": 1, "rules": [rule]})
}

/// In front of an origin that responds with 200.
fn in_front(rule: &Value) -> Workerd {
    let origin = serve(|request| request.answer("200 OK", "", "hello"));
    Setup::new(policy(rule)).binding("ORIGIN", origin).start()
}

fn status(worker: &Workerd, request: &Request) -> Option<u16> {
    worker.client().try_send(request).ok().map(|answer| answer.status)
}

fn lines(name: &str, values: &[&str]) -> Request {
    values.iter().fold(Request::get("/"), |request, value| request.header(name, value))
}

#[test]
fn a_credential_is_counted_once() {
    let worker = in_front(&json!({"key": [{"header": "x-api-key"}]}));
    let spellings = padded("secret");
    let statuses: Vec<_> =
        spellings.iter().map(|value| status(&worker, &lines("x-api-key", &[value]))).collect();
    assert_eq!(statuses[0], Some(200));
    assert!(statuses[1..].iter().all(|status| *status == Some(429)), "{statuses:?}");
    for same in [&["secret", "secret"][..], &["", "secret"], &[", secret,"]] {
        assert_eq!(status(&worker, &lines("x-api-key", same)), Some(429), "{same:?}");
    }
    for differ in [&["secret", "x"][..], &["y", "secret"], &["secret,z"]] {
        assert_eq!(status(&worker, &lines("x-api-key", differ)), Some(400), "{differ:?}");
    }
    assert_eq!(worker.databases().len(), 1, "nothing is asked of an object for what is malformed");
}

#[test]
fn a_cookie_is_counted_once() {
    let worker = in_front(&json!({"key": [{"cookie": "sid"}]}));
    assert_eq!(status(&worker, &lines("cookie", &["a=b; sid=secret"])), Some(200));
    for same in [&["sid=secret", "sid=secret"][..], &["sid=\"secret\""], &["sid=%73ecret"]] {
        assert_eq!(status(&worker, &lines("cookie", same)), Some(429), "{same:?}");
    }
    for differ in [&["sid=x", "sid=secret"][..], &["sid=x; sid=secret"]] {
        assert_eq!(status(&worker, &lines("cookie", differ)), Some(400), "{differ:?}");
    }
}

#[test]
fn no_spelling_of_a_host_goes_round_its_rule() {
    for rule in [json!({"key": [], "when": {"hosts": [HOST]}}), json!({"key": ["host"]})] {
        let worker = in_front(&rule);
        let to = |host: &str| status(&worker, &Request::get("/").header("host", host));
        assert_eq!(to(HOST), Some(200));
        for same in
            ["API.Example.COM", "api.example.com:80", "api.example.com:", "api.example.com."]
        {
            assert_eq!(to(same), Some(429), "{same}");
        }
        for wrong in unreadable(HOST) {
            let status = to(&wrong);
            assert_eq!(status, Some(400), "{wrong}");
        }
        let absolute =
            |target: &str, host: &str| status(&worker, &Request::get(target).header("host", host));
        // workerd passes on the line and not the target's host; neither selects the origin.
        assert_eq!(absolute("http://api.example.com/", "other.test"), Some(200));
        assert_eq!(absolute("http://other.test/", HOST), Some(429));
    }
}

// The caller describes the request as received, with all lines.
#[test]
fn a_described_request_is_read_alike() {
    let ask = |rule: &Value, requests: &[(Value, &str)]| {
        let worker = Setup::new(policy(rule)).start();
        for (request, result) in requests {
            let mut body = json!({"method": "GET", "path": "/"});
            let fields = request.as_object().expect("fields").clone();
            body.as_object_mut().expect("an object").extend(fields);
            let said = answer(&worker.client().send(&Request::post("/check", body.to_string())));
            assert_eq!(said["rules"], json!([{"name": "r", "result": result}]), "{request}");
            let decision = if *result == "allowed" { "allow" } else { "deny" };
            assert_eq!(said["decision"], decision, "{request}");
            if *result == "malformed" {
                assert_eq!(said["status"], 400, "{said}");
            }
        }
    };
    let key = |value: &str| json!({"headers": {"x-api-key": value}});
    let spellings = padded("secret");
    let mut requests: Vec<(Value, &str)> =
        spellings.iter().map(|value| (key(value), "denied")).collect();
    requests[0].1 = "allowed";
    requests.push((key("secret, x"), "malformed"));
    ask(&json!({"key": [{"header": "x-api-key"}]}), &requests);
    let mut requests =
        vec![(json!({"host": HOST}), "allowed"), (json!({"host": "API.example.com:8"}), "denied")];
    let wrong = unreadable(HOST);
    requests.extend(wrong.iter().map(|host| (json!({"host": host}), "malformed")));
    ask(&json!({"key": ["host"]}), &requests);
}
