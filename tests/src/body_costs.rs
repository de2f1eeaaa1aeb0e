//! Responses that show their cost in the body, and the units that each costs: every surface that
//! reads bodies charges the same, and counts the same reasons where a cost is unknown.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::http::{Request, Response};
use crate::process::READY_WITHIN;
use crate::scripted::{Part, answer};

pub const JSON: &str = "content-type: application/json";
pub const STREAM: &str = "content-type: text/event-stream; charset=utf-8";

const LIMIT: u64 = 1000;
const ESTIMATE: u64 = 10;

/// A body that costs 23 units.
pub const BODY: &[u8] =
    br#"{"id": "x", "choices": [{"message": {"content": "\"usage\": {\"in\": 9}"}}],
    "usage": {"in": 5, "out": 3, "details": {"in": 100}}}"#;

const EVENTS: &[u8] = b"data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}], \"usage\": null}\r\n\r\n\
: ping\r\n\r\nevent: usage\r\ndata: {\"choices\": [], \"usage\":\r\ndata: {\"in\": 7, \"out\": 2}}\r\n\r\n\
data: [DONE]\r\n\r\n";

const LINES: &[u8] = b"{\"usage\": {\"in\": 1, \"out\": 1}}\n\
    {\"usage\": {\"in\": 2, \"out\": 1}, \"done\": true}\n";

/// Longer than the pieces in which any surface reads.
const LONG: usize = 200_000;

/// 1,000 units of each user; a request is estimated at 10 and costs at most 500.
pub fn policy(actual: &Value) -> Value {
    json!({"version": 1, "rules": [{
        "name": "tokens",
        "key": [{"header": "x-user"}],
        "cost": {"estimate": ESTIMATE, "max": 500, "actual": actual},
        "quotas": [{"limit": LIMIT, "window": "366d", "algorithm": "fixed-window"}],
    }]})
}

/// Tokens of a request and, at six times the price, of its answer.
pub fn usage() -> Value {
    json!({"json": ["/usage/in", "/usage/out"], "weights": [1, 6]})
}

/// A user's request.
pub fn get(path: &str, user: &str) -> Request {
    Request::get(path).header("x-user", user)
}

/// The units that the user had used, as the response to a request for `/free` shows them.
pub fn used_before(response: &Response) -> u64 {
    let field = response.header("ratelimit").expect("the field");
    let rest = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    let rest: u64 = rest.and_then(|rest| rest.parse().ok()).expect("a number");
    LIMIT - ESTIMATE - rest
}

/// A response, and its cost.
pub struct BodyCost {
    pub path: &'static str,
    fields: Vec<&'static str>,
    pub body: Vec<u8>,
    /// The bytes that the origin sends at once.
    piece: usize,
    pub units: u64,
    /// Why the cost is unknown, if it is.
    pub unknown: Option<&'static str>,
}

const ALL: usize = usize::MAX;

fn known(
    path: &'static str,
    field: &'static str,
    body: impl Into<Vec<u8>>,
    piece: usize,
    units: u64,
) -> BodyCost {
    BodyCost { path, fields: vec![field], body: body.into(), piece, units, unknown: None }
}

