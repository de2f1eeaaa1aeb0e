//! Requests that HTTP does not allow, and bodies that do not end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use serde_json::json;
use tollgate_e2e::server::{ADMIN_TOKEN, Setup, TollgateServer};

fn server() -> TollgateServer {
    let policy = json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "quotas": [{"limit": 100, "window": "1h"}]}]});
    Setup::new(policy).operated().start()
}

/// The first line of the answer to these bytes, behind which nothing comes.
fn status(server: &TollgateServer, bytes: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.write_all(bytes.as_bytes()).expect("sent");
    let mut answer = String::new();
    let mut some = [0; 4096];
    while !answer.contains("\r\n") {
        let read = stream.read(&mut some).expect("an answer");
        assert!(read > 0, "it ended: {answer:?}");
        answer.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    let _ = stream.shutdown(Shutdown::Both);
    answer.lines().next().unwrap_or_default().to_owned()
}

// Guards: a request that two programs read as for two hosts.
#[test]
fn a_request_names_one_host() {
    let server = server();
    let body = r#"{"method":"GET","path":"/","client_ip":"192.0.2.1"}"#;
    let check = |version: &str, hosts: &str| {
        let length = body.len();
        status(
            &server,
            &format!("POST /check {version}\r\n{hosts}content-length: {length}\r\n\r\n{body}"),
        )
    };
    assert_eq!(check("HTTP/1.1", "host: a\r\n"), "HTTP/1.1 200 OK");
    assert_eq!(check("HTTP/1.1", ""), "HTTP/1.1 400 Bad Request");
    assert_eq!(check("HTTP/1.1", "host: a\r\nhost: a\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(check("HTTP/1.0", "host: a\r\nhost: b\r\n"), "HTTP/1.0 400 Bad Request");
    assert_eq!(check("HTTP/1.0", ""), "HTTP/1.0 200 OK");
}

#[test]
fn a_broken_body_is_malformed_and_not_too_long() {
    let server = server();
    let chunked = "host: a\r\ntransfer-encoding: chunked\r\n";
    for path in ["/check", "/check/settle", "/lease"] {
        let sent = format!("POST {path} HTTP/1.1\r\n{chunked}\r\nzz\r\n");
        assert_eq!(status(&server, &sent), "HTTP/1.1 400 Bad Request", "{path}");
    }
    let put = format!(
        "PUT /.well-known/tollgate/admin/tenants/a HTTP/1.1\r\n{chunked}content-type: application/json\r\n\
         authorization: Bearer {ADMIN_TOKEN}\r\nif-none-match: *\r\n\r\nzz\r\n"
    );
    assert_eq!(status(&server, &put), "HTTP/1.1 400 Bad Request");
    let long = "x".repeat(70_000);
    let sent = format!("POST /check HTTP/1.1\r\n{chunked}\r\n11170\r\n{long}\r\n0\r\n\r\n");
    assert_eq!(status(&server, &sent), "HTTP/1.1 413 Payload Too Large");
}
