//! The service `POST /check`: every field of its response, and every kind of invalid request.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

fn worker(rules: Value) -> Workerd {
    Setup::new(json!({"version": 1, "rules": rules})).start()
}

fn quota(name: &str, limit: u64) -> Value {
    json!({"name": name, "algorithm": "fixed-window", "limit": limit, "window": "366d"})
}

fn ask(worker: &Workerd, body: &Value) -> Value {
    answer(&worker.client().send(&Request::post("/check", body.to_string())))
}

/// The problem document that `response` must be.
fn problem(response: &Response, status: u16) -> Value {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("content-type").as_deref(), Some("application/problem+json"));
    assert_eq!(response.header("cache-control").as_deref(), Some("no-store"));
    let document: Value = serde_json::from_slice(&response.body).expect("a problem is JSON");
    assert_eq!(document["status"], json!(status));
    document
}

// Guards: the contract of the response, field by field, for a request that is allowed and one that
// is denied.
#[test]
fn the_answer_has_exactly_the_documented_fields() {
    let worker = worker(json!([
        {"name": "api", "when": {"paths": ["/api/**"]}, "key": ["client_ip"], "quotas": [quota("api-year", 1)]},
        {"name": "post", "when": {"methods": ["POST"]}, "key": [], "quotas": [quota("posts", 9)]},
    ]));
    let request = json!({"method": "GET", "host": "example.com", "path": "/api/x?y=z",
        "headers": {"X-Any": "value"}, "client_ip": "192.0.2.1"});
    let allowed = ask(&worker, &request);
    let fields: Vec<_> = allowed.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(fields, ["decision", "headers", "retry_after_ms", "rules", "violated"]);
    assert_eq!(allowed["decision"], "allow");
    assert_eq!(allowed["rules"], json!([{"name": "api", "result": "allowed"}]));
    assert_eq!(allowed["violated"], json!([]));
    assert_eq!(allowed["retry_after_ms"], Value::Null);
    let names: Vec<_> = allowed["headers"].as_object().expect("fields").keys().cloned().collect();
    assert_eq!(names, ["ratelimit", "ratelimit-policy"]);
    assert_eq!(allowed["headers"]["ratelimit-policy"], "\"api-year\";q=1;w=31622400");

    let denied = ask(&worker, &request);
    assert_eq!(denied["decision"], "deny");
    assert_eq!(denied["rules"], json!([{"name": "api", "result": "denied"}]));
    assert_eq!(denied["violated"], json!(["api-year"]));
    let wait = denied["retry_after_ms"].as_u64().expect("a wait");
    let seconds = denied["headers"]["retry-after"].as_str().expect("retry-after");
    assert_eq!(seconds.parse(), Ok(wait.div_ceil(1000)));
    assert_eq!(denied["headers"]["cache-control"], "no-store");
    assert_eq!(denied["headers"]["ratelimit"], format!("\"api-year\";r=0;t={seconds}"));

    // No rule applies: allowed, and no headers to copy. IPv6 and a minimal request are valid.
    let least = ask(&worker, &json!({"method": "GET", "path": "/", "client_ip": "2001:db8::1"}));
    let expected = json!({"decision": "allow", "rules": [], "violated": [], "retry_after_ms": null, "headers": {}});
    assert_eq!(least, expected);
    let two = ask(&worker, &json!({"method": "POST", "path": "/api/x", "client_ip": "192.0.2.2"}));
    assert_eq!(two["rules"].as_array().map(Vec::len), Some(2), "every rule that matches applies");
}

// Guards: `delay`, which is neither allow nor deny: the response states how long to hold the
// request.
#[test]
fn a_queue_answers_delay_and_how_long() {
    let queue = json!({"name": "queue", "algorithm": "leaky-queue", "limit": 2, "window": "20s", "burst": 2});
    let worker = worker(json!([{"name": "q", "key": [], "quotas": [queue]}]));
    let request = json!({"method": "GET", "path": "/"});
    assert_eq!(ask(&worker, &request)["decision"], "allow");
    let delayed = ask(&worker, &request);
    assert_eq!(delayed["decision"], "delay");
    assert_eq!(delayed["rules"], json!([{"name": "q", "result": "delayed"}]));
    assert_eq!(delayed["retry_after_ms"], Value::Null);
    let delay = delayed["delay_ms"].as_u64().expect("delay_ms");
    assert!((8_000..=10_000).contains(&delay), "{delay}");
    assert_eq!(ask(&worker, &request)["decision"], "deny");
}

