//! Costs that only the end of a response shows, in front of an origin: the bytes that the client
//! got and the time that it took, however the response ended; and bodies that pass unchanged.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{ANSWER_WITHIN, Client, Request, Response};
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{self, READY_WITHIN, wait_until};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::{Received, serve};

const LIMIT: u64 = 1_000_000_000;
const ESTIMATE: u64 = 10;
/// The longest piece of a body that is counted before it is sent.
const PIECE: u64 = 128 << 10;

/// The units of each user, by what the end of the response shows.
fn policy(actual: &Value) -> Value {
    json!({"version": 1, "rules": [{
        "name": "end",
        "key": [{"header": "x-user"}],
        "cost": {
            "estimate": ESTIMATE, "max": 100_000_000, "actual": actual, "on_status": {"410": 0},
        },
        "quotas": [{"limit": LIMIT, "window": "366d", "algorithm": "fixed-window"}],
    }]})
}

fn start(actual: &Value, origin: &str) -> Workerd {
    Setup::new(policy(actual)).binding("ORIGIN", origin).start()
}

fn of(user: &str, target: &str) -> Request {
    Request::get(target).header("x-user", user)
}

fn left(response: &Response) -> u64 {
    let field = response.header("ratelimit").expect("the field");
    let left = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    left.and_then(|left| left.parse().ok()).expect("a number")
}

/// The units that `user` has used, once no estimate is held; `HEAD /none` costs nothing.
fn used(worker: &Workerd, user: &str) -> u64 {
    let request = Request::new("HEAD", "/none").header("x-user", user);
    let ask = || {
        let mut client = worker.client();
        client.start(&request).expect("taken");
        LIMIT - ESTIMATE - left(&client.finish(true).expect("answered"))
    };
    // Two responses in a row that say the same: all before were settled, and the first was.
    let mut before = u64::MAX;
    wait_until("all is settled", READY_WITHIN, || {
        thread::sleep(Duration::from_millis(100));
        let now = ask();
        let is_same = now == std::mem::replace(&mut before, now);
        is_same.then_some(now)
    })
}

/// An origin with a body for each path.
fn origin() -> String {
    let big = "x".repeat(3_000_000);
    serve(move |request: &mut Received| match request.target.as_str() {
        "/big" => request.answer("200 OK", "", &big),
        "/zip" => request.answer("200 OK", "content-encoding: gzip\r\n", GZIP),
        "/odd" => request.answer("200 OK", "content-encoding: odd\r\netag: \"x\"\r\n", "odd"),
        "/empty" => request.answer("200 OK", "", ""),
        "/204" => request.send("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
        "/304" => request.send("HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n"),
        "/moved" => request.answer("302 Found", "location: /empty\r\n", "moved"),
        "/short" => {
            request.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nabc");
        }
        "/cut" => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
            request.send(format!("{head}4\r\nabcd\r\n"));
        }
        "/chunks" => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
            request.send(format!("{head}4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n"));
        }
        _ => request.send(
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n".to_owned()
                + if request.method == "HEAD" { "" } else { "ignored" },
        ),
    })
}

/// "tollgate", compressed by Python's `gzip`.
const GZIP: &[u8] = &[
    31, 139, 8, 0, 0, 0, 0, 0, 2, 255, 43, 201, 207, 201, 73, 79, 44, 73, 5, 0, 234, 110, 93, 138,
    8, 0, 0, 0,
];

// Guards: a body that is changed on its way: decoded, or without its length; and a body that is
// counted by other bytes than those that the client got.
#[test]
fn every_body_passes_as_it_is_and_costs_its_bytes() {
    let origin = origin();
    let policies = [json!("bytes"), json!("duration"), json!({"header": "x-absent"})];
    let workers = policies.map(|actual| start(&actual, &origin));
    let paths = [
        ("/big", 3_000_000),
        ("/zip", GZIP.len() as u64),
        ("/odd", 3),
        ("/empty", 0),
        ("/204", 0),
        ("/304", 0),
        ("/moved", 5),
        ("/chunks", 6),
    ];
    for (user, (path, bytes)) in paths.into_iter().enumerate() {
        let user = user.to_string();
        let request = of(&user, path).header("accept-encoding", "gzip");
        let answers = workers.each_ref().map(|worker| worker.client().send(&request));
        for answer in &answers {
            let plain = |response: &Response| {
                let fields = ["content-length", "content-encoding", "etag", "location"];
                (response.status, fields.map(|name| response.header(name)), response.body.clone())
            };
            // The last one is forwarded without a stream of ours.
            assert!(plain(answer) == plain(&answers[2]), "{path}: {answer:?}");
        }
        assert_eq!(used(&workers[0], &user), bytes, "{path}");
    }
    let mut client = workers[0].client();
    client.start(&Request::new("HEAD", "/head").header("x-user", "h")).expect("taken");
    let head = client.finish(true).expect("answered");
    assert_eq!((head.status, head.header("content-length").as_deref()), (200, Some("7")));
    assert_eq!(used(&workers[0], "h"), 0, "HEAD");
}

// Guards: a response that breaks off and seems whole, and bytes that are not counted.
#[test]
fn a_response_that_breaks_off_costs_what_was_sent() {
    let origin = origin();
    let worker = start(&json!("bytes"), &origin);
    for (path, bytes) in [("/short", 3), ("/cut", 4)] {
        let broken = worker.client().try_send(&of(path, path));
        assert!(broken.is_err(), "{path}: {broken:?}");
        assert_eq!(used(&worker, path), bytes, "{path}");
    }
    // Without an origin there is a body of ours, which is not counted.
    let worker = start(&json!("bytes"), "http://127.0.0.1:9");
    let failed = worker.client().send(&of("u", "/"));
    assert_eq!((failed.status, left(&failed)), (502, LIMIT - ESTIMATE));
}

