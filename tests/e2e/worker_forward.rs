//! Every request goes to the origin in the same way, whether a rule charges by the response or not:
//! method, framing and body.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tollgate_e2e::http::{ANSWER_WITHIN, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::{Received, serve};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// How a body is framed, the bytes after the head, and the body itself.
const FRAMINGS: [(&str, &str, &str); 5] = [
    ("", "", ""),
    ("content-length: 0\r\n", "", ""),
    ("content-length: 3\r\n", "abc", "abc"),
    ("transfer-encoding: chunked\r\n", "0\r\n\r\n", ""),
    ("transfer-encoding: chunked\r\n", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc"),
];

fn policy(charge: &Value) -> Value {
    let mut rule = json!({"name": "each", "key": [{"header": "x-user"}], "quotas":
        [{"name": "year", "algorithm": "sliding-log", "limit": 2, "window": "366d"}]});
    if !charge.is_null() {
        rule["charge"] = charge.clone();
    }
    json!({"version": 1, "rules": [rule]})
}

/// The status of the response to a request of these bytes.
fn status(worker: &Workerd, method: &str, user: &str, (head, body): (&str, &str)) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("a connection");
    stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a time limit");
    let head = format!("{method} / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n{head}\r\n{body}");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("a status line");
    String::from_utf8_lossy(&line[9..]).parse().expect("a status")
}

/// The `r` of the next response to `user`, whose own request is not charged.
fn left(worker: &Workerd, user: &str) -> String {
    let response = worker.client().send(&Request::get("/").header("x-user", user));
    assert_eq!(response.status, 200, "{user}: {}", response.text());
    response.header("ratelimit").expect("the field")
}

// Guards: a request that gets 502 without a request to the origin, only because a rule charges by
// the response; an origin that is blamed for it; and a client that is charged for it.
#[test]
fn method_framing_and_body_reach_the_origin_under_every_charge() {
    let seen = Arc::new(Mutex::new(Vec::<(String, Vec<u8>)>::new()));
    let origin = {
        let seen = Arc::clone(&seen);
        serve(move |request: &mut Received| {
            let body = request.body();
            seen.lock().expect("a log").push((request.method.clone(), body));
            request.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        })
    };
    for charge in [
        Value::Null,
        json!({"response_status": ["401"]}),
        json!({"response_status": ["401"], "reserve": true}),
        json!({"response_status": ["5xx"]}),
        json!({"response_status": ["4xx", "5xx"], "reserve": true, "on_abort": "charge"}),
    ] {
        let worker = Setup::new(policy(&charge)).binding("ORIGIN", &origin).start();
        for method in METHODS {
            for (i, (head, sent, body)) in FRAMINGS.into_iter().enumerate() {
                let user = format!("{method}{i}");
                let case = format!("{charge} {method} {head:?} {sent:?}");
                let status = status(&worker, method, &user, (head, sent));
                let reached = std::mem::take(&mut *seen.lock().expect("a log"));
                if ["GET", "HEAD"].contains(&method) && i == 4 {
                    assert_eq!((status, reached), (411, vec![]), "{case}");
                } else {
                    let expected = vec![(method.to_owned(), body.as_bytes().to_vec())];
                    assert_eq!((status, reached), (200, expected), "{case}");
                }
                if !charge.is_null() {
                    let places = if charge["reserve"] == true { 1 } else { 2 };
                    let field = left(&worker, &user);
                    assert!(field.contains(&format!(";r={places};")), "{case}: {field}");
                    seen.lock().expect("a log").clear();
                }
            }
        }
        let log = worker.log();
        assert!(!log.contains("failures:"), "{charge}: {log}");
    }
}

/// Throws where the request to the origin is created.
const BROKEN: &str = r#"
export { default, Limiter } from "./entry.mjs";

const Real = Request;
globalThis.Request = class extends Real {
  constructor(input, init) {
    super(input, init);
    if (this.headers.has("x-broken")) throw new Error("broken here");
  }
};
"#;

// Guards: an exception of Tollgate's own for which the origin is blamed and its client charged.
#[test]
fn an_exception_of_ours_is_a_500_that_is_never_charged() {
    let origin = serve(|request: &mut Received| {
        assert_eq!(request.header("x-broken"), None, "it was sent");
        request.answer("200 OK", "", "");
    });
    for charge in [
        json!({"response_status": ["5xx"]}),
        json!({"response_status": ["5xx"], "reserve": true}),
        json!({"response_status": ["401"], "reserve": true, "on_abort": "charge"}),
    ] {
        let setup = Setup::new(policy(&charge)).binding("ORIGIN", &origin);
        let worker = setup.front(BROKEN).start();
        for _ in 0..5 {
            let broken = Request::get("/").header("x-user", "u").header("x-broken", "yes");
            let response = worker.client().send(&broken);
            assert_eq!(response.status, 500, "{charge}: {}", response.text());
        }
        let places = if charge["reserve"] == true { 1 } else { 2 };
        let field = left(&worker, "u");
        assert!(field.contains(&format!(";r={places};")), "{charge}: {field}");
        let log = worker.log();
        assert!(log.contains("internal=1") && log.contains("broken here"), "{charge}: {log}");
        assert!(!log.contains("origin="), "{charge}: {log}");
    }
}

// Guards: an origin that is blamed for clients that break their uploads off, which any client can.
#[test]
fn a_client_that_breaks_off_is_no_failure_of_the_origin() {
    let begun = Arc::new(Mutex::new(0));
    let origin = {
        let begun = Arc::clone(&begun);
        serve(move |request: &mut Received| {
            if request.method == "GET" {
                return request.answer("200 OK", "", "");
            }
            *begun.lock().expect("a count") += 1;
            std::thread::sleep(ANSWER_WITHIN);
        })
    };
    for charge in [Value::Null, json!({"response_status": ["401"], "on_abort": "skip"})] {
        let worker = Setup::new(policy(&charge)).binding("ORIGIN", &origin).start();
        let before = *begun.lock().expect("a count");
        let mut client = TcpStream::connect(("127.0.0.1", worker.port)).expect("a connection");
        let head = "POST / HTTP/1.1\r\nhost: a\r\nx-user: u\r\ncontent-length: 10\r\n\r\nabc";
        client.write_all(head.as_bytes()).expect("sent");
        wait_until("the origin has it", ANSWER_WITHIN, || {
            (*begun.lock().expect("a count") > before).then_some(())
        });
        drop(client);
        // Longer than the Worker needs to find which end failed; a line would be in the log by
        // then.
        std::thread::sleep(std::time::Duration::from_secs(2));
        left(&worker, "v");
        let log = worker.log();
        assert!(!log.contains("failures:"), "{charge}: {log}");
    }
}