fn unknown(
    path: &'static str,
    fields: &[&'static str],
    body: impl Into<Vec<u8>>,
    reason: &'static str,
) -> BodyCost {
    let (fields, body) = (fields.to_vec(), body.into());
    BodyCost { path, fields, body, piece: ALL, units: ESTIMATE, unknown: Some(reason) }
}

/// All of them. `/free` costs nothing.
pub fn responses() -> Vec<BodyCost> {
    let of = |usage: &str| format!(r#"{{"usage": {usage}}}"#).into_bytes();
    let long = |byte: &str| byte.repeat(LONG);
    let text = format!(r#"{{"text": "{}", "usage": {{"in": 5, "out": 3}}}}"#, long("a"));
    let name = format!(r#"{{"usage{}": 1, "usage": {{"in": 5, "out": 3}}}}"#, long("a"));
    let same = br#"{"usage": {"in": 1, "out": 0}, "\u0075sage": {"in": 1, "out": 0}}"#;
    let twice = br#"{"usage": {"in": 1, "out": 0}, "usage": {"in": 2, "out": 0}}"#;
    let bytes = b"{\"a\": \"\xff\\ud800\", \"usage\": {\"in\": 4, \"out\": 2}}";
    let problem = "Content-Type: Application/Problem+JSON; charset=utf-8";
    let mut plain = known("/plain", JSON, BODY, ALL, 23);
    plain.fields.push("content-encoding: identity");
    vec![
        known("/free", JSON, of(r#"{"in": 0, "out": 0}"#), ALL, 0),
        known("/whole", JSON, BODY, ALL, 23),
        known("/pieces", JSON, BODY, 5, 23),
        known("/stream", STREAM, EVENTS, ALL, 19),
        known("/stream-pieces", STREAM, EVENTS, 4, 19),
        known("/stream-open", STREAM, b"data: {\"usage\": {\"in\": 7, \"out\": 2}}", 40, 19),
        known("/lines", "content-type: application/x-ndjson", LINES, 7, 8),
        known("/problem", problem, BODY, ALL, 23),
        plain,
        known("/same", JSON, same, ALL, 1),
        known("/bytes", JSON, bytes, ALL, 16),
        known("/huge", JSON, of(&format!(r#"{{"in": 1{}, "out": 0}}"#, "0".repeat(30))), ALL, 500),
        known("/long-text", JSON, text, ALL, 23),
        known("/long-name", JSON, name, ALL, 23),
        known("/long-digits", JSON, of(&format!(r#"{{"in": {}, "out": 0}}"#, long("7"))), ALL, 500),
        unknown("/long-value", &[JSON], of(&format!(r#"{{"in": "{}"}}"#, long("7"))), "unreadable"),
        unknown("/negative", &[JSON], of(r#"{"in": -5, "out": 0}"#), "unreadable"),
        unknown("/text", &[JSON], of(r#"{"in": "5", "out": 0}"#), "unreadable"),
        unknown("/deep", &[JSON], "[".repeat(65), "unreadable"),
        unknown("/twice", &[JSON], twice, "conflicting"),
        unknown("/cut", &[JSON], &BODY[..BODY.len() - 1], "incomplete"),
        unknown("/gzip", &[JSON, "content-encoding: gzip"], gzip(BODY), "compressed"),
        unknown("/html", &["content-type: text/html"], BODY, "content_type"),
        unknown("/untyped", &[], BODY, "content_type"),
        unknown("/types", &[JSON, "content-type: text/html"], BODY, "content_type"),
        unknown("/stream-silent", &[STREAM], "data: {}\n\ndata: [DONE]\n\n", "absent"),
        unknown("/empty", &[JSON], "", "absent"),
    ]
}

/// The reasons of unknown costs, and how often each is counted for these responses.
pub fn reasons(responses: &[BodyCost]) -> HashMap<&'static str, u64> {
    let mut counts = HashMap::new();
    for reason in responses.iter().filter_map(|response| response.unknown) {
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// The parts of the responses, for an origin.
pub fn parts(responses: &[BodyCost]) -> HashMap<String, Vec<Part>> {
    let parts = |it: &BodyCost| (it.path.to_owned(), answer(&it.fields, &it.body, it.piece));
    responses.iter().map(parts).collect()
}

/// A response that breaks off, or that its client does not read to its end.
pub struct BrokenBody {
    pub path: &'static str,
    pub parts: Vec<Part>,
    /// Its last bytes before the client leaves.
    pub end: &'static [u8],
    pub units: u64,
}

/// A stream costs what it showed until then, a document its estimate. Each twice: the origin sends
/// on until the client has left, or ends the connection.
pub fn broken() -> [BrokenBody; 4] {
    let head = |field: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{field}\r\nconnection: close\r\ncontent-length: 999999\r\n\r\n"
        );
        Part::Bytes(head.into())
    };
    let event = Part::Bytes(b"data: {\"usage\": {\"in\": 7, \"out\": 2}}\n\n".into());
    let next = Part::Bytes(b"data: {\"usage\": {\"in\": 8".into());
    let json = Part::Bytes(br#"{"usage": {"in": 7, "out": 2}, "more": "#.into());
    let blanks = Part::Endless(b" ".into());
    let broken = |path, parts, end, units| BrokenBody { path, parts, end, units };
    let stream = vec![head(STREAM), event, next];
    let document = vec![head(JSON), json];
    let endless = |parts: &[Part]| [parts, std::slice::from_ref(&blanks)].concat();
    let (in_event, in_document) = (&b"{\"in\": 8"[..], &b"\"more\": "[..]);
    [
        broken("/stream-left", endless(&stream), in_event, 19),
        broken("/json-left", endless(&document), in_document, ESTIMATE),
        broken("/stream-broken", stream, in_event, 19),
        broken("/json-broken", document, in_document, ESTIMATE),
    ]
}

/// A body of a hundred megabytes that costs 23 units, and its length.
pub fn large() -> (usize, Vec<Part>) {
    const MEGABYTES: usize = 100;
    let piece = vec![b'a'; 1 << 20];
    let (begin, end) = (&b"{\"text\": \""[..], &b"\", \"usage\": {\"in\": 5, \"out\": 3}}"[..]);
    let length = begin.len() + end.len() + MEGABYTES * piece.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\n{JSON}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let parts = vec![
        Part::Bytes(head.into()),
        Part::Bytes(begin.into()),
        Part::Repeat(piece, MEGABYTES),
        Part::Bytes(end.into()),
    ];
    (length, parts)
}

fn connect(port: u16, request: &Request) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(READY_WITHIN)).expect("a time-out");
    stream.write_all(&request.to_bytes()).expect("taken");
    stream
}

/// Reads the response until `end` has come, and leaves.
///
/// # Panics
/// The response ends before.
pub fn leave_after(port: u16, request: &Request, end: &[u8]) {
    let mut stream = connect(port, request);
    let mut read = Vec::new();
    while !read.windows(end.len()).any(|it| it == end) {
        let mut bytes = [0; 4096];
        let len = stream.read(&mut bytes).expect("more");
        assert!(len > 0, "it ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&bytes[..len]);
    }
}

/// Reads the response to its end; returns the number of its bytes, the head's included.
pub fn read_all(port: u16, request: &Request) -> usize {
    let request = request.clone().header("connection", "close");
    let mut stream = connect(port, &request);
    let (mut read, mut bytes) = (0, vec![0; 1 << 20]);
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        read += len;
    }
    read
}
