//! Requests that are not sent by mistake: paths near the service's, methods, tokens, bodies and
//! upgrades. Each gets a response, none bypasses the token or the policy.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, answer};

use crate::worker_origin::serve;

fn policy(limit: u64) -> Value {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    json!({"version": 1, "rules": [{"name": "all", "key": ["client_ip"], "quotas": [quota]}]})
}

const ASKED: &str = r#"{"method":"GET","path":"/","client_ip":"192.0.2.1"}"#;

// Guards: a spelling of the service's path or of its token that opens it, and one that locks out
// the bearer of the token.
#[test]
fn odd_paths_methods_and_tokens_do_not_open_the_service() {
    let worker = Setup::new(policy(1_000)).binding("CHECK_TOKEN", "t0ken").start();
    let send = |request: Request| worker.client().send(&request);
    // Not the service's path: 404 also with the token. The platform may resolve dots before, plain
    // workerd does not.
    for (path, status) in [
        ("/check/", 404),
        ("//check", 404),
        ("/%63heck", 404),
        ("/check%2f", 404),
        ("/check;x", 404),
        ("/CHECK", 404),
        ("/check%00", 404),
        ("/x/../check", 404),
        ("/./check", 404),
        ("/check?x=/y", 200),
        ("/check?", 200),
    ] {
        let with_token = Request::post(path, ASKED).header("authorization", "Bearer t0ken");
        assert_eq!(send(with_token).status, status, "{path}");
        let without = if status == 200 { 401 } else { status };
        assert_eq!(send(Request::post(path, ASKED)).status, without, "{path}");
    }
    for method in ["HEAD", "OPTIONS", "PATCH", "PUT", "DELETE", "GET"] {
        let request = Request::new(method, "/check").header("authorization", "Bearer t0ken");
        assert_eq!(send(request).status, 405, "{method}");
    }
    let with = |lines: &[&[u8]]| {
        let request = Request::post("/check", ASKED);
        let request =
            lines.iter().fold(request, |request, line| request.header("authorization", line));
        send(request).status
    };
    for right in [
        &b"Bearer t0ken"[..],
        b"bearer t0ken",
        b"BEARER t0ken",
        b"Bearer   t0ken",
        b"  Bearer t0ken  ",
    ] {
        assert_eq!(with(&[right]), 200, "{}", String::from_utf8_lossy(right));
    }
    for wrong in [
        &b"Bearer t0ken t0ken"[..],
        b"Bearer t0ken, Bearer t0ken",
        b"Bearer T0KEN",
        b"Bearer \"t0ken\"",
        b"Bearer=t0ken",
        b"Basic t0ken",
        b"t0ken",
        b"Bearer t0ken\xff",
        b"Bearer t0ken,",
        b"",
    ] {
        assert_eq!(with(&[wrong]), 401, "{}", String::from_utf8_lossy(wrong));
    }
    assert_eq!(
        with(&[b"Bearer t0ken", b"Bearer t0ken"]),
        401,
        "twice is one value that is no token"
    );
    assert_eq!(with(&[b"Bearer wrong", b"Bearer t0ken"]), 401);
}

// Guards: a body that crashes the isolate, and the next request with it.
#[test]
fn odd_bodies_are_refused_and_the_next_is_answered() {
    let worker = Setup::new(policy(1_000)).start();
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    let wide = format!("{{\"headers\":{{{}\"z\":1}}}}", "\"a\":1,".repeat(10_000));
    for body in [
        nested("[", "]", 30_000),
        nested("{\"a\":", "}", 10_000),
        format!("{{\"method\":\"GET\",\"path\":\"/\",\"headers\":{}}}", nested("[", "]", 20_000)),
        wide,
        "[".repeat(65_536),
        "\"".repeat(65_536),
        format!("{{{}\"path\":\"/\"}}", "\"path\":\"/\",".repeat(5_000)),
        "1e999999".to_owned(),
        "\u{feff}{}".to_owned(),
    ] {
        let refused = worker.client().send(&Request::post("/check", body.clone()));
        assert_eq!(refused.status, 400, "{}", &body[..40.min(body.len())]);
        assert!(refused.body.len() < 300_000, "{} bytes of answer", refused.body.len());
    }
    let huge = worker.client().send(&Request::post("/check", vec![b' '; 100_000]));
    assert_eq!(huge.status, 413);
    assert_eq!(answer(&worker.client().send(&Request::post("/check", ASKED)))["decision"], "allow");
}

// Guards: a request that wasm cannot turn into one for the origin, which would hang; a WebSocket
// that is not counted; an origin that redirects to itself.
#[test]
fn odd_requests_in_front_of_an_origin_are_answered_and_counted() {
    let origin = serve(|request| match request.target.as_str() {
        "/loop" => request.answer("302 Found", "location: /loop\r\n", ""),
        _ => request.answer("200 OK", "", "hello"),
    });
    let worker = Setup::new(policy(6)).binding("ORIGIN", origin).start();
    let from =
        |ip: &str, request: Request| worker.client().send(&request.header("cf-connecting-ip", ip));
    for (i, method) in ["OPTIONS", "TRACE", "PROPFIND", "DELETE"].into_iter().enumerate() {
        let ip = format!("192.0.2.{}", 10 + i);
        let status = from(&ip, Request::new(method, "/")).status;
        assert!([200, 405, 501, 502].contains(&status), "{method} {status}");
        assert_eq!(from(&ip, Request::get("/loop")).status, 302);
    }
    // The whole quota, then an upgrade and every other request is denied.
    for _ in 0..6 {
        assert_eq!(from("192.0.2.1", Request::get("/loop")).status, 302);
    }
    let upgrade = Request::get("/")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(from("192.0.2.1", upgrade).status, 429);
    for path in ["/check", "/.well-known/tollgate/health/", "/.well-known/tollgate", "//"] {
        assert_eq!(from("192.0.2.1", Request::get(path)).status, 429, "{path}");
    }
    let grpc = Request::post("/", "").header("content-type", "application/grpc");
    let refused = from("192.0.2.1", grpc);
    assert_eq!((refused.status, refused.header("grpc-status").as_deref()), (200, Some("8")));
}

// Guards: a target that leaves the origin's folder and returns to it, which the origin serves as
// /login and the policy counts as /base/login; and one that stays outside.
#[test]
fn no_target_leaves_the_folder_of_the_origin() {
    let origin = serve(|received| {
        let target = received.target.clone();
        received.answer("200 OK", "", target);
    });
    let quota = json!({"algorithm": "fixed-window", "limit": 1, "window": "366d"});
    let rule =
        json!({"name": "login", "when": {"paths": ["/login"]}, "key": [], "quotas": [quota]});
    let policy = json!({"version": 1, "rules": [rule]});
    let worker = Setup::new(&policy).binding("ORIGIN", format!("{origin}/base")).start();
    let get = |target: &str| worker.client().send(&Request::get(target));
    assert_eq!(get("/login").text(), "/base/login");
    assert_eq!(get("/a/../login").status, 429);
    for target in [
        "/../base/login",
        "/%2e%2e/base/login",
        "/..%2fbase/login",
        "/..%5cbase/login",
        "/..\\base/login",
        "/a/../../base/login",
        "/a%2fb/../../base/login",
        "/..;/base/login",
        "/../secret",
    ] {
        assert_eq!(get(target).status, 400, "{target}");
    }
    assert_eq!(get("/a/../b?next=/../..").text(), "/base/b?next=/../..");
}
