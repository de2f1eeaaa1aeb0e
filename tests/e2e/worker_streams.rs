//! Origins that stall, that stream without end, that send more than one response: the Worker holds
//! no body in memory, and no other request waits.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{ANSWER_WITHIN, Client, Request};
use tollgate_e2e::process::{self, wait_until};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::{Received, serve};

const MIB: usize = 1 << 20;
/// A body that no buffer holds: four times [`HELD`].
const LONG: usize = 256 << 20;
/// The most that workerd may grow by while a body passes through it. It grows by 3 to 6 MiB; an
/// isolate of the platform has 128 MB.
const GROWTH: u64 = 64 << 20;
/// The most bytes in flight, in buffers of the Worker and of the system, while one end is silent.
const HELD: u64 = 64 << 20;

fn policy(limit: u64, more: Value) -> Value {
    let mut rule = json!({"name": "client", "key": ["client_ip"], "quotas":
        [{"name": "year", "algorithm": "sliding-log", "limit": limit, "window": "366d"}]});
    for (name, value) in more.as_object().expect("members") {
        rule[name] = value.clone();
    }
    json!({"version": 1, "rules": [rule]})
}

fn from(client_ip: &str, request: Request) -> Request {
    request.header("cf-connecting-ip", client_ip)
}

fn connect(worker: &Workerd, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("a connection");
    stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a time limit");
    stream.write_all(bytes).expect("it is sent");
    stream
}

/// The most memory that workerd had while `work` ran, above what it had before.
fn growth(worker: &Workerd, work: impl FnOnce()) -> u64 {
    let (before, most, is_over) =
        (worker.resident_bytes(), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(worker.resident_bytes(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        work();
        is_over.store(true, Ordering::Relaxed);
    });
    most.into_inner().saturating_sub(before)
}

// Guards: an origin that sends nothing, or stops in the middle, and blocks all other requests.
// Requests to others get responses at once; those that wait get their response when it comes.
#[test]
fn an_origin_that_stalls_holds_nobody_else() {
    const STALLED: usize = 200;
    let (is_held, arrived) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let origin = {
        let (is_held, arrived) = (Arc::clone(&is_held), Arc::clone(&arrived));
        serve(move |request: &mut Received| {
            if request.target.starts_with("/quick") {
                return request.answer("200 OK", "", "quick");
            }
            let is_half = request.target == "/half";
            if is_half {
                request.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsl");
            }
            arrived.fetch_add(1, Ordering::SeqCst);
            while is_held.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            if is_half { request.send("ow!!") } else { request.answer("200 OK", "", "slow!!") }
        })
    };
    let limit = STALLED as u64;
    let worker = Setup::new(policy(limit, json!({}))).binding("ORIGIN", &origin).start();
    let mut stalled: Vec<Client> = (0..STALLED).map(|_| worker.client()).collect();
    for (client, path) in stalled.iter_mut().zip(["/none", "/half"].into_iter().cycle()) {
        client.start(&from("192.0.2.1", Request::get(path))).expect("it is sent");
    }
    wait_until("all are at the origin", ANSWER_WITHIN, || {
        (arrived.load(Ordering::SeqCst) == limit).then_some(())
    });
    for i in 0..50 {
        let quick =
            worker.client().send(&from(&format!("192.0.2.{}", 2 + i), Request::get("/quick")));
        assert_eq!((quick.status, quick.text().as_str()), (200, "quick"));
    }
    assert_eq!(
        worker.client().send(&from("192.0.2.1", Request::get("/quick"))).status,
        429,
        "those who wait are counted"
    );
    is_held.store(false, Ordering::SeqCst);
    for client in &mut stalled {
        let answer = client.finish(false).expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "slow!!"));
    }
}

// Guards: a body that is held in memory. While its client does not read, the origin cannot send
// either.
#[test]
fn a_long_body_passes_and_is_not_held() {
    let sent = Arc::new(AtomicU64::new(0));
    let origin = {
        let sent = Arc::clone(&sent);
        serve(move |request: &mut Received| {
            let length = LONG;
            request.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            ));
            let piece = vec![b'x'; MIB / 4];
            for _ in 0..length / piece.len() {
                if !request.try_send(&piece) {
                    return;
                }
                sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
            }
        })
    };
    let charge = json!({"charge": {"response_status": ["401"], "reserve": true}});
    for more in [json!({}), charge] {
        let worker = Setup::new(policy(1000, more)).binding("ORIGIN", &origin).start();
        assert_eq!(worker.client().send(&Request::get("/.well-known/tollgate/health")).status, 200);
        sent.store(0, Ordering::SeqCst);
        let mut received = 0_usize;
        let grown = growth(&worker, || {
            let request = from("192.0.2.1", Request::get("/")).to_bytes();
            let mut stream = connect(&worker, &request);
            // At first the client reads nothing: the origin must come to a halt.
            let held = comes_to_a_halt(&sent);
            assert!(held < HELD, "{held} bytes are held for a client that does not read");
            let mut piece = vec![0; MIB];
            while received < LONG {
                let read = process::read(&mut stream, &mut piece).expect("more");
                assert!(read > 0, "it ended after {received}");
                received += read;
            }
        });
        println!("{} MiB received, workerd grew by {} MiB", received >> 20, grown >> 20);
        assert!(grown < GROWTH, "{grown}");
    }
}

/// A piece of an upload, from `offset` on: every eight bytes contain their position.
fn numbered(offset: usize, length: usize) -> Vec<u8> {
    let mut piece = vec![0; length];
    for (i, eight) in piece.chunks_exact_mut(8).enumerate() {
        eight.copy_from_slice(&((offset / 8 + i) as u64).to_le_bytes());
    }
    piece
}

