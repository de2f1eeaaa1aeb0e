//! The example as its clients see it: exact under races, bounded under floods, settled by
//! responses.
//!
//! Windows are a day long, so that nothing grows back while a test runs, however slow the machine
//! is.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing
)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use axum::routing::{any, get, post};
use example_axum::{Gate, limited};
use tokio::sync::{Barrier, Notify};
use tower::ServiceExt;

/// The gate of these rules, and a service behind it that answers with the status in the path.
fn service(rules: &str) -> (Arc<Gate>, Router) {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    let gate = Arc::new(Gate::new(&document).unwrap_or_else(|problems| panic!("{problems}")));
    let answer = |Path(status): Path<u16>| async move { StatusCode::from_u16(status).unwrap() };
    (gate.clone(), limited(Router::new().route("/{status}", any(answer)), gate))
}

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn request(peer: IpAddr, path: &str) -> Request<Body> {
    let connected = ConnectInfo(SocketAddr::new(peer, 1));
    Request::get(path).extension(connected).body(Body::empty()).unwrap()
}

async fn ask(service: &Router, peer: IpAddr, path: &str) -> Response {
    service.clone().oneshot(request(peer, path)).await.unwrap()
}

async fn status(service: &Router, peer: IpAddr, path: &str) -> u16 {
    ask(service, peer, path).await.status().as_u16()
}

