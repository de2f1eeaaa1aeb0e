//! The ends of streams that free a place of a limit on requests in flight, in a real Envoy: a
//! time-out of the route, a closed upgrade, responses of Envoy itself, and an internal redirect.
//!
//! Invariant: a place is counted for a day unless its stream's end frees it, so no test passes by
//! expiry. `envoy_concurrency` has clients that leave and responses that end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{READY_WITHIN, wait_until};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

const QUOTA: u64 = 1_000;

/// One request of a user at the same time.
fn filter() -> Value {
    let policy = json!({"version": 1, "rules": [{
        "name": "each",
        "key": [{"header": "x-user"}],
        "quotas": [{"limit": QUOTA, "window": "1d", "algorithm": "fixed-window"}],
        "concurrency": {"limit": 1, "max_age": "1d"},
        "action": {"deny": {"status": 403}},
    }]});
    tollgate(&policy, "vm", As::Text)
}

fn start(listener: Listener, origin: u16) -> Envoy {
    let mut setup = Setup::new(1, vec![listener]);
    setup.origin = origin;
    setup.start()
}

/// A listener whose requests to `/` go to the origin by this route.
fn routed(filters: Vec<Value>, mut route: Value) -> Listener {
    route["cluster"] = json!("origin");
    let mut listener = Listener::new("main", filters);
    listener.routes = json!([{"match": {"prefix": "/"}, "route": route}]);
    listener
}

fn get(target: &str) -> Request {
    Request::get(target).header("x-user", "u")
}

/// Waits until a request of the user is allowed, and returns its response's status.
fn allowed(envoy: &Envoy, request: &Request) -> u16 {
    wait_until("the place is free", READY_WITHIN, || {
        let status = envoy.client().send(request).status;
        (status != 403).then_some(status)
    })
}

fn no_failures(envoy: &Envoy) {
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
    assert_eq!(envoy.stat("wasmcustom.tollgate.in_flight_late"), 0);
}

// Guards: a place that is lost with a request whose origin does not respond in time.
#[test]
fn a_time_out_of_the_route_frees_the_place() {
    let login = Login::start();
    let envoy = start(routed(vec![filter()], json!({"timeout": "1s"})), login.port);
    login.hold(true);
    let mut slow = envoy.client();
    slow.start(&get("/200")).expect("taken");
    wait_until("it runs", READY_WITHIN, || (login.arrived() == 1).then_some(()));
    assert_eq!(slow.finish(false).expect("an answer").status, 504);
    login.hold(false);
    assert_eq!(allowed(&envoy, &get("/200")), 200);
    no_failures(&envoy);
}

/// An origin that gives each request to `serve` on a connection of its own.
fn origin(serve: impl Fn(&str, &TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the origin");
    let port = listener.local_addr().expect("an address").port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(&head(&connection), &connection));
        }
    });
    port
}

/// A head, up to its empty line; less when the peer disconnects.
fn head(connection: &TcpStream) -> String {
    let (mut reader, mut head) = (BufReader::with_capacity(1, connection), String::new());
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
    head
}

/// Accepts an upgrade, and closes the connection when the client sends `close`.
fn upgrade(_: &str, mut connection: &TcpStream) {
    let switched = b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    if connection.write_all(switched).is_err() {
        return;
    }
    let (mut read, mut bytes) = (vec![], [0; 64]);
    while let Ok(length @ 1..) = connection.read(&mut bytes) {
        read.extend_from_slice(&bytes[..length]);
        if read.ends_with(b"close") || connection.write_all(&bytes[..length]).is_err() {
            return;
        }
    }
}

/// A connection that has been upgraded; `None` when the request was denied.
fn upgraded(envoy: &Envoy) -> Option<TcpStream> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, envoy.ports[0])).expect("Envoy");
    socket.set_read_timeout(Some(READY_WITHIN)).expect("a time-out");
    let request = get("/socket").header("connection", "upgrade").header("upgrade", "websocket");
    socket.write_all(&request.to_bytes()).expect("sent");
    let head = head(&socket);
    let is_denied = head.starts_with("HTTP/1.1 403 ");
    assert!(is_denied || head.starts_with("HTTP/1.1 101 "), "{head}");
    (!is_denied).then_some(socket)
}

