//! The shutdown of the server: first unready, then no new connections, then the requests in flight.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::http2::{FrameConnection, GOAWAY};
use tollgate_e2e::process::{self, wait_until};
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::{answer, check_request};

const PATIENCE: Duration = Duration::from_secs(60);

fn waiting() -> Setup {
    let quota = json!({"limit": 1, "window": "15s", "burst": 1});
    Setup::new(json!({"version": 1, "rules": [
        {"name": "waits", "when": {"paths": ["/w"]}, "key": [], "quotas": [quota], "action": {"delay": {"max": "60s"}}}]}))
}

// Guards: a deployment that replaces the server loses no request.
#[test]
fn what_is_under_way_is_answered_and_nobody_new_is_served() {
    let mut server = waiting().set("drain_delay", 8).start();
    assert_eq!(
        answer(&server.client().send(&check_request("GET", "/w", "192.0.2.1")))["decision"],
        "allow"
    );
    let mut waiter = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("connected");
    waiter.write_all(&check_request("GET", "/w", "192.0.2.1").to_bytes()).expect("sent");
    let mut idle = server.client();
    idle.send(&Request::get("/.well-known/tollgate/health"));
    // The waiter has arrived when its connection is served next to the others'.
    thread::sleep(Duration::from_secs(3));
    server.signal(Signal::TERM);
    wait_until("unready", PATIENCE, || (server.probe("/ready") == 503).then_some(()));
    // It is unready before the shutdown: new connections are still served for a while.
    assert_eq!(server.client().send(&Request::get("/.well-known/tollgate/health")).status, 200);
    assert_eq!(server.probe("/live"), 200);
    wait_until("closed", PATIENCE, || Client::try_connect(server.port).is_err().then_some(()));
    let mut answered = String::new();
    waiter.read_to_string(&mut answered).expect("it is answered");
    assert!(answered.contains("\"decision\":\"allow\""), "{answered}");
    assert!(server.server.wait_for_exit().success());
    assert_eq!(server.events("ended")[0]["connections_cut"], 0);
}

fn health() -> Request {
    Request::get("/.well-known/tollgate/health")
}

fn connect(server: &TollgateServer) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// A connection with one completed request.
fn kept_alive(server: &TollgateServer) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(&health().to_bytes()).expect("sent");
    let mut answer = Vec::new();
    while answer.last() != Some(&b'}') {
        let mut some = [0; 1024];
        let n = process::read(&mut stream, &mut some).expect("an answer");
        answer.extend_from_slice(&some[..n]);
    }
    stream
}

/// Sends on a connection whose next response is the last.
fn assert_last(mut stream: TcpStream) {
    stream.write_all(&health().to_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no reset");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

// Guards: a client whose idle connection is closed at the moment at which it sends.
#[test]
fn clients_learn_the_end_from_an_answer_before_their_connections_are_closed() {
    let mut server = waiting().set("drain_delay", 600).start();
    let [first, second] = [(); 2].map(|()| kept_alive(&server));
    let mut streams = FrameConnection::open(server.port);
    streams.wait_for(4); // the server's settings
    server.signal(Signal::TERM);
    wait_until("unready", PATIENCE, || (server.probe("/ready") == 503).then_some(()));
    assert_last(first);
    assert_last(connect(&server));
    streams.wait_for(GOAWAY);
    // It was sent before GOAWAY arrived.
    let path = b"/.well-known/tollgate/health";
    streams.request(&[
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
    ]);
    streams.wait_for(1); // the head of its response
    // A connection that comes meanwhile is not closed, because its client would connect again.
    let mut late = FrameConnection::open(server.port);
    late.wait_for(4);

    server.signal(Signal::TERM);
    wait_until("closed", PATIENCE, || Client::try_connect(server.port).is_err().then_some(()));
    assert_last(second);
    late.wait_for(GOAWAY);
    drop((streams, late));
    assert!(server.server.wait_for_exit().success());
}

// Guards: the same by chance, with clients that send at every moment of the end.
#[test]
fn clients_that_go_on_sending_lose_no_request() {
    let mut server = waiting().start();
    let clients: Vec<Client> = (0..64).map(|_| server.client()).collect();
    let sending: Vec<_> = (0_u64..)
        .zip(clients)
        .map(|(i, mut client)| {
            thread::spawn(move || {
                loop {
                    let answer = client.try_send(&health())?;
                    if answer.header("connection").as_deref() == Some("close") {
                        return std::io::Result::Ok(());
                    }
                    thread::sleep(Duration::from_millis(i));
                }
            })
        })
        .collect();
    // Each has had at least one response when a second later the server still responds.
    thread::sleep(Duration::from_secs(1));
    server.signal(Signal::TERM);
    for client in sending {
        client.join().expect("no panic").expect("no reset");
    }
    assert!(server.server.wait_for_exit().success());
}

// Guards: connections without a request, which would be cut at a deadline that is sooner than the
// time for which they are served.
#[test]
fn idle_connections_end_before_a_short_deadline() {
    let mut server = waiting().set("drain_timeout", 4).start();
    let _idle: Vec<TcpStream> = (0..8).map(|_| kept_alive(&server)).collect();
    server.signal(Signal::TERM);
    assert!(server.server.wait_for_exit().success());
    assert_eq!(server.events("ended")[0]["connections_cut"], 0);
}

#[test]
fn a_deadline_ends_what_does_not_end() {
    let mut server = waiting().set("drain_timeout", 1).start();
    server.client().send(&check_request("GET", "/w", "192.0.2.1"));
    let mut waiters: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for waiter in &mut waiters {
        waiter.start(&check_request("GET", "/w", "192.0.2.1")).expect("sent");
    }
    thread::sleep(Duration::from_secs(3));
    server.signal(Signal::TERM);
    assert_eq!(server.server.wait_for_exit().code(), Some(1));
    let cut = server.events("ended")[0]["connections_cut"].as_u64();
    assert!(cut.is_some_and(|cut| cut > 0), "{}", server.server.log());
}

// Guards: a policy file on a disk that hangs, which delays SIGTERM.
#[test]
fn a_file_that_is_never_read_to_its_end_is_not_in_the_way_of_the_end() {
    let mut server = waiting().start();
    let policy = server.file("policy.json");
    std::fs::remove_file(&policy).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&policy).status().expect("it runs");
    assert!(made.success());
    server.signal(Signal::HUP);
    // It has begun to read when a second later the server still responds.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(server.probe("/ready"), 200);
    server.signal(Signal::TERM);
    assert!(server.server.wait_for_exit().success());
}