fn connect(worker: &Workerd, request: &Request) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("a connection");
    stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a time limit");
    stream.write_all(&request.to_bytes()).expect("it is sent");
    stream
}

/// Reads until this many bytes came.
fn read(stream: &mut TcpStream, bytes: u64) {
    let (mut received, mut piece) = (0, vec![0; 64 << 10]);
    while received < bytes {
        let read = process::read(stream, &mut piece).expect("more");
        assert!(read > 0, "it ended after {received}");
        received += read as u64;
    }
}

// Guards: bodies that are free for clients that leave in the middle, or that never read; and an
// origin that sends on to a client that has left.
#[test]
fn a_client_that_leaves_pays_for_what_was_sent() {
    const ALL: u64 = 64 << 20;
    let (sent, has_ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let origin = {
        let (sent, has_ended) = (Arc::clone(&sent), Arc::clone(&has_ended));
        serve(move |request: &mut Received| {
            if request.target == "/none" {
                return request.answer("204 No Content", "", "");
            }
            request.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {ALL}\r\nconnection: close\r\n\r\n"
            ));
            let piece = vec![b'x'; 64 << 10];
            while sent.load(Ordering::SeqCst) < ALL && request.try_send(&piece) {
                sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
            }
            has_ended.store(true, Ordering::SeqCst);
        })
    };
    let worker = start(&json!("bytes"), &origin);
    for (user, read_bytes) in [("never", 0), ("some", 3_000_000)] {
        sent.store(0, Ordering::SeqCst);
        has_ended.store(false, Ordering::SeqCst);
        let mut stream = connect(&worker, &of(user, "/"));
        read(&mut stream, read_bytes);
        wait_until("the origin is slowed down", ANSWER_WITHIN, || {
            let before = sent.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(300));
            (before > 0 && sent.load(Ordering::SeqCst) == before).then_some(())
        });
        drop(stream);
        wait_until("the origin has lost its client", ANSWER_WITHIN, || {
            has_ended.load(Ordering::SeqCst).then_some(())
        });
        let (used, sent) = (used(&worker, user), sent.load(Ordering::SeqCst));
        println!("{user}: read {read_bytes}, charged {used}, sent {sent}");
        assert!((read_bytes..=sent + PIECE).contains(&used), "{user}: {used} of {sent}");
        assert!(sent < ALL, "{sent}");
    }
}

// Guards: events that are held back until more come, and the time of a request that waits.
#[test]
fn a_stream_is_not_delayed_and_its_time_is_counted() {
    const HELD: Duration = Duration::from_millis(60);
    for actual in [json!("bytes"), json!("duration"), json!({"json": [""]})] {
        let (go, gone) = (Arc::new(AtomicU64::new(0)), Duration::from_millis(5));
        let origin = {
            let go = Arc::clone(&go);
            serve(move |request: &mut Received| {
                if request.target == "/none" {
                    return request.answer("410 Gone", "", "");
                }
                request.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n");
                for event in 0..5_u64 {
                    while go.load(Ordering::SeqCst) < event {
                        thread::sleep(gone);
                    }
                    request.send(format!("9\r\ndata: {event}\n\n\r\n"));
                }
                // The last one is whole where the stream is.
                request.send("7\r\ndata: 7\r\n0\r\n\r\n");
            })
        };
        let worker = start(&actual, &origin);
        let mut stream = connect(&worker, &of("u", "/"));
        // The next event is sent when the client has this one.
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        for event in 0..5_u64 {
            go.store(event, Ordering::SeqCst);
            while !text.contains(&format!("data: {event}\n\n")) {
                let read = process::read(&mut stream, &mut piece).expect("more");
                assert!(read > 0, "{text}");
                text.push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        }
        if actual == "bytes" {
            assert_eq!(used(&worker, "u"), 45 + 7);
        }
        if actual.get("json").is_some() {
            assert_eq!(used(&worker, "u"), 7, "the number of the last event");
        }
    }
    let login = Login::start();
    let worker = start(&json!("duration"), &format!("http://127.0.0.1:{}", login.port));
    login.hold(true);
    let mut client: Client = worker.client();
    client.start(&of("u", "/200")).expect("taken");
    wait_until("it is held", READY_WITHIN, || (login.arrived() > 0).then_some(()));
    thread::sleep(HELD);
    login.hold(false);
    assert_eq!(client.finish(false).expect("answered").status, 200);
    let mut before = 0;
    wait_until("it is settled", READY_WITHIN, || {
        before = LIMIT - left(&worker.client().send(&of("u", "/200"))) - ESTIMATE;
        (before >= HELD.as_millis() as u64).then_some(())
    });
}

// Guards: requests that leave something behind, and bodies that stay in memory.
#[test]
fn a_thousand_requests_leave_nothing_behind() {
    const BIG: usize = 200;
    let worker = start(&json!("bytes"), &origin());
    let mut clients: Vec<Client> = (0..20).map(|_| worker.client()).collect();
    let mut send = |path: &str, count: usize| {
        for i in 0..count {
            let client = &mut clients[i % 20];
            client.renew_if_closed();
            assert_eq!(client.send(&of("u", path)).status, 200);
        }
    };
    send("/chunks", 1000);
    let before = worker.resident_bytes();
    send("/big", BIG);
    let grown = worker.resident_bytes().saturating_sub(before);
    println!("grew by {} MiB", grown >> 20);
    assert!(grown < BIG as u64 * 3_000_000 / 4, "{grown}");
    assert_eq!(used(&worker, "u"), 6 * 1000 + 3_000_000 * BIG as u64);
}
