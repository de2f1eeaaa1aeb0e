//! The cost of a decision in this server: in process, over HTTP and over gRPC, each next to a
//! handler that does nothing. For `cargo xtask bench fleet`; by hand `cargo run --release -p
//! tollgate-server --example decisions -- 3`.
//!
//! Invariant: each round measures all ways in turn, on one thread each, by CPU time. An output line
//! contains the way, the number of decisions, and the nanoseconds of CPU for all of them.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a measurement"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_language::DescribedRequest;
use tollgate_policy::Surface;
use tollgate_server::check;
use tollgate_server::clock::Clock;
use tollgate_server::config::{Callers, Limits};
use tollgate_server::gate::{Gate, Parts};
use tollgate_server::grpc::calls;
use tollgate_server::http::body::Body;
use tollgate_server::http::protocols::Protocols;
use tollgate_server::http::{Http, Page};
use tollgate_server::listen::peer::Peer;
use tollgate_server::log::Log;
use tollgate_server::messages::wire::Writer;
use tollgate_server::messages::{frame, header_value};
use tollgate_server::operate::admin::Operators;
use tollgate_server::policy::active::ProtocolRestrictions;
use tollgate_server::policy::following::{File, Following};
use tollgate_server::store::Store;
use tollgate_server::store::memory::Memory;
use tollgate_server::store::table::TableLimits;
use tollgate_service::Token;
use tollgate_service::log::Share;

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1000000, "window": "1m"}]}
]}"#;

/// Known clients: far more than the processor's caches hold.
const CLIENTS: u32 = 200_000;
const DECISIONS: u32 = 400_000;
const REQUESTS: u32 = 40_000;
/// Requests that are sent before the first response is read.
const AHEAD: u32 = 16;

/// The same for descriptors.
const OF_DESCRIPTORS: &str = r#"{"version": 1, "rules": [
    {"name": "each", "when": {"domain": "web", "entries": [[{"remote_address": "*"}]]},
     "key": [{"descriptor": "remote_address"}], "quotas": [{"limit": 1000000, "window": "1m"}]}
]}"#;

fn gate(policy: &str) -> Arc<Gate> {
    let clock = Clock::start();
    let limits = TableLimits { keys: 1_000_000, bytes: 1 << 30 };
    let memory = Memory::open(clock, limits, [7; 16], None).expect("a store");
    let text = policy.to_owned();
    let policy = tollgate_language::compile(policy, Surface::Server).expect("a policy");
    let file = File::new(text, policy);
    Gate::new(Parts {
        store: Store::Memory(memory),
        clock,
        log: Log::nowhere(clock),
        following: Following::new(file, false, false, ProtocolRestrictions::default()),
        hash_key: Vec::new(),
        fleet_secret: None,
        log_share: Share::DEFAULT,
        is_uncounted: false,
        seed: [9; 16],
    })
}

fn body(client: u32) -> String {
    let [_, a, b, c] = client.to_be_bytes();
    format!(r#"{{"method":"GET","path":"/api/items","client_ip":"10.{a}.{b}.{c}"}}"#)
}

/// CPU time of this thread, in nanoseconds.
fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("it does not go back")
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let (gate, of_descriptors) = (gate(POLICY), gate(OF_DESCRIPTORS));
    let described: Vec<DescribedRequest> = (0..CLIENTS)
        .map(|client| DescribedRequest::parse(body(client).as_bytes()).expect("a request"))
        .collect();
    for _ in 0..rounds {
        let decide = async |of: &dyn Fn(u32) -> usize| {
            let before = cpu();
            for n in 0..DECISIONS {
                check::decide(&gate, &described[of(n)]).await.into_decided();
            }
            cpu() - before
        };
        let spread = |n: u32| usize::try_from(n.wrapping_mul(2_654_435_761) % CLIENTS).unwrap();
        let hot = |_| 0;
        println!("decide_many {DECISIONS} {}", runtime.block_on(decide(&spread)));
        println!("decide_hot {DECISIONS} {}", runtime.block_on(decide(&hot)));
        let bodies: Vec<String> = (0..CLIENTS).map(body).collect();
        let json = async {
            let before = cpu();
            for n in 0..DECISIONS {
                check::answer(&gate, bodies[spread(n)].as_bytes()).await;
            }
            cpu() - before
        };
        println!("json {DECISIONS} {}", runtime.block_on(json));
        for way in [Way::Empty, Way::Check] {
            println!("{} {REQUESTS} {}", way.name(), http(way, &gate));
        }
        println!("grpc_empty {REQUESTS} {}", grpc(None, AUTHORIZE, &authorize));
        let ask = |gate: &Arc<Gate>| Some(asked(Arc::clone(gate)));
        println!("grpc_ext_authz {REQUESTS} {}", grpc(ask(&gate), AUTHORIZE, &authorize));
        let spent = grpc(ask(&of_descriptors), RATE_LIMIT, &limit);
        println!("grpc_ratelimit {REQUESTS} {spent}");
    }
}

