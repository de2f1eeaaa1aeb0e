//! In front of an origin: an allowed request passes as if there were no proxy, a denied one gets
//! the response of docs/fields.md, and the origin does not see it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{ANSWER_WITHIN, Request, Response};
use tollgate_e2e::process::read;
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::{Received, serve};

const FIELDS: [&str; 2] = ["ratelimit-policy", "ratelimit"];

fn policy(limit: u64) -> Value {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    json!({"version": 1, "rules": [{"name": "all", "key": ["client_ip"], "quotas": [quota]}]})
}

fn in_front_of(origin: &str, policy: &Value) -> Workerd {
    Setup::new(policy).binding("ORIGIN", origin).start()
}

fn from(client_ip: &str, request: Request) -> Request {
    request.header("cf-connecting-ip", client_ip)
}

fn send(worker: &Workerd, request: Request) -> Response {
    worker.client().send(&from("192.0.2.1", request))
}

// Guards: everything of a request and of a response that a proxy can lose: method, target with its
// escapes and query, repeated and odd headers, a large body, the status, two Set-Cookie lines, a
// redirect that must not be followed, an encoded body that must not be decoded, a body that must be
// absent.
#[test]
fn an_admitted_request_and_its_response_pass_unchanged() {
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    let origin = serve(move |request| {
        let body = request.body();
        log.lock().expect("a log").push((
            request.method.clone(),
            request.target.clone(),
            request.headers.clone(),
            body.clone(),
        ));
        match request.target.as_str() {
            "/cookies" => request.answer("200 OK", "set-cookie: a=1\r\nset-cookie: b=2\r\n", "c"),
            "/redirect" => request.answer("302 Found", "location: /elsewhere\r\n", ""),
            "/gzip" => request.answer("200 OK", "content-encoding: gzip\r\n", GZIP),
            "/teapot" => request.answer("418 I'm a teapot", "x-kind: short\r\n", "stout"),
            "/nothing" => request.send("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
            _ => request.answer("200 OK", "content-type: text/plain\r\n", body),
        }
    });
    let worker = in_front_of(&origin, &policy(1000));

    let large: Vec<u8> = (0..3_000_000_u32).flat_map(|i| i.to_le_bytes()).take(5_000_000).collect();
    let post = Request::post("/a%2Fb/%c3%a4?q=1&q=%20", large.clone());
    let answer = send(&worker, post.header("x-any", "one").header("x-any", "two"));
    assert_eq!((answer.status, answer.body == large), (200, true), "5 MB there and back");
    {
        let seen = seen.lock().expect("a log");
        let (method, target, headers, body) = seen.last().expect("a request");
        assert_eq!((method.as_str(), target.as_str()), ("POST", "/a%2Fb/%c3%a4?q=1&q=%20"));
        let any: Vec<_> = headers.iter().filter(|(name, _)| name == "x-any").collect();
        assert_eq!(any.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert!(*body == large);
    }
    let cookies = send(&worker, Request::get("/cookies"));
    assert_eq!(cookies.all("set-cookie"), ["a=1", "b=2"]);
    let redirect = send(&worker, Request::get("/redirect"));
    assert_eq!((redirect.status, redirect.header("location")), (302, Some("/elsewhere".into())));
    let gzip = send(&worker, Request::get("/gzip").header("accept-encoding", "gzip"));
    assert_eq!(gzip.header("content-encoding").as_deref(), Some("gzip"));
    assert_eq!(gzip.body, GZIP);
    let teapot = send(&worker, Request::new("DELETE", "/teapot"));
    assert_eq!((teapot.status, teapot.text().as_str()), (418, "stout"));
    assert_eq!(teapot.header("x-kind").as_deref(), Some("short"));
    let nothing = send(&worker, Request::get("/nothing"));
    assert_eq!((nothing.status, nothing.body.len()), (204, 0));
    for response in [answer, cookies, redirect, gzip, teapot, nothing] {
        assert!(FIELDS.iter().all(|name| response.header(name).is_some()), "{response:?}");
    }
    let methods: Vec<_> = seen.lock().expect("a log").iter().map(|seen| seen.0.clone()).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "GET", "DELETE", "GET"], "no redirect was followed");
}

/// `hello` compressed.
const GZIP: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36,
    5, 0, 0, 0,
];