// Guards: input that is silently half understood. Every mistake is reported with its field and the
// allowed values, all at once; and nothing is charged.
#[test]
fn a_wrong_request_is_told_every_mistake() {
    let worker = worker(json!([{"name": "all", "key": [], "quotas": [quota("one", 1)]}]));
    let mut client = worker.client();
    let mut mistakes = |body: &str| -> Value {
        let document = problem(&client.send(&Request::post("/check", body)), 400);
        document["errors"].clone()
    };
    let body = r#"{"method":7,"path":"x","hots":"a","headers":{"a":1},"client_ip":"300.1.1.1","country":"D","asn":"1"}"#;
    let expected = json!([
        {"path": "", "detail": "unknown field \"hots\"; did you mean \"host\"?"},
        {"path": "method", "detail": "7 is not a request method; use a token such as \"GET\""},
        {"path": "path", "detail": "\"x\" is not a path; use one that begins with \"/\""},
        {"path": "headers.a", "detail": "1 is not a header value; use one line of text"},
        {"path": "client_ip", "detail": "\"300.1.1.1\" is not an address; use IPv4 or IPv6 without a port"},
        {"path": "country", "detail": "\"D\" is not a country; use two letters, such as \"DE\""},
        {"path": "asn", "detail": "\"1\" is not a system number; use 0 to 4294967295"},
    ]);
    assert_eq!(mistakes(body), expected);
    let no_json =
        json!([{"path": "", "detail": "not JSON: EOF while parsing a value at line 1 column 0"}]);
    assert_eq!(mistakes(""), no_json);
    for broken in [
        "{",
        "[]",
        "null",
        "\"x\"",
        "{\"method\":\"GET\"}",
        "\u{0}",
        "{\"method\":\"GET\",\"path\":\"/\"} x",
    ] {
        assert!(mistakes(broken).as_array().is_some_and(|errors| !errors.is_empty()), "{broken}");
    }
    let unread = client.send(&Request::post("/check", [0xff, 0xfe]));
    problem(&unread, 400);
    // Nothing above was charged: the only unit is still there.
    assert_eq!(ask(&worker, &json!({"method": "GET", "path": "/"}))["decision"], "allow");
}

// Guards: the edges of the interface: body size at its limit, other methods, other paths.
#[test]
fn the_interface_is_bounded() {
    let worker = worker(json!([{"name": "all", "key": [], "quotas": [quota("many", 1_000_000)]}]));
    let mut client = worker.client();
    let body = |length: usize| {
        let start = r#"{"method":"GET","path":"/"#;
        format!("{start}{}\"}}", "a".repeat(length - start.len() - 2))
    };
    assert_eq!(client.send(&Request::post("/check", body(65_536))).status, 200);
    problem(&worker.client().send(&Request::post("/check", body(65_537))), 413);
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let response = worker.client().send(&Request::new(method, "/check"));
        problem(&response, 405);
        assert_eq!(response.header("allow").as_deref(), Some("POST"), "{method}");
    }
    for path in ["/", "/check/", "/checks", "/.well-known/tollgate"] {
        problem(&worker.client().send(&Request::get(path)), 404);
    }
    let health = worker.client().send(&Request::post("/.well-known/tollgate/health", "x"));
    problem(&health, 405);
    assert_eq!(health.header("allow").as_deref(), Some("GET, HEAD"));
    // A query does not change the path.
    let body = json!({"method": "GET", "path": "/"}).to_string();
    assert_eq!(client.send(&Request::post("/check?trace=1", body)).status, 200);
}

