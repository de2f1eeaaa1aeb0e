//! How the server ends: first unready, then nobody new, then what is under way.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::Setup;
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
    // The waiter has arrived when its connection is served beside the others'.
    std::thread::sleep(Duration::from_secs(3));
    server.signal(Signal::TERM);
    wait_until("unready", PATIENCE, || (server.probe("/ready") == 503).then_some(()));
    // Unready is before the end of everything: new connections are still served for a while.
    assert_eq!(server.client().send(&Request::get("/.well-known/tollgate/health")).status, 200);
    assert_eq!(server.probe("/live"), 200);
    wait_until("closed", PATIENCE, || Client::try_connect(server.port).is_err().then_some(()));
    let mut answered = String::new();
    waiter.read_to_string(&mut answered).expect("it is answered");
    assert!(answered.contains("\"decision\":\"allow\""), "{answered}");
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
    std::thread::sleep(Duration::from_secs(3));
    server.signal(Signal::TERM);
    assert_eq!(server.server.wait_for_exit().code(), Some(1));
    let cut = server.events("ended")[0]["connections_cut"].as_u64();
    assert!(cut.is_some_and(|cut| cut > 0), "{}", server.server.log());
}

// Guards: a policy file on a disk that does not answer, behind which SIGTERM is not heard.
#[test]
fn a_file_that_is_never_read_to_its_end_is_not_in_the_way_of_the_end() {
    let mut server = waiting().start();
    let policy = server.file("policy.json");
    std::fs::remove_file(&policy).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&policy).status().expect("it runs");
    assert!(made.success());
    server.signal(Signal::HUP);
    // It has begun to read when a second later the server still answers.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(server.probe("/ready"), 200);
    server.signal(Signal::TERM);
    assert!(server.server.wait_for_exit().success());
}
