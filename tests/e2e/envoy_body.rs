//! Costs in the bodies and trailers of responses, in a real Envoy with the module that reads them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::scripted::{Part, Scripted, answer};

use crate::envoy_server::{As, Envoy, Listener, Setup, filter_wasm, tollgate};

/// The module that reads bodies, next to the one under test.
pub fn full_wasm() -> PathBuf {
    filter_wasm().with_file_name("tollgate-envoy-full.wasm")
}

/// The filter with a policy, in that module.
fn full(policy: &Value) -> Value {
    let mut filter = tollgate(policy, "full", As::Text);
    filter["typed_config"]["config"]["vm_config"]["code"]["local"]["filename"] = json!(full_wasm());
    filter
}

/// 1,000 units of each user; a request is estimated at 10 and costs at most 500.
fn policy(actual: &Value) -> Value {
    json!({"version": 1, "rules": [{
        "name": "tokens",
        "key": [{"header": "x-user"}],
        "cost": {"estimate": 10, "max": 500, "actual": actual},
        "quotas": [{"limit": 1000, "window": "366d", "algorithm": "fixed-window"}],
    }]})
}

fn usage() -> Value {
    json!({"json": ["/usage/in", "/usage/out"], "weights": [1, 6]})
}

fn start(policy: &Value, origin: &Scripted) -> Envoy {
    let mut setup = Setup::new(2, vec![Listener::new("main", vec![full(policy)]).behind_origin()]);
    setup.origin = origin.port;
    setup.start()
}

fn get(path: &str, user: &str) -> Request {
    Request::get(path).header("x-user", user)
}

/// The units that a user has used, by a request that costs nothing.
fn used(envoy: &Envoy, user: &str) -> u64 {
    let answer = envoy.client().send(&get("/free", user));
    let field = answer.header("ratelimit").expect("the field");
    let rest = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    let rest: u64 = rest.and_then(|rest| rest.parse().ok()).expect("a number");
    990 - rest
}

/// A path, the fields and the body of its answer, the size of its pieces, and the units that it
/// costs.
type Row<'a> = (&'a str, &'a [&'a str], &'a [u8], usize, u64);

const JSON: &str = "content-type: application/json";
const STREAM: &str = "content-type: text/event-stream; charset=utf-8";

/// Answers by their paths, with one that costs nothing.
fn answers(rows: &[(&str, &[&str], &[u8], usize)]) -> HashMap<String, Vec<Part>> {
    let free = answer(&[JSON], br#"{"usage": {"in": 0, "out": 0}}"#, 99);
    let rows = rows
        .iter()
        .map(|(path, fields, body, size)| ((*path).to_owned(), answer(fields, body, *size)));
    rows.chain([("/free".to_owned(), free)]).collect()
}

const BODY: &[u8] =
    br#"{"id": "x", "choices": [{"message": {"content": "\"usage\": {\"in\": 9}"}}],
    "usage": {"in": 5, "out": 3, "details": {"in": 100}}}"#;

const EVENTS: &[u8] = b"data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}], \"usage\": null}\r\n\r\n\
: ping\r\n\r\nevent: usage\r\ndata: {\"choices\": [], \"usage\":\r\ndata: {\"in\": 7, \"out\": 2}}\r\n\r\n\
data: [DONE]\r\n\r\n";

