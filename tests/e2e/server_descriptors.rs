//! A machine that gives the server fewer file descriptors than its settings need.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{ADMIN_TOKEN, Setup};

const PATIENCE: Duration = Duration::from_secs(60);

// Guards: clients that take the descriptors of the store, of probes and of the file of rules, where
// the machine gives fewer than max_connections needs.
#[test]
fn connections_leave_the_server_its_own_descriptors() {
    let policy = json!({"version": 1, "tenant": {"header": "x-tenant"}, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 9, "window": "1h"}]}]});
    let server = Setup::new(policy).operated().set("data", "data").descriptors(168).start();
    let few = server.events("few_descriptors");
    assert!(few.len() == 1 && few[0].to_string().contains("only 40 connections"), "{few:?}");
    let held: Vec<TcpStream> = (0..300)
        .filter_map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).ok())
        .collect();
    assert!(held.len() > 40);
    // All of them are accepted or closed by now, and everything except client connections works.
    let refused = wait_until("refused", PATIENCE, || {
        let open = held.iter().filter(|it| is_open(it)).count();
        (open <= 40).then_some(held.len() - open)
    });
    assert!(refused >= 260, "{refused}");
    assert_eq!((server.probe("/live"), server.probe("/ready")), (200, 200));
    assert!(server.events("accept_failed").is_empty(), "{}", server.server.log());
    drop(held);
    let entry = r#"{"quotas": {"each": [{"limit": 5, "window": "1h"}]}}"#;
    let put = Request::new("PUT", "/.well-known/tollgate/admin/tenants/a")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .header("content-type", "application/json")
        .header("if-none-match", "*")
        .body(entry);
    // A connection beyond the places is closed; this is not a failure of the change.
    let response = wait_until("a place", PATIENCE, || {
        Client::try_connect(server.port).and_then(|mut client| client.try_send(&put)).ok()
    });
    assert!(response.status < 300, "{response:?}");
}

/// False once the server has closed it.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    match stream.peek(&mut [0]) {
        Ok(read) => read > 0,
        Err(why) => why.kind() == std::io::ErrorKind::WouldBlock,
    }
}
