//! Requests that HTTP does not allow, and bodies that do not end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::server::{ADMIN_TOKEN, CHECK_TOKEN, Setup, TollgateServer};

fn policy() -> Value {
    json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "quotas": [{"limit": 100, "window": "1h"}]}]})
}

fn server() -> TollgateServer {
    Setup::new(policy()).operated().start()
}

/// The status line of the response to these bytes, after which the test sends nothing.
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

// Guards: a page opened on a trusted machine that spends the quota of any client. A browser's own
// requests, after DNS rebinding too, have an origin, or a type that is not JSON.
#[test]
fn a_page_in_a_browser_may_not_ask() {
    let server = server();
    let body = r#"{"method":"GET","path":"/","client_ip":"192.0.2.1"}"#;
    let check = |server: &TollgateServer, path: &str, fields: &str| {
        let length = body.len();
        let sent = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\n{fields}content-length: {length}\r\n\r\n{body}"
        );
        status(server, &sent)
    };
    for path in ["/check", "/check/settle", "/check/renew", "/check/done", "/lease"] {
        for origin in
            ["origin: https://example.com\r\n", "origin: null\r\n", "origin: http://a\r\n"]
        {
            let fields = format!("{origin}content-type: application/json\r\n");
            assert_eq!(check(&server, path, &fields), "HTTP/1.1 403 Forbidden", "{path} {origin}");
        }
    }
    for path in ["/check", "/check/settle", "/check/renew", "/check/done"] {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            let fields = format!("content-type: {kind}\r\n");
            let refused = "HTTP/1.1 415 Unsupported Media Type";
            assert_eq!(check(&server, path, &fields), refused, "{path} {kind}");
        }
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let fields = format!("content-type: {kind}\r\n");
        assert_eq!(check(&server, "/check", &fields), "HTTP/1.1 200 OK", "{kind}");
    }
    // A caller with the token is not a browser that was misled.
    let server = Setup::new(policy()).variable("TOLLGATE_CHECK_TOKEN", CHECK_TOKEN).start();
    let fields = format!(
        "origin: http://a\r\ncontent-type: text/plain\r\nauthorization: Bearer {CHECK_TOKEN}\r\n"
    );
    assert_eq!(check(&server, "/check", &fields), "HTTP/1.1 200 OK");
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
    for path in ["/check", "/check/settle", "/check/renew", "/check/done", "/lease"] {
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