/// The handler that answers over HTTP.
#[derive(Clone, Copy)]
enum Way {
    /// It reads the body and sends every caller the same response.
    Empty,
    /// It decides.
    Check,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Empty => "http_empty",
            Self::Check => "http_check",
        }
    }
}

/// Nanoseconds of CPU of a server's thread for this many requests of one connection, pipelined.
fn http(way: Way, gate: &Arc<Gate>) -> u64 {
    let (sender, address) = std::sync::mpsc::channel();
    let gate = Arc::clone(gate);
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let before = cpu();
            let answer = service_fn(|request: Request<Incoming>| respond(way, &gate, request));
            let connection = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), answer);
            connection.await.unwrap();
            cpu() - before
        })
    });
    let address = address.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(client(address));
    server.join().unwrap()
}

async fn respond(
    way: Way,
    gate: &Arc<Gate>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    use http_body_util::BodyExt;
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let text = match way {
        Way::Empty => Bytes::from_static(&[b'x'; 180]),
        Way::Check => Bytes::from(check::answer(gate, &body).await.body.into_owned()),
    };
    Ok(Response::new(Full::new(text)))
}

async fn client(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    for round in 0..REQUESTS / AHEAD {
        let mut sent = String::new();
        for n in 0..AHEAD {
            let body = body((round * AHEAD + n) % CLIENTS);
            sent += &format!(
                "POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        stream.write_all(sent.as_bytes()).await.unwrap();
        let (mut answers, mut seen) = (0, Vec::new());
        while answers < AHEAD {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the server has closed");
            seen.extend_from_slice(&buffer[..read]);
            let found = seen.windows(START.len()).filter(|bytes| *bytes == START).count();
            answers += u32::try_from(found).unwrap();
            // The last response may be cut in the middle.
            seen.drain(..seen.len() - seen.len().min(START.len() - 1));
        }
    }
}

/// The first bytes of every response.
const START: &[u8] = b"HTTP/1.1 ";

/// The gRPC calls that are measured.
const AUTHORIZE: &str = tollgate_server::messages::authorization::PATH;
const RATE_LIMIT: &str = tollgate_server::messages::rate_limit::PATH;
/// Concurrent calls per connection.
const AT_ONCE: usize = 64;
/// The token of the calls.
const TOKEN: &str = "a-token-for-measuring";

fn address(client: u32) -> String {
    let [_, a, b, c] = client.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

/// An external authorization message, as Envoy sends it for a small request.
fn authorize(client: u32) -> Vec<u8> {
    let mut out = Writer::default();
    out.message(1, |attributes| {
        attributes.message(1, |source| {
            source.message(1, |address_of| {
                address_of.message(1, |socket| socket.bytes(2, address(client).as_bytes()));
            });
        });
        attributes.message(4, |request| {
            request.message(2, |http| {
                http.bytes(2, b"GET");
                http.bytes(4, b"/api/items");
                http.bytes(5, b"example.com");
                for (name, value) in [
                    (":authority", "example.com"),
                    (":path", "/api/items"),
                    (":method", "GET"),
                    (":scheme", "https"),
                    ("user-agent", "curl/8.5.0"),
                    ("accept", "*/*"),
                    ("x-forwarded-proto", "https"),
                    ("x-request-id", "0e7cd54d-14f4-4c8c-a3b5-f60b8a9fdd0b"),
                ] {
                    http.message(13, |map| header_value::write(map, 1, name, value));
                }
            });
        });
    });
    out.finish()
}

/// A message of the rate limit service with one descriptor.
fn limit(client: u32) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(1, b"web");
    out.message(2, |descriptor| {
        header_value::write(descriptor, 1, "remote_address", &address(client));
    });
    out.finish()
}

/// The HTTP state that answers calls with the policy of `gate`.
fn asked(gate: Arc<Gate>) -> Arc<Http> {
    let protocols = Protocols { rate_limit: true, ext_authz: true, ..Protocols::default() };
    let token = Some(Token::new(TOKEN.as_bytes()));
    let callers = Callers { token, protocols, ..Callers::default() };
    let limits = Limits {
        connections: 1,
        connections_per_address: 1,
        requests: 1000,
        header_bytes: 16_384,
        header_timeout: Duration::from_secs(60),
        body_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
    };
    Arc::new(Http::new(gate, callers, Operators::default(), limits, Page::default()))
}

/// Nanoseconds of CPU of a server's thread for this many calls of one connection. Without `http`
/// the handler reads the message and sends every caller the same response.
fn grpc(http: Option<Arc<Http>>, path: &'static str, message: &dyn Fn(u32) -> Vec<u8>) -> u64 {
    let (sender, address) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let before = cpu();
            let answer = service_fn(|request: Request<Incoming>| {
                let http = http.clone();
                async move {
                    match http {
                        Some(http) => {
                            calls::respond(
                                http,
                                Peer { address: peer.ip(), is_named: false },
                                request,
                            )
                            .await
                        }
                        None => Ok(nothing(request).await),
                    }
                }
            });
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(128 * 1024)
                .initial_connection_window_size(256 * 1024)
                .serve_connection(TokioIo::new(stream), answer);
            let _ = connection.await;
            cpu() - before
        })
    });
    let address = address.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(call(address, path, message));
    server.join().unwrap()
}