// Guards: an upload that is held in memory, also where the Worker watches for a break: every byte
// arrives as it was sent, nothing is left of the bytes that have passed, and while the origin does
// not read, the client cannot send either.
#[test]
fn an_upload_of_a_long_body_passes_and_is_not_held() {
    let is_held = Arc::new(AtomicBool::new(true));
    let origin = {
        let is_held = Arc::clone(&is_held);
        serve(move |request: &mut Received| {
            while is_held.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            let mut read = 0;
            while read < LONG && request.piece(MIB) == numbered(read, MIB) {
                read += MIB;
            }
            request.answer("200 OK", "", read.to_string());
        })
    };
    let reserve = json!({"charge": {"response_status": ["401"], "reserve": true}});
    let skip = json!({"charge": {"response_status": ["401"], "on_abort": "skip"}});
    for more in [json!({}), reserve, skip] {
        is_held.store(true, Ordering::SeqCst);
        let worker = Setup::new(policy(1000, more)).binding("ORIGIN", &origin).start();
        assert_eq!(worker.client().send(&Request::get("/.well-known/tollgate/health")).status, 200);
        let sent = AtomicU64::new(0);
        let mut stream = connect(&worker, &upload(LONG));
        let grown = growth(&worker, || {
            thread::scope(|scope| {
                let mut writer = stream.try_clone().expect("a socket");
                let sent = &sent;
                scope.spawn(move || {
                    for offset in (0..LONG).step_by(MIB / 4) {
                        writer.write_all(&numbered(offset, MIB / 4)).expect("taken");
                        sent.fetch_add(MIB as u64 / 4, Ordering::SeqCst);
                    }
                });
                let held = comes_to_a_halt(sent);
                is_held.store(false, Ordering::SeqCst);
                assert!(held < HELD, "{held} bytes are held for an origin that does not read");
            });
            let (mut answer, mut some) = (String::new(), [0; 4096]);
            while !answer.ends_with(&LONG.to_string()) {
                let read = process::read(&mut stream, &mut some).expect("an answer");
                assert!(read > 0, "{answer}");
                answer.push_str(&String::from_utf8_lossy(&some[..read]));
            }
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        });
        println!("{} MiB sent, workerd grew by {} MiB", LONG >> 20, grown >> 20);
        assert!(grown < GROWTH, "{grown}");
    }
}

fn upload(length: usize) -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncf-connecting-ip: 192.0.2.1\r\ncontent-length: ";
    format!("{head}{length}\r\n\r\n").into_bytes()
}

/// The number of bytes sent when no more are accepted.
fn comes_to_a_halt(sent: &AtomicU64) -> u64 {
    let mut before = u64::MAX;
    wait_until("the sender is held up", ANSWER_WITHIN, || {
        thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::SeqCst);
        let is_still = now == before && now > 0;
        before = now;
        is_still.then_some(now)
    })
}

// Guards: informational responses (103, RFC 8297) and an unrequested change of protocol: the client
// gets one final response, and the connection to the origin does not confuse the next.
#[test]
fn informational_answers_end_in_one_final_answer() {
    let origin = serve(|request: &mut Received| match request.target.as_str() {
        "/hints" => {
            request.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
            request.send("HTTP/1.1 103 Early Hints\r\nlink: </b.css>; rel=preload\r\n\r\n");
            request.answer("200 OK", "x-final: yes\r\n", "final");
        }
        "/switch" => {
            request.send(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\nconnection: upgrade\r\n\r\n",
            );
            thread::sleep(Duration::from_secs(1));
        }
        _ => request.answer("200 OK", "", "plain"),
    });
    let worker = Setup::new(policy(1000, json!({}))).binding("ORIGIN", &origin).start();
    for _ in 0..3 {
        let hints = worker.client().send(&from("192.0.2.1", Request::get("/hints")));
        println!("103: {} {}", hints.status, hints.text());
        let switch = worker.client().try_send(&from("192.0.2.1", Request::get("/switch")));
        let switch = switch.unwrap_or_else(|e| panic!("{e}\n{}", worker.log()));
        println!("101: {} {}", switch.status, switch.text());
        assert_eq!((hints.status, hints.text().as_str()), (200, "final"));
        assert_eq!(switch.status, 502, "{switch:?}");
        let plain = worker.client().send(&from("192.0.2.1", Request::get("/")));
        assert_eq!((plain.status, plain.text().as_str()), (200, "plain"));
    }
}

// Guards: a change of protocol as a way to bypass the limit.
#[test]
fn an_upgrade_is_counted_like_any_request() {
    let reached = Arc::new(AtomicU64::new(0));
    let origin = {
        let reached = Arc::clone(&reached);
        serve(move |request: &mut Received| {
            reached.fetch_add(1, Ordering::SeqCst);
            request.answer("200 OK", "", "plain");
        })
    };
    let worker = Setup::new(policy(2, json!({}))).binding("ORIGIN", &origin).start();
    let upgrade = || {
        let request = from("192.0.2.1", Request::get("/chat")).header("upgrade", "websocket");
        let request = request.header("connection", "Upgrade").header("sec-websocket-version", "13");
        worker.client().send(&request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
    };
    let statuses: Vec<u16> = (0..5).map(|_| upgrade().status).collect();
    assert_eq!(statuses[2..], [429, 429, 429], "{statuses:?}");
    assert_eq!(reached.load(Ordering::SeqCst), 2, "{statuses:?}");
}
