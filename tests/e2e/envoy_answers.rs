//! The responses to clients: the fields and bodies of docs/fields.md, byte for byte, and no input
//! that traps.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};

use crate::envoy_server::{As, Listener, Setup, tollgate};

fn layered() -> Value {
    json!({"version": 1, "rules": [{
        "name": "api",
        "key": [{"header": "x-key"}],
        "on_missing": "skip",
        "quotas": [
            {"name": "day", "limit": 1000, "window": "1d", "algorithm": "fixed-window"},
            {"name": "burst \"b\"", "limit": 2, "window": "1m"},
        ],
    }]})
}

fn field(response: &Response, name: &str) -> String {
    response.header(name).unwrap_or_else(|| panic!("no {name} in {:?}", response.headers))
}

// Every field and the body, for allowed and denied requests.
#[test]
fn a_refusal_says_what_the_draft_says() {
    let envoy = Setup::policy(1, &layered()).start();
    let (mut client, request) = (envoy.client(), Request::get("/").header("x-key", "k"));

    let allowed = client.send(&request);
    let policy = r#""day";q=1000;w=86400, "burst \"b\"";q=2;w=60"#;
    assert_eq!((allowed.status, allowed.text()), (200, "hello\n".into()));
    assert_eq!(field(&allowed, "ratelimit-policy"), policy);
    let limit = field(&allowed, "ratelimit");
    assert!(limit.starts_with("\"day\";r=999;t="), "{limit}");
    assert!(limit.ends_with(r#", "burst \"b\"";r=1;t=30"#), "{limit}");
    assert_eq!(allowed.header("retry-after"), None);
    assert_eq!(client.send(&request).status, 200);

    let denied = client.send(&request);
    assert_eq!(denied.status, 429);
    assert_eq!(field(&denied, "ratelimit-policy"), policy);
    let limit = field(&denied, "ratelimit");
    assert!(limit.starts_with("\"day\";r=998;t="), "not charged: {limit}");
    assert!(limit.ends_with(r#", "burst \"b\"";r=0;t=30"#), "{limit}");
    assert_eq!(field(&denied, "retry-after"), "30");
    assert_eq!(field(&denied, "cache-control"), "no-store");
    assert_eq!(field(&denied, "content-type"), "application/problem+json");
    let body: Value = serde_json::from_slice(&denied.body).expect("the body is JSON");
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "try again in 30 seconds",
        "violated-policies": ["burst \"b\""],
    });
    assert_eq!(body, expected);

    // No rule applies: nothing is added.
    let other = client.send(&Request::get("/"));
    assert_eq!((other.status, other.header("ratelimit")), (200, None));
}

// An origin may also limit; its fields must reach the client unchanged, next to Tollgate's.
#[test]
fn the_fields_of_the_origin_stay() {
    let mut origin = Listener::new("origin", vec![]);
    origin.routes = json!([{
        "match": {"prefix": "/"},
        "direct_response": {"status": 404, "body": {"inline_string": "none\n"}},
        "response_headers_to_add": [
            {"header": {"key": "ratelimit-policy", "value": "\"origin\";q=9;w=9"}},
            {"header": {"key": "ratelimit", "value": "\"origin\";r=5;t=5"}},
        ],
    }]);
    let filters = vec![tollgate(&layered(), "vm", As::Text)];
    let front = Listener::new("main", filters).behind_origin();
    let mut setup = Setup::new(1, vec![front, origin]);
    setup.origin = setup.listeners[1].port;
    let envoy = setup.start();
    let response = envoy.client().send(&Request::get("/").header("x-key", "k"));
    assert_eq!((response.status, response.text()), (404, "none\n".into()));
    let policies = response.all("ratelimit-policy");
    assert_eq!(policies.len(), 2, "{policies:?}");
    assert_eq!(policies[0], "\"origin\";q=9;w=9");
    assert_eq!(response.all("ratelimit")[0], "\"origin\";r=5;t=5");
    assert!(response.all("ratelimit")[1].contains("\"day\";r=999"));
}

// A trap takes the worker's VM down: every request after it would get 503.
#[test]
fn no_header_traps_and_none_can_hide() {
    let envoy = Setup::policy(1, &layered()).start();
    let mut client = envoy.client();
    let long = vec![b'a'; 16_000];
    let odd: [&[u8]; 6] = [b"\xff\xfe", b"\x80", b"", b"a\tb", b"a\x01b".as_slice(), &long];
    for value in odd {
        let request = Request::get("/").header("x-key", value);
        for expected in [200, 200, 429] {
            let status = client.send(&request).status;
            // Envoy itself rejects control characters; no other value may change the response.
            let refused = value.contains(&1);
            assert_eq!(status, if refused { 400 } else { expected }, "{value:?}");
        }
    }
    // A list of empty values is the empty value, whose quota has been used up.
    assert_eq!(client.send(&Request::get("/").header("x-key", ", ,")).status, 429);
    for target in ["/%", "/%ff%00", "//..//?", "/?\u{fc}", "*"] {
        let request = Request::get(target).header("x-key", target).header("x-odd", b"\xff");
        assert_ne!(client.send(&request).status, 503);
    }
    // A second line is a second value of the same header, and it is unknown which one the origin
    // uses.
    let twice = Request::get("/").header("x-key", "one").header("x-key", "two");
    let joined = Request::get("/").header("x-key", "one, two");
    let same = Request::get("/").header("x-key", "one").header("x-key", " one\t");
    let one = Request::get("/").header("x-key", "one");
    assert_eq!([&twice, &joined].map(|request| client.send(request).status), [400, 400]);
    assert_eq!([&same, &one, &same].map(|request| client.send(request).status), [200, 200, 429]);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// The forms that an operator may write: JSON in a string or as bytes, or YAML, which Envoy passes
// on as protobuf. A compiled policy may have the same forms; the slim module is tested with these.
#[test]
fn text_struct_and_bytes_are_the_same_policy() {
    let answers = [As::Text, As::Struct, As::Bytes].map(|form| {
        let filters = vec![tollgate(&layered(), "vm", form)];
        let envoy = Setup::new(1, vec![Listener::new("main", filters)]).start();
        let mut client = envoy.client();
        [(); 3].map(|()| {
            let response = client.send(&Request::get("/").header("x-key", "k"));
            (response.status, field(&response, "ratelimit-policy"), response.header("retry-after"))
        })
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    assert_eq!(answers[0][2].0, 429);
}