// Guards: buffering. The origin sends an event only after the client has read the one before, and
// reads the first half of an upload before the client has sent the second: a proxy that buffers
// waits for ever.
#[test]
fn bodies_stream_both_ways() {
    let (read, was_read) = mpsc::channel::<()>();
    let (arrived, has_arrived) = mpsc::channel::<()>();
    let (was_read, arrived) = (Mutex::new(was_read), Mutex::new(arrived));
    let origin = serve(move |request: &mut Received| {
        if request.method == "POST" {
            assert_eq!(request.piece(5), b"first");
            arrived.lock().expect("a channel").send(()).expect("the test went away");
            assert_eq!(request.piece(6), b"second");
            return request.answer("200 OK", "", "both");
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        request.send(head);
        for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
            request.send(format!("{:x}\r\n{event}\r\n", event.len()));
            let was_read = was_read.lock().expect("a channel");
            was_read.recv_timeout(ANSWER_WITHIN).expect("the event did not arrive");
        }
        request.send("0\r\n\r\n");
    });
    let worker = in_front_of(&origin, &policy(1000));

    let mut stream = connect(&worker);
    let request = from("192.0.2.1", Request::get("/events"));
    stream.write_all(&request.to_bytes()).expect("sent");
    let mut seen = String::new();
    for event in ["data: 1", "data: 2", "data: 3"] {
        read_until(&mut stream, &mut seen, event);
        read.send(()).expect("the origin went away");
    }
    assert!(seen.contains("text/event-stream"), "{seen}");
    assert!(seen.to_ascii_lowercase().contains("ratelimit: "), "{seen}");

    let mut stream = connect(&worker);
    let head =
        "POST / HTTP/1.1\r\nhost: x\r\ncf-connecting-ip: 192.0.2.1\r\ncontent-length: 11\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(b"first").expect("sent");
    has_arrived.recv_timeout(ANSWER_WITHIN).expect("the first half did not reach the origin");
    stream.write_all(b"second").expect("sent");
    read_until(&mut stream, &mut String::new(), "both");
}

fn connect(worker: &Workerd) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("a connection");
    stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a time limit");
    stream
}

/// Continues to read until `end` was seen.
fn read_until(stream: &mut TcpStream, seen: &mut String, end: &str) {
    let mut piece = [0; 4096];
    while !seen.contains(end) {
        let n =
            read(stream, &mut piece).unwrap_or_else(|e| panic!("{end} did not come: {e}; {seen}"));
        assert!(n > 0, "closed before {end}: {seen}");
        seen.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
}

// Guards: an upgrade that the proxy handles itself instead of passing it on.
#[test]
fn a_websocket_passes() {
    let origin = serve(|request| {
        assert_eq!(request.header("upgrade"), Some("websocket"));
        // RFC 6455, 1.3: the example key and its accept value are not used; workerd makes its own
        // key.
        let accept = accept_key(request.header("sec-websocket-key").expect("a key"));
        request.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        ));
        request.send([0x81, 5, b'h', b'e', b'l', b'l', b'o']);
        let masked = request.piece(6 + 4);
        let text: Vec<u8> =
            masked[6..].iter().zip(masked[2..6].iter().cycle()).map(|(b, m)| b ^ m).collect();
        assert_eq!(text, b"pong");
        request.send([0x81, 2, b'o', b'k']);
        request.send([0x88, 2, 0x03, 0xe8]);
    });
    let worker = in_front_of(&origin, &policy(1000));
    let mut stream = connect(&worker);
    let head = "GET /chat HTTP/1.1\r\nhost: x\r\ncf-connecting-ip: 192.0.2.1\r\nupgrade: websocket\r\n\
        connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    let mut seen = String::new();
    read_until(&mut stream, &mut seen, "hello");
    assert!(seen.starts_with("HTTP/1.1 101"), "{seen}");
    let masked: Vec<u8> = b"pong".iter().zip([1, 2, 3, 4]).map(|(b, m)| b ^ m).collect();
    stream.write_all(&[&[0x81, 0x84, 1, 2, 3, 4], masked.as_slice()].concat()).expect("sent");
    read_until(&mut stream, &mut seen, "ok");
}

/// `Sec-WebSocket-Accept` of RFC 6455, 4.2.2.
fn accept_key(key: &str) -> String {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes());
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in hash.digest().bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            out.push(if digit > three.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    out
}