// Guards: costs that are not found because of how a body is cut, typed or written, and estimates
// that a response replaces by less than it used.
#[test]
fn a_body_settles_the_cost_that_it_shows() {
    let json = |usage: &str| format!(r#"{{"usage": {usage}}}"#).into_bytes();
    let huge = json(r#"{"in": 1000000000000000000000000000000, "out": 0}"#);
    let negative = json(r#"{"in": -5, "out": 0}"#);
    let text = json(r#"{"in": "5", "out": 0}"#);
    let twice = br#"{"usage": {"in": 1, "out": 0}, "usage": {"in": 2, "out": 0}}"#;
    let same = br#"{"usage": {"in": 1, "out": 0}, "\u0075sage": {"in": 1, "out": 0}}"#;
    let deep = [&b"["[..]; 65].concat();
    let bytes = b"{\"a\": \"\xff\\ud800\", \"usage\": {\"in\": 4, \"out\": 2}}";
    let lines = b"{\"usage\": {\"in\": 1, \"out\": 1}}\n{\"usage\": {\"in\": 2, \"out\": 1}, \"done\": true}\n";
    let problem = "Content-Type: Application/Problem+JSON; charset=utf-8";
    let gzip = "content-encoding: gzip";
    let rows: [Row<'_>; 22] = [
        ("/whole", &[JSON], BODY, 9999, 23),
        ("/pieces", &[JSON], BODY, 5, 23),
        ("/stream", &[STREAM], EVENTS, 9999, 19),
        ("/stream-pieces", &[STREAM], EVENTS, 4, 19),
        ("/stream-open", &[STREAM], b"data: {\"usage\": {\"in\": 7, \"out\": 2}}", 40, 19),
        ("/stream-no-usage", &[STREAM], b"data: {}\n\ndata: [DONE]\n\n", 9999, 10),
        ("/lines", &["content-type: application/x-ndjson"], lines, 7, 8),
        ("/problem", &[problem], BODY, 9999, 23),
        ("/huge", &[JSON], &huge, 9999, 500),
        ("/negative", &[JSON], &negative, 9999, 10),
        ("/text", &[JSON], &text, 9999, 10),
        ("/twice", &[JSON], twice, 9999, 10),
        ("/same", &[JSON], same, 9999, 1),
        ("/deep", &[JSON], &deep, 9999, 10),
        ("/bytes", &[JSON], bytes, 9999, 16),
        ("/cut", &[JSON], &BODY[..BODY.len() - 1], 9999, 10),
        ("/gzip", &[JSON, gzip], BODY, 9999, 10),
        ("/plain", &[JSON, "content-encoding: identity"], BODY, 9999, 23),
        ("/html", &["content-type: text/html"], BODY, 9999, 10),
        ("/untyped", &[], BODY, 9999, 10),
        ("/types", &[JSON, "content-type: text/html"], BODY, 9999, 10),
        ("/empty", &[JSON], b"", 9999, 10),
    ];
    let table: Vec<_> = rows.iter().map(|(a, b, c, d, _)| (*a, *b, *c, *d)).collect();
    let origin = Scripted::start(answers(&table));
    let envoy = start(&policy(&usage()), &origin);
    for (path, _, body, _, units) in rows {
        let answer = envoy.client().send(&get(path, path));
        assert_eq!((answer.status, &answer.body[..]), (200, body), "{path}: it passes unchanged");
        assert_eq!(used(&envoy, path), units, "{path}");
    }
    let head = envoy.client().send(&Request::new("HEAD", "/whole").header("x-user", "head"));
    assert_eq!(head.status, 200);
    assert_eq!(used(&envoy, "head"), 10);
    let unknown =
        |reason: &str| envoy.stat(&format!("wasmcustom.tollgate.cost_unknown.reason={reason}"));
    assert_eq!(unknown("compressed"), 1);
    assert_eq!(unknown("content_type"), 3);
    assert_eq!(unknown("incomplete"), 1);
    assert_eq!(unknown("conflicting"), 1);
    assert_eq!(unknown("unreadable"), 3);
    assert_eq!(unknown("absent"), 3);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

/// Reads until `end` has come, and leaves.
fn leave_after(envoy: &Envoy, request: &Request, end: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", envoy.ports[0])).expect("a connection");
    stream.set_read_timeout(Some(READY_WITHIN)).expect("a time-out");
    stream.write_all(&request.to_bytes()).expect("taken");
    let mut read = Vec::new();
    while !read.windows(end.len()).any(|it| it == end) {
        let mut bytes = [0; 4096];
        let len = stream.read(&mut bytes).expect("more");
        assert!(len > 0, "it ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&bytes[..len]);
    }
}

// Guards: clients that leave after they have the text and before the response has ended, and
// streams whose events a module holds back.
#[test]
fn a_response_that_breaks_off_costs_what_it_showed() {
    let head = |kind: &str| {
        Part::Bytes(
            format!(
                "HTTP/1.1 200 OK\r\n{kind}\r\nconnection: close\r\ncontent-length: 999\r\n\r\n"
            )
            .into(),
        )
    };
    let event = Part::Bytes(b"data: {\"usage\": {\"in\": 7, \"out\": 2}}\n\n".into());
    let next = Part::Bytes(b"data: {\"usage\": {\"in\": 8".into());
    let json = Part::Bytes(br#"{"usage": {"in": 7, "out": 2}, "more": "#.into());
    let mut rows = answers(&[]);
    for (path, parts) in [
        ("/stream-left", vec![head(STREAM), event.clone(), next.clone(), Part::Hold]),
        ("/stream-broken", vec![head(STREAM), event, next]),
        ("/json-left", vec![head(JSON), json.clone(), Part::Hold]),
        ("/json-broken", vec![head(JSON), json]),
    ] {
        rows.insert(path.into(), parts);
    }
    let origin = Scripted::start(rows);
    let envoy = start(&policy(&usage()), &origin);
    for (path, end, units) in [
        ("/stream-left", &b"{\"in\": 8"[..], 19),
        ("/json-left", b"\"more\": ", 10),
        ("/stream-broken", b"{\"in\": 8", 19),
        ("/json-broken", b"\"more\": ", 10),
    ] {
        leave_after(&envoy, &get(path, path), end);
        wait_until("it is settled", READY_WITHIN, || (used(&envoy, path) == units).then_some(()));
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

#[test]
fn the_origin_is_asked_for_a_plain_body_where_the_policy_says_so() {
    let mut by = usage();
    by["identity"] = json!(true);
    for (actual, expected) in
        [(by, "accept-encoding: identity\r\n"), (usage(), "accept-encoding: gzip\r\n")]
    {
        let origin = Scripted::start(answers(&[]));
        let envoy = start(&policy(&actual), &origin);
        let request = get("/free", "u").header("accept-encoding", "gzip");
        assert_eq!(envoy.client().send(&request).status, 200);
        let heads = origin.heads();
        assert_eq!(heads.len(), 1);
        assert_eq!(heads[0].matches("accept-encoding").count(), 1, "{}", heads[0]);
        assert!(heads[0].contains(expected), "{}", heads[0]);
    }
}

// Guards: a module whose memory, or whose proxy's, grows with the body.
#[test]
fn a_body_of_a_hundred_megabytes_takes_no_memory() {
    const MEGABYTES: usize = 100;
    let piece = vec![b'a'; 1 << 20];
    let (begin, end) = (&b"{\"text\": \""[..], &b"\", \"usage\": {\"in\": 5, \"out\": 3}}"[..]);
    let length = begin.len() + end.len() + MEGABYTES * piece.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\n{JSON}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut rows = answers(&[]);
    let parts = vec![
        Part::Bytes(head.into_bytes()),
        Part::Bytes(begin.into()),
        Part::Repeat(piece, MEGABYTES),
        Part::Bytes(end.into()),
    ];
    rows.insert("/large".into(), parts);
    let origin = Scripted::start(rows);
    let envoy = start(&policy(&usage()), &origin);
    assert_eq!(used(&envoy, "large"), 0);
    let memory = || envoy.stat("wasmcustom.tollgate.memory_bytes");
    let before = (memory(), envoy.server.resident_bytes());
    let mut stream = TcpStream::connect(("127.0.0.1", envoy.ports[0])).expect("a connection");
    stream.set_read_timeout(Some(READY_WITHIN)).expect("a time-out");
    let request = get("/large", "large").header("connection", "close");
    stream.write_all(&request.to_bytes()).expect("taken");
    let (mut read, mut bytes) = (0, vec![0; 1 << 20]);
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        read += len;
    }
    assert!(read > length, "{read} of {length}");
    assert_eq!(used(&envoy, "large"), 23);
    assert!(memory() <= before.0 + (8 << 20), "{} after {}", memory(), before.0);
    let resident = envoy.server.resident_bytes();
    assert!(resident < before.1 + (48 << 20), "{resident} after {}", before.1);
}

#[test]
fn a_header_may_be_a_trailer() {
    let chunked = |fields: &str, trailers: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{fields}connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        vec![
            Part::Bytes(head.into_bytes()),
            Part::Bytes(format!("2\r\nok\r\n0\r\n{trailers}\r\n").into()),
        ]
    };
    let rows = [
        ("/free", "x-tokens: 0\r\n", "", 0),
        ("/trailer", "", "x-tokens: 40\r\n", 40),
        ("/both", "x-tokens: 30\r\n", "x-tokens: 40\r\n", 30),
        ("/two", "", "x-tokens: 40\r\nx-tokens: 41\r\n", 10),
        ("/none", "", "", 10),
    ];
    let table = rows
        .iter()
        .map(|(path, fields, trailers, _)| ((*path).to_owned(), chunked(fields, trailers)));
    let origin = Scripted::start(table.collect());
    let policy = policy(&json!({"header": "x-tokens"}));
    let mut setup = Setup::new(2, vec![Listener::new("main", vec![full(&policy)]).behind_origin()]);
    setup.origin = origin.port;
    setup.cluster = json!({"typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
        },
    }});
    let envoy = setup.start();
    for (path, _, _, units) in rows {
        assert_eq!(envoy.client().send(&get(path, path)).text(), "ok", "{path}");
        assert_eq!(used(&envoy, path), units, "{path}");
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.cost_unknown.reason=conflicting"), 1);
    assert_eq!(envoy.stat("wasmcustom.tollgate.cost_unknown.reason=absent"), 1);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Guards: a cost that stays an estimate for ever, because the module does not read it.
#[test]
fn the_other_modules_refuse_a_cost_in_the_body_by_name() {
    let filters = vec![tollgate(&policy(&usage()), "vm", As::Text)];
    let setup = Setup::new(1, vec![Listener::new("main", filters)]);
    let (mut server, _dir) = setup.start_in_vain();
    server.wait_for_exit();
    let log = server.log();
    let line = "rules[0].cost.actual: needs the module tollgate-envoy-full.wasm";
    assert!(log.contains(line), "{log}");
}

/// The policy of a recipe in docs/recipes.md.
fn recipe(heading: &str) -> Value {
    let (_, rest) = RECIPES.split_once(&format!("\n## {heading}\n")).expect("the recipe");
    let (_, rest) = rest.split_once("```json\n").expect("its policy");
    serde_json::from_str(rest.split_once("```").expect("its end").0).expect("JSON")
}

const RECIPES: &str = include_str!("../../docs/recipes.md");

// The recipe in front of a model server that streams: a month's tokens by what the stream shows,
// four streams at once, and ten minutes out after 20 wrong keys.
#[test]
fn a_model_server_that_streams_has_a_budget_and_four_places() {
    let mut policy = recipe("A model server: a budget, four at once, and no guessed keys");
    policy["rules"][1]["cost"]["actual"] = json!({"json": ["/usage/total_tokens"]});
    let events = b"data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}}]}\n\n\
        data: {\"choices\": [], \"usage\": {\"total_tokens\": 5000}}\n\ndata: [DONE]\n\n";
    let head = format!("HTTP/1.1 200 OK\r\n{STREAM}\r\nconnection: close\r\n\r\ndata: {{}}\n\n");
    let wrong = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let origin = Scripted::start(HashMap::from([
        ("/v1/chat".to_owned(), answer(&[STREAM], events, 7)),
        ("/v1/held".to_owned(), vec![Part::Bytes(head.into_bytes()), Part::Hold]),
        ("/v1/wrong".to_owned(), vec![Part::Bytes(wrong.into())]),
    ]));
    let envoy = start(&policy, &origin);
    let send = |path: &str| envoy.client().send(&Request::post(path, "{}").header("x-user", "ann"));
    let left = || {
        let answer = send("/v1/chat");
        let field = answer.header("ratelimit").expect("the field");
        let (_, rest) = field.split_once("\"tokens\";r=").expect("the tokens");
        (answer.status, rest.split(';').next().expect("a number").parse::<u64>().expect("a number"))
    };
    // What is left is after the estimate of 1,000; the stream showed 5,000.
    assert_eq!(left(), (200, 999_000));
    assert_eq!(left(), (200, 994_000));

    let mut held: Vec<_> = (0..4).map(|_| envoy.client()).collect();
    for client in &mut held {
        client.start(&Request::post("/v1/held", "{}").header("x-user", "ann")).expect("taken");
    }
    wait_until("four streams run", READY_WITHIN, || (origin.heads().len() == 6).then_some(()));
    let denied = send("/v1/chat");
    assert_eq!((denied.status, denied.header("retry-after")), (429, None));
    assert!(denied.text().contains("tokens.concurrency"), "{}", denied.text());
    drop(held);
    let next =
        wait_until("a place is free", READY_WITHIN, || Some(left()).filter(|it| it.0 == 200));
    // The four clients that left pay the estimate.
    assert_eq!(next.1, 994_000 - 4_000 - 4_000 - 1_000);

    for _ in 0..20 {
        assert_eq!(send("/v1/wrong").status, 401);
    }
    let out = send("/v1/chat");
    let wait: u64 = out.header("retry-after").and_then(|it| it.parse().ok()).expect("a wait");
    assert!(out.status == 429 && wait.abs_diff(600) <= 1, "{} {wait}", out.status);
}
