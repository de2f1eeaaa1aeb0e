//! A hostile engine, from the first byte on: all that it can cause is a failure.
//!
//! Guards: memory that a server allocates because an engine announces a length, and calls that are
//! redirected without end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_redis::{Failed, Fault, KeyRequest};

use crate::{request, runtime, server};

/// A listener that runs `answers` on each connection, and the number of connections.
fn engine(answers: impl Fn(TcpStream) + Send + Sync + 'static) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let connections = Arc::new(AtomicU64::new(0));
    let (answers, counted) = (Arc::new(answers), connections.clone());
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
            let answers = answers.clone();
            thread::spawn(move || answers(stream.expect("a connection")));
        }
    });
    (port, connections)
}

/// Reads the request, and sends the correct response to the greeting.
fn greeted(stream: &mut TcpStream) {
    let mut asked = [0; 4_096];
    let _ = stream.read(&mut asked);
    let hash = format!("$40\r\n{}\r\n", "a".repeat(40));
    let _ = stream.write_all(hash.as_bytes());
}

/// The failures of twenty requests for different keys on the engine at `address`.
fn asked(address: &str) -> Vec<Failed> {
    runtime().block_on(async {
        let server = server(address, |options| {
            options.timeout = Duration::from_millis(200);
            options.settings.failures_to_open = 3;
        });
        let mut failed = Vec::new();
        for i in 0..20 {
            let name = server.name(format!("{i}").as_bytes());
            let answer = server.ask(name, KeyRequest::Check(request(1))).await;
            failed.push(answer.expect_err("nobody was charged"));
        }
        assert_eq!(server.under_way(), 0);
        let told: u64 = server.faults().map(|(_, count)| count).sum();
        assert!(told > 0, "somebody sees that it happened");
        failed
    })
}

fn told(port: u16) -> Vec<Failed> {
    asked(&format!("redis://127.0.0.1:{port}"))
}

#[test]
fn replies_that_drip_or_break_off_are_failures_and_open_the_circuit() {
    // One byte at a time, for longer than any request waits.
    let (drips, _) = engine(|mut stream| {
        greeted(&mut stream);
        let reply = b"*4\r\n:0\r\n$10\r\n1780000000\r\n".repeat(1_000);
        for byte in reply.chunks(1) {
            thread::sleep(Duration::from_millis(20));
            if stream.write_all(byte).is_err() {
                return;
            }
        }
    });
    // Cut in the middle of a word.
    let (breaks, _) = engine(|mut stream| {
        greeted(&mut stream);
        let _ = stream.read(&mut [0; 4_096]);
        let _ = stream.write_all(b"*3\r\n:0\r\n$10\r\n1780");
    });
    // Cut in the middle of the greeting, and before it.
    let (half, _) = engine(|mut stream| {
        let _ = stream.read(&mut [0; 4_096]);
        let _ = stream.write_all(b"$40\r\naaaa");
    });
    let (silent, _) = engine(|mut stream| drop(stream.read(&mut [0; 65_536])));
    for port in [drips, breaks, half, silent] {
        let failed = told(port);
        assert!(failed.contains(&Failed::Open), "the circuit opens: {failed:?}");
    }
}

#[test]
fn greetings_of_wrong_types_are_nonsense() {
    for greeting in [
        &b":1\r\n"[..],
        b"*1\r\n$40\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        b"$-1\r\n",
        b"$3\r\nabc\r\n",
        b"$40\r\nzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n",
        b"*9223372036854775807\r\n",
        b"$4194305\r\n",
    ] {
        let (port, _) = engine(move |mut stream| {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(greeting);
            let _ = stream.read(&mut [0; 4_096]);
        });
        let failed = told(port);
        assert_eq!(failed[0], Failed::Engine(Fault::Nonsense), "{}", greeting.escape_ascii());
    }
}

#[test]
fn more_replies_than_questions_end_the_connection() {
    // The correct reply, twice: the second one belongs to no request, and must not be read as the
    // reply to another.
    let (port, connections) = engine(|mut stream| {
        greeted(&mut stream);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("now");
        let seconds = now.as_secs().to_string();
        let done = format!("*3\r\n:0\r\n${}\r\n{seconds}\r\n$1\r\n0\r\n", seconds.len());
        while stream.read(&mut [0; 4_096]).is_ok_and(|len| len > 0) {
            if stream.write_all(done.repeat(2).as_bytes()).is_err() {
                return;
            }
        }
    });
    runtime().block_on(async {
        let server = server(&format!("redis://127.0.0.1:{port}"), |options| {
            options.timeout = Duration::from_millis(500);
        });
        for i in 0..10 {
            let name = server.name(format!("{i}").as_bytes());
            // Successful or not: every request has one result.
            let _ = server.ask(name, KeyRequest::Check(request(1))).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(server.under_way(), 0);
    });
    assert!(connections.load(Ordering::Relaxed) > 1, "one that lies is not kept");
}

#[test]
fn keys_that_are_always_elsewhere_are_given_up() {
    // Each redirects to itself, and to ever new ports of the same machine.
    let sent = Arc::new(AtomicU64::new(0));
    for kind in ["MOVED", "ASK"] {
        let counted = sent.clone();
        let (port, _) = engine(move |mut stream| {
            let own = stream.local_addr().expect("an address").port();
            greeted(&mut stream);
            while stream.read(&mut [0; 4_096]).is_ok_and(|len| len > 0) {
                counted.fetch_add(1, Ordering::Relaxed);
                let line = format!("-{kind} 1 127.0.0.1:{own}\r\n");
                if stream
                    .write_all(line.repeat(if kind == "ASK" { 2 } else { 1 }).as_bytes())
                    .is_err()
                {
                    return;
                }
            }
        });
        for scheme in ["redis", "redis+cluster"] {
            let failed = asked(&format!("{scheme}://127.0.0.1:{port}"));
            assert!(
                failed.iter().all(|it| matches!(it, Failed::Engine(_) | Failed::Open)),
                "{failed:?}"
            );
            if (kind, scheme) == ("MOVED", "redis+cluster") {
                assert!(failed.contains(&Failed::Open), "it is asked on and on: {failed:?}");
            }
        }
    }
    let sent = sent.load(Ordering::Relaxed);
    println!("{sent} calls for 80 questions");
    assert!(sent < 80 * 40, "{sent}: round and round");
}

#[test]
fn a_map_of_a_cluster_that_is_nonsense_is_not_believed() {
    for map in [
        &b"*1\r\n*3\r\n:0\r\n:99999999\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n"[..],
        b"*1\r\n*3\r\n:16383\r\n:0\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        b"*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:99999\r\n",
        b"*1\r\n*1\r\n:0\r\n",
        b"*0\r\n",
        b"$2\r\nno\r\n",
        b"-ERR no\r\n",
    ] {
        let (port, _) = engine(move |mut stream| {
            greeted(&mut stream);
            while stream.read(&mut [0; 4_096]).is_ok_and(|len| len > 0) {
                if stream.write_all(map).is_err() {
                    return;
                }
            }
        });
        let failed = asked(&format!("redis+cluster://127.0.0.1:{port}"));
        assert_eq!(failed.len(), 20, "{}", map.escape_ascii());
    }
}