fn field<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Guards: two requests that are decided at the same time never take the same unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_race_admits_exactly_the_limit() {
    const LIMIT: usize = 5_000;
    let (_, service) = service(
        r#"{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 5000, "window": "1d"}]}"#,
    );
    let start = Arc::new(Barrier::new(8));
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let (service, start) = (service.clone(), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                let mut admitted = 0;
                for _ in 0..LIMIT / 4 {
                    match status(&service, client(0), "/204").await {
                        204 => admitted += 1,
                        other => assert_eq!(other, 429),
                    }
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for racer in racers {
        admitted += racer.await.unwrap();
    }
    assert_eq!(admitted, LIMIT, "of {}", 2 * LIMIT);
}

/// Guards: ten thousand keys stay within the places of the table, and do not give a client that has
/// used up a limit a new one.
#[tokio::test]
async fn a_flood_of_keys_stays_within_the_bound() {
    let (gate, service) = service(
        r#"{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1d"}], "capacity": 500}"#,
    );
    let (places, patient) = (gate.counts().places(), client(0));
    assert!((1000..=1016).contains(&places), "{places}");
    for expected in [204, 204, 429] {
        assert_eq!(status(&service, patient, "/204").await, expected);
    }
    for number in 1..=10_000 {
        assert_eq!(status(&service, client(number), "/204").await, 204);
    }
    assert_eq!(gate.counts().len(), places, "every place is taken, and no more");
    assert_eq!(gate.counts().evicted(), 10_001 - u64::try_from(places).unwrap());
    assert_eq!(status(&service, patient, "/204").await, 429);
}

/// Guards: half of `capacity` keys all have a place, so no counted client is forgotten.
#[tokio::test]
async fn usual_numbers_of_keys_lose_nobody() {
    let (gate, service) = service(
        r#"{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1d"}], "capacity": 10000}"#,
    );
    for expected in [204, 429] {
        for number in 0..5_000 {
            assert_eq!(status(&service, client(number), "/204").await, expected);
        }
    }
    let counts = gate.counts();
    assert_eq!((counts.len(), counts.evicted()), (5_000, 0));
}

/// Guards: a request that one key denies is charged to no other.
#[tokio::test]
async fn all_keys_or_none() {
    let (_, service) = service(
        r#"{"name": "all", "key": [], "quotas": [{"limit": 5, "window": "1d"}]},
           {"name": "ip", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1d"}]}"#,
    );
    assert_eq!(status(&service, client(0), "/204").await, 204);
    for _ in 0..20 {
        assert_eq!(status(&service, client(0), "/204").await, 429);
    }
    for number in 1..5 {
        assert_eq!(status(&service, client(number), "/204").await, 204);
    }
    assert_eq!(status(&service, client(6), "/204").await, 429);
}

/// Guards: a denial has the policy's status, fields and body, and contains the time to wait.
#[tokio::test]
async fn clients_are_told() {
    let (_, service) =
        service(r#"{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1d"}]}"#);
    let allowed = ask(&service, client(0), "/204").await;
    assert_eq!(field(&allowed, "ratelimit-policy"), Some(r#""r";q=1;w=86400"#));
    assert_eq!(field(&allowed, "ratelimit"), Some(r#""r";r=0;t=86400"#));
    let refused = ask(&service, client(0), "/204").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(field(&refused, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&refused, "cache-control"), Some("no-store"));
    let seconds: u64 = field(&refused, "retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&seconds));
    let body = axum::body::to_bytes(refused.into_body(), 1024).await.unwrap();
    assert!(body.ends_with(br#""violated-policies":["r"]}"#), "{body:?}");
}

const LOGINS: &str = r#"{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1d"}],
    "charge": {"response_status": ["401"], "reserve": true}}"#;

/// Guards: a rule that charges by the response holds a place, gives it back after a success, and
/// keeps it after a failure.
#[tokio::test]
async fn responses_settle_what_is_charged() {
    let (_, service) = service(LOGINS);
    for (path, expected) in [
        ("/204", 204),
        ("/204", 204),
        ("/204", 204),
        ("/401", 401),
        ("/204", 204),
        ("/401", 401),
        ("/204", 429),
    ] {
        assert_eq!(status(&service, client(0), path).await, expected);
    }
}

/// Guards: a client that leaves before the response is charged according to the rule's `on_abort`,
/// here the default.
#[tokio::test]
async fn who_leaves_is_settled() {
    let gate = Gate::new(&format!(r#"{{"version": 1, "rules": [{LOGINS}]}}"#)).unwrap();
    let entered = Arc::new(Notify::new());
    let inside = entered.clone();
    let never = move || async move {
        inside.notify_one();
        std::future::pending::<StatusCode>().await
    };
    let service = limited(Router::new().route("/", get(never)), Arc::new(gate));
    for _ in 0..2 {
        let service = service.clone();
        let waiting = tokio::spawn(async move { ask(&service, client(0), "/").await.status() });
        entered.notified().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
    assert_eq!(status(&service, client(0), "/").await, 429);
}

/// Guards: a client that sends two credentials does not get a separate count for each, and several
/// lines of one header reach the policy.
#[tokio::test]
async fn two_credentials_are_none() {
    let (_, service) = service(
        r#"{"name": "r", "key": [{"header": "x-api-key"}], "quotas": [{"limit": 1, "window": "1d"}]}"#,
    );
    for (keys, expected) in [(["a", "b"], 400), (["a", "a"], 204), (["a", "a"], 429)] {
        let mut request = request(client(0), "/204");
        for key in keys {
            request.headers_mut().append("x-api-key", key.parse().unwrap());
        }
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), expected, "{keys:?}");
    }
}

/// Guards: a client cannot compute the hash of its key in a response, because each gate has its own
/// secret for it.
#[tokio::test]
async fn partition_keys_have_a_secret() {
    let document = r#"{"version": 1, "response": {"partition_key": true},
        "rules": [{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1d"}]}]}"#;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let gate = Arc::new(Gate::new(document).unwrap());
        let service = limited(Router::new().route("/", get(|| async {})), gate);
        let response = ask(&service, client(0), "/").await;
        seen.push(field(&response, "ratelimit-policy").unwrap().to_owned());
    }
    assert!(seen.iter().all(|policy| policy.starts_with(r#""r";q=2;w=86400;pk=:"#)), "{seen:?}");
    assert_ne!(seen[0], seen[1]);
}

/// Guards: requests that wait are allowed when their time has come. Those beyond the maximum are
/// denied with 503, and no other request loses its place.
#[tokio::test]
async fn some_wait_and_too_many_are_refused() {
    let document = r#"{"version": 1, "waiting": {"total": 1}, "rules": [{"name": "r", "key": [],
        "quotas": [{"limit": 4, "window": "2s", "burst": 3, "algorithm": "leaky-queue"}], "action": {"delay": {"max": "5s"}}}]}"#;
    let gate = Arc::new(Gate::new(document).unwrap());
    let service = limited(Router::new().route("/", get(|| async {})), gate);
    assert_eq!(status(&service, client(0), "/").await, 200);
    let waiting = tokio::spawn({
        let service = service.clone();
        async move { status(&service, client(0), "/").await }
    });
    tokio::task::yield_now().await;
    let rejected = ask(&service, client(0), "/").await;
    assert_eq!(rejected.status(), 503);
    assert!(field(&rejected, "retry-after").is_some());
    assert_eq!(waiting.await.unwrap(), 200);
}

/// Guards: the header of a mark reaches the handler; the same header from a client does not.
#[tokio::test]
async fn marks_reach_the_handler() {
    let document = r#"{"version": 1, "rules": [{"name": "r", "key": [], "quotas": [{"limit": 1, "window": "1d"}],
        "action": {"mark": {"header": "x-over", "value": "1"}}}]}"#;
    let gate = Arc::new(Gate::new(document).unwrap());
    let marks = |headers: HeaderMap| async move { format!("{:?}", headers.get("x-over")) };
    let service = limited(Router::new().route("/", get(marks)), gate);
    for expected in ["Some(\"forged\")", "Some(\"1\")"] {
        let mut request = request(client(0), "/");
        request.headers_mut().insert("x-over", "forged".parse().unwrap());
        let response = service.clone().oneshot(request).await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(body, expected);
    }
}

/// Guards, over a socket: the client is the address of the connection, a header with another
/// address changes nothing, and a body that is too long is rejected.
#[tokio::test(flavor = "multi_thread")]
async fn over_a_socket() {
    let rules = r#"{"version": 1, "rules": [{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1d"}]}]}"#;
    let length = |body: Bytes| async move { body.len().to_string() };
    let service = Router::new().route("/", post(length)).layer(DefaultBodyLimit::max(8));
    let service = limited(service, Arc::new(Gate::new(rules).unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let post = move |forged: &'static str, body: &'static str| {
        let text = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-forwarded-for: {forged}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        }
    };
    for (forged, body, expected) in [
        ("192.0.2.1", "12345678", "HTTP/1.1 200 OK"),
        ("192.0.2.2", "123456789", "HTTP/1.1 413 Payload Too Large"),
        ("192.0.2.3", "1", "HTTP/1.1 429 Too Many Requests"),
    ] {
        let answer = tokio::task::spawn_blocking(post(forged, body)).await.unwrap();
        assert_eq!(answer.lines().next(), Some(expected));
    }
}

/// Guards: the policy that the example ships is valid.
#[test]
fn the_shipped_policy_is_good() {
    let gate = Gate::new(include_str!("../policy.json")).unwrap();
    assert_eq!(gate.policy().warnings().to_string(), "");
}