// Guards: several requests at once: each gets the response that it would get alone, in its place,
// whatever the others are; counted exactly; and bounded.
#[test]
fn a_batch_is_answered_one_by_one_in_order() {
    let worker = worker(json!([
        {"name": "year", "key": ["client_ip"], "quotas": [quota("year", 3)]},
    ]));
    let from = |address: &str| json!({"method": "GET", "path": "/", "client_ip": address});
    let alone = ask(&worker, &from("192.0.2.9"));
    let (one, other) = (from("192.0.2.1"), from("192.0.2.2"));
    let wrong = json!({"method": 7, "path": "/"});
    let batch = json!({"requests": [other, one, wrong, one, one, "x", one, one]});
    let answer = ask(&worker, &batch);
    assert_eq!(answer.as_object().map(|all| all.len()), Some(1), "{answer}");
    let answers = answer["answers"].as_array().expect("a list").clone();
    // Except for the seconds that passed in between.
    let timeless = |answer: &Value| {
        let text = answer.to_string();
        let mut parts = text.split(";t=");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| all + part.trim_start_matches(|it: char| it.is_ascii_digit()))
    };
    assert_eq!((answers.len(), timeless(&answers[0])), (8, timeless(&alone)));
    let detail = "7 is not a request method; use a token such as \"GET\"";
    assert_eq!(
        answers[2],
        json!({"type": "about:blank", "title": "Bad Request", "status": 400,
        "detail": "the check request is wrong; see errors",
        "errors": [{"path": "requests[2].method", "detail": detail}]})
    );
    assert_eq!(
        answers[5]["errors"],
        json!([{"path": "requests[5]", "detail": "\"x\" is not an object"}])
    );
    let decided: Vec<&Value> = [1, 3, 4, 6, 7].iter().map(|i| &answers[*i]["decision"]).collect();
    assert_eq!(decided.iter().filter(|it| **it == "allow").count(), 3, "{decided:?}");
    assert_eq!(decided.iter().filter(|it| **it == "deny").count(), 2, "{decided:?}");

    let mut client = worker.client();
    let mut send = |requests: Value| {
        client.send(&Request::post("/check", json!({"requests": requests}).to_string()))
    };
    let many = |count: usize| Value::from(vec![json!({"method": "GET", "path": "/"}); count]);
    assert_eq!(send(many(100)).status, 200);
    for (wrong, detail) in [
        (many(101), "has 101 items; use at most 100"),
        (json!([]), "is empty; give at least one"),
        (json!({}), "an object is not a list; use [{...}]"),
    ] {
        let errors = problem(&send(wrong), 400)["errors"].clone();
        assert_eq!(errors, json!([{"path": "requests", "detail": detail}]));
    }
}

// Guards: a service that is open to any client. With CHECK_TOKEN only its bearer is served.
#[test]
fn a_token_closes_the_service() {
    let policy = json!({"version": 1, "rules": []});
    let worker = Setup::new(policy).binding("CHECK_TOKEN", "s3cret").start();
    let request = || check_request("GET", "/", "192.0.2.1");
    for wrong in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret"] {
        let response = worker.client().send(&request().header("authorization", wrong));
        problem(&response, 401);
        assert_eq!(response.header("www-authenticate").as_deref(), Some("Bearer"), "{wrong}");
    }
    problem(&worker.client().send(&request()), 401);
    let right = request().header("authorization", "Bearer s3cret");
    assert_eq!(answer(&worker.client().send(&right))["decision"], "allow");
    // The health report needs no token.
    let health = worker.client().send(&Request::get("/.well-known/tollgate/health"));
    let report: Value = serde_json::from_slice(&health.body).expect("JSON");
    assert_eq!(
        (health.status, &report["status"], &report["rules"]),
        (200, &json!("ok"), &json!(0))
    );
}

// Guards: names of objects from which keys can be read or guessed. The platform stores names in
// clear text, so no address or header value is in any file of the objects, and HASH_KEY changes
// every name.
#[test]
fn names_of_objects_are_hashes_with_a_secret() {
    let rules = json!([{"name": "all", "key": ["client_ip", {"header": "x-api-key"}], "quotas": [quota("q", 9)]}]);
    let policy = json!({"version": 1, "rules": rules});
    let body = json!({"method": "GET", "path": "/", "client_ip": "198.51.100.77",
        "headers": {"x-api-key": "topsecretvalue"}});
    let object = |secret: &str| {
        let worker = Setup::new(&policy).binding("HASH_KEY", secret).start();
        assert_eq!(ask(&worker, &body)["decision"], "allow");
        for bytes in worker.stored_bytes() {
            for clear in ["198.51.100.77", "topsecretvalue"] {
                assert!(
                    !bytes.windows(clear.len()).any(|w| w == clear.as_bytes()),
                    "{clear} is stored"
                );
            }
        }
        worker
            .databases()
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_owned()))
            .collect::<Vec<_>>()
    };
    let (first, second) = (object("one"), object("two"));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
    assert_eq!(first, object("one"));
}