async fn nothing(request: Request<Incoming>) -> Response<Body> {
    use http_body_util::BodyExt;
    let _message = request.into_body().collect().await.unwrap().to_bytes();
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
    let mut response = Response::new(Body::message(Bytes::from_static(&[0; 180]), trailers));
    let kind = hyper::header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

async fn call(address: SocketAddr, path: &str, message: &dyn Fn(u32) -> Vec<u8>) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let calls = (0..REQUESTS).map(|n| {
        let mut sender = sender.clone();
        let body = frame::framed(&message(n.wrapping_mul(2_654_435_761) % CLIENTS));
        async move {
            let head = Request::builder()
                .method("POST")
                .uri(format!("http://tollgate{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .header("grpc-timeout", "30S")
                .header("authorization", format!("Bearer {TOKEN}"));
            sender = sender.ready().await.unwrap();
            let (answer, mut sent) = sender.send_request(head.body(()).unwrap(), false).unwrap();
            sent.send_data(body.into(), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            let mut said = 0;
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                said += data.len();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            // The response to a request that no rule counts contains less.
            assert!(said > 20, "an answer of {said} bytes");
            let trailers = body.trailers().await.unwrap().expect("an answer");
            assert_eq!(trailers["grpc-status"], "0");
        }
    });
    futures_util::stream::iter(calls).buffer_unordered(AT_ONCE).for_each(async |()| {}).await;
    drop(sender);
    connection.abort();
    // An aborted task holds its socket until the runtime runs it, and the server waits for its end.
    let _aborted = connection.await;
}