// Guards: a connection that is passed through and frees its place at once, or never.
#[test]
fn an_upgraded_connection_has_its_place_until_either_side_closes_it() {
    let mut listener = routed(vec![filter()], json!({"timeout": "0s"}));
    listener.manager = json!({"upgrade_configs": [{"upgrade_type": "websocket"}]});
    let envoy = start(listener, origin(upgrade));
    for is_closed_by_client in [true, false] {
        let mut socket = wait_until("the place is free", READY_WITHIN, || upgraded(&envoy));
        socket.write_all(b"hello").expect("sent");
        let mut echo = [0; 5];
        socket.read_exact(&mut echo).expect("an echo");
        assert_eq!(&echo, b"hello");
        assert_eq!(envoy.client().send(&get("/socket")).status, 403, "it still runs");
        if is_closed_by_client {
            drop(socket);
        } else {
            socket.write_all(b"close").expect("sent");
            assert_eq!(socket.read(&mut echo).unwrap_or(0), 0, "the origin closed it");
        }
    }
    wait_until("the place is free", READY_WITHIN, || upgraded(&envoy));
    no_failures(&envoy);
}

// Guards: a place that is lost where no origin is asked, because a filter behind this one responds,
// the route does, or the router has no connection.
#[test]
fn a_response_of_envoy_itself_frees_the_place() {
    let fault = json!({
        "name": "envoy.filters.http.fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "abort": {"http_status": 418, "percentage": {"numerator": 100}},
            "headers": [{"name": "x-fault", "present_match": true}],
        },
    });
    let mut listener = routed(vec![filter(), fault], json!({}));
    let direct = json!({"match": {"path": "/direct"}, "direct_response": {"status": 410}});
    listener.routes.as_array_mut().expect("routes").insert(0, direct);
    let envoy = start(listener, 0); // no origin listens
    let requests =
        [(get("/").header("x-fault", "yes"), 418), (get("/direct"), 410), (get("/"), 503)];
    for _ in 0..3 {
        for (request, status) in &requests {
            assert_eq!(allowed(&envoy, request), *status);
        }
    }
    assert_eq!(allowed(&envoy, &get("/direct")), 410, "the last one is free, too");
    no_failures(&envoy);
}

// Guards: a redirect inside Envoy that is denied because its own first stream still has the place,
// and a second stream that has none.
#[test]
fn an_internal_redirect_is_a_second_stream() {
    let is_held = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&is_held);
    let port = origin(move |head, mut connection| {
        let answer = if head.starts_with("GET /first ") {
            "HTTP/1.1 302 Found\r\nlocation: http://localhost/second\r\n"
        } else {
            while shared.load(SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            "HTTP/1.1 200 OK\r\n"
        };
        let answer = format!("{answer}content-length: 0\r\nconnection: close\r\n\r\n");
        let _ = connection.write_all(answer.as_bytes()); // the peer may have left
    });
    let policy = json!({"redirect_response_codes": [302], "max_internal_redirects": 1});
    let envoy = start(routed(vec![filter()], json!({"internal_redirect_policy": policy})), port);
    let mut client = envoy.client();
    client.start(&get("/first")).expect("taken");
    wait_until("the second stream is at the origin", READY_WITHIN, || {
        let redirected = envoy.stat("cluster.origin.upstream_internal_redirect_succeeded_total");
        (redirected == 1).then_some(())
    });
    assert_eq!(envoy.client().send(&get("/second")).status, 403, "the second stream runs");
    is_held.store(false, SeqCst);
    let response = client.finish(false).expect("an answer");
    assert_eq!(response.status, 200);
    let field = response.header("ratelimit").expect("the field");
    assert!(field.starts_with(&format!("\"each\";r={}", QUOTA - 2)), "two were charged: {field}");
    assert_eq!(allowed(&envoy, &get("/second")), 200);
    no_failures(&envoy);
}