// Guards: a denial by docs/fields.md: every field, the body, nothing cached, and no request to the
// origin. Only CF-Connecting-IP identifies a client.
#[test]
fn a_denied_request_gets_429_with_every_field() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let origin = serve(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        request.answer("200 OK", "", "hello");
    });
    let worker = in_front_of(&origin, &policy(2));
    for _ in 0..2 {
        assert_eq!(send(&worker, Request::get("/")).status, 200);
    }
    let spoofed = Request::get("/")
        .header("x-forwarded-for", "198.51.100.9")
        .header("x-real-ip", "198.51.100.9");
    let denied = send(&worker, spoofed);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type").as_deref(), Some("application/problem+json"));
    assert_eq!(denied.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(denied.header("ratelimit-policy").as_deref(), Some("\"year\";q=2;w=31622400"));
    let wait: u64 = denied.header("retry-after").and_then(|s| s.parse().ok()).expect("retry-after");
    assert!((1..=31_622_400).contains(&wait), "{wait}");
    assert_eq!(denied.header("ratelimit"), Some(format!("\"year\";r=0;t={wait}")));
    let body: Value = serde_json::from_slice(&denied.body).expect("a problem document");
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded", "status": 429,
        "detail": format!("try again in {wait} seconds"), "violated-policies": ["year"],
    });
    assert_eq!(body, expected);
    assert_eq!(asked.load(Ordering::Relaxed), 2, "the origin does not see a denied request");
    // Another client is served.
    assert_eq!(worker.client().send(&from("192.0.2.2", Request::get("/"))).status, 200);
}

// Guards: an origin that also limits. Tollgate's fields are added to its own; and a policy without
// fields on allowed responses adds nothing.
#[test]
fn our_fields_stand_beside_the_origins() {
    let own = "ratelimit-policy: \"origin\";q=5\r\nratelimit: \"origin\";r=4\r\ncache-control: max-age=60\r\n";
    let origin = serve(move |request| request.answer("200 OK", own, "hello"));
    let all = |response: &Response, name: &str| response.all(name).join(", ");
    let both = send(&in_front_of(&origin, &policy(9)), Request::get("/"));
    assert_eq!(all(&both, "ratelimit-policy"), "\"origin\";q=5, \"year\";q=9;w=31622400");
    assert!(all(&both, "ratelimit").starts_with("\"origin\";r=4, \"year\";r=8;t="), "{both:?}");
    assert_eq!(both.header("cache-control").as_deref(), Some("max-age=60"));

    let mut silent = policy(9);
    silent["response"] = json!({"on_allow": false});
    let origins = send(&in_front_of(&origin, &silent), Request::get("/"));
    assert_eq!(all(&origins, "ratelimit"), "\"origin\";r=4");
    assert_eq!(all(&origins, "ratelimit-policy"), "\"origin\";q=5");
}

// Guards: `delay`. The second of two requests leaves one emission interval after the first, and no
// sooner.
#[test]
fn a_queue_delays_the_request() {
    let origin = serve(|request| request.answer("200 OK", "", "hello"));
    let queue =
        json!({"name": "q", "algorithm": "leaky-queue", "limit": 2, "window": "2s", "burst": 2});
    let policy = json!({"version": 1, "rules": [{"name": "all", "key": [], "quotas": [queue]}]});
    let worker = in_front_of(&origin, &policy);
    let started = Instant::now();
    assert_eq!(send(&worker, Request::get("/")).status, 200);
    let first = started.elapsed();
    assert_eq!(send(&worker, Request::get("/")).status, 200);
    let second = started.elapsed();
    // The object's clock has milliseconds, the test's began before it.
    assert!(second >= Duration::from_millis(990), "{first:?} {second:?}");
}

// Guards: an origin that is down. The client gets an error, in time, with the charge.
#[test]
fn an_origin_that_is_down_is_a_502() {
    let nobody = tollgate_e2e::process::free_port();
    let worker = in_front_of(&format!("http://127.0.0.1:{nobody}"), &policy(9));
    let response = send(&worker, Request::get("/"));
    assert_eq!(response.status, 502);
    assert_eq!(response.header("content-type").as_deref(), Some("application/problem+json"));
    assert!(response.header("ratelimit").is_some_and(|field| field.starts_with("\"year\";r=8;")));
}
