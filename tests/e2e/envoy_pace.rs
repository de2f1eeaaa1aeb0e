//! The pace of waiting requests, whatever others do meanwhile: the rate of their quota, though many
//! leave; streams of HTTP/2 and gRPC like connections of their own; and the memory of their bodies.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::crowd::{End, Fate, Member, gather};
use tollgate_e2e::grpc::call;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// Far longer than any wait that a policy here allows.
const PATIENCE: Duration = Duration::from_secs(90);

fn policy(limit: u64, burst: u64, algorithm: &str) -> Value {
    json!({
        "version": 1,
        "waiting": {"per_key": 20_000, "total": 20_000},
        "rules": [{
            "name": "line", "key": [],
            "quotas": [{"limit": limit, "window": "1s", "burst": burst, "algorithm": algorithm}],
            "action": {"delay": {"max": "5m"}},
        }],
    })
}

/// The requests that continued, and those that wait.
fn seen(envoy: &Envoy) -> (u64, u64) {
    let stats = envoy.stats();
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    (of("http.main.downstream_rq_2xx"), of("wasmcustom.tollgate.waiting"))
}

/// This many left, by their own count; a few of them at the moment of their turn.
fn assert_left(envoy: &Envoy, left: u64) {
    let counted = envoy.stat("wasmcustom.tollgate.waiting_left");
    assert!((left - left / 8..=left).contains(&counted), "{left} left, {counted} are counted");
}

const SECOND_NS: u64 = 1_000_000_000;
/// The turns of one step of the test's clock: not more than a worker gives at a time.
const TURNS: u64 = 20;

// Guards: a line that moves in ticks, or waits for a request that left: of those that wait every
// fourth leaves, and another takes its place at once. The test sets the clock, so exactly the turns
// of each step continue, on any machine.
#[test]
fn a_line_goes_at_the_rate_of_its_quota() {
    process::allow_open_files(30_000);
    for (limit, algorithm) in
        [(100, "leaky-queue"), (100, "gcra"), (1_000, "leaky-queue"), (1_000, "gcra")]
    {
        // With `gcra` the burst continues at once.
        let (count, burst, at_once) = match algorithm {
            "gcra" => (8 * limit, limit, limit),
            _ => (7 * limit, 10 * limit, 1),
        };
        let mut setup = Setup::policy(1, &policy(limit, burst, algorithm));
        // A request to the worker makes it notice that the clock was set.
        setup.listeners.push(Listener::new("bell", vec![]));
        let mut now_ns = 1_000 * SECOND_NS;
        setup.clock_ns = Some(now_ns);
        let envoy = setup.start();
        let port = envoy.ports[0];
        let member = |i: u64| {
            // Between the second and the fifth second, while those before still wait.
            let after = Duration::from_millis(2_000 + i.wrapping_mul(7_919) % 3_000);
            let fate = if i % 4 == 3 { Fate::LeavesAfter(after) } else { Fate::Stays };
            let is_http2 = !i.is_multiple_of(8);
            Member { request: Arc::new(Request::get("/")), is_http2, fate }
        };
        let crowd = (0..count).map(member).collect();
        let crowd = thread::spawn(move || gather(port, crowd, PATIENCE));
        process::wait_until("everybody has come", PATIENCE, || {
            (envoy.stat("http.main.downstream_rq_total") >= count).then_some(())
        });
        let mut bell = Client::connect(envoy.ports[1]);
        let mut turns = at_once;
        loop {
            let (went, waiting) = process::wait_until("those in turn go", PATIENCE, || {
                bell.send(&Request::get("/"));
                let (went, waiting) = seen(&envoy);
                (went >= turns || waiting == 0).then_some((went, waiting))
            });
            assert!(went <= turns, "{algorithm} {limit}/s: {went} went in {turns} turns");
            if waiting == 0 {
                break;
            }
            let step_ns = TURNS * SECOND_NS / limit;
            sleep(Duration::from_nanos(step_ns)); // others leave meanwhile
            now_ns += step_ns;
            envoy.set_clock(now_ns);
            turns += TURNS;
        }
        let ends = crowd.join().expect("a crowd");
        let left = ends.iter().filter(|end| **end == End::Left).count() as u64;
        let passed = ends.iter().filter(|end| **end == End::Answer(200)).count() as u64;
        println!("{algorithm} {limit}/s: {passed} passed in {turns} turns, {left} left");
        assert_eq!(passed + left, count, "{algorithm} {limit}/s: {ends:?}");
        assert!(left > count / 20, "{algorithm} {limit}/s: {left} left");
        assert_left(&envoy, left);
        assert_eq!(envoy.stat("wasmcustom.tollgate.places_unused"), 0);
    }
}

// Guards: a stream of HTTP/2 that is reset and keeps its place, while its connection and the
// connection's other streams stay; a gRPC call that waits and never gets a response.
#[test]
fn a_grpc_stream_that_is_reset_gives_its_place_back() {
    let mut policy = policy(10, 100, "leaky-queue");
    policy["rules"][0]["key"] = json!([{"header": "x-key"}]);
    let envoy = Setup::policy(1, &policy).start();
    let started = Instant::now();
    let member = |i: u64| Member {
        request: Arc::new(call("application/grpc", "k")),
        is_http2: true,
        // All on one connection: every second stream is reset.
        fate: if i % 2 == 1 { Fate::LeavesAfter(Duration::from_millis(300)) } else { Fate::Stays },
    };
    let ends = gather(envoy.ports[0], (0..40).map(member).collect(), PATIENCE);
    let answered = ends.iter().filter(|end| **end == End::Answer(200)).count() as u64;
    let left = ends.iter().filter(|end| **end == End::Left).count() as u64;
    assert_eq!(answered + left, 40, "{ends:?}");
    assert!(left >= 10, "{left} were reset");
    // A denial in gRPC also has the status 200.
    assert_eq!(envoy.decisions("line", "denied"), 0);
    assert_eq!(envoy.stat("http.main.downstream_cx_http2_total"), 1, "one connection for all");
    assert_left(&envoy, left);
    assert_eq!(envoy.stat("wasmcustom.tollgate.waiting"), 0);
    // A request that arrives now waits behind those that continued, not behind those that left.
    let soonest = started + Duration::from_millis(100 * (answered - 1));
    let next = tollgate_e2e::http2::send(envoy.ports[0], &call("application/grpc", "k"));
    assert_eq!(next.response.status, 200);
    let told = next.response.header("ratelimit").expect("fields");
    let remaining = told.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    let remaining: u32 = remaining.and_then(|r| r.parse().ok()).expect("a number");
    assert!(Instant::now() >= soonest && remaining >= 97, "{remaining} of 100 places are free");
}

/// Reads every request to its end and responds with 200; returns the counter of the body bytes
/// read.
fn origin() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let read = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&read);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            thread::spawn(move || serve(stream, &count));
        }
    });
    (port, read)
}

/// One request of a connection.
fn serve(mut stream: TcpStream, count: &AtomicU64) -> Option<()> {
    let (mut buffer, mut head) = (vec![0; 1 << 16], Vec::new());
    let end = loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&buffer[..read]);
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let fields = String::from_utf8_lossy(&head[..end]).to_lowercase();
    let length = fields.split("content-length: ").nth(1)?.lines().next()?.trim();
    let length: u64 = length.parse().ok()?;
    let mut read = (head.len() - end) as u64;
    while read < length {
        read += stream.read(&mut buffer).ok().filter(|read| *read > 0)? as u64;
    }
    count.fetch_add(read, Ordering::Relaxed);
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").ok()
}

const UPLOADS: usize = 24;
const UPLOAD: usize = 10_000_000;
const RECEIVED: &str = "http.main.downstream_cx_rx_bytes_total";

/// Bytes allocated by Envoy's allocator.
fn allocated(envoy: &Envoy) -> u64 {
    let told = Client::connect(envoy.admin).send(&Request::get("/memory")).text();
    let told: Value = serde_json::from_str(&told).expect("a report");
    told["allocated"].as_str().and_then(|bytes| bytes.parse().ok()).expect("a number")
}

/// The bytes that Envoy has received, and its growth in memory, while [`UPLOADS`] requests of
/// [`UPLOAD`] bytes each wait and none has continued. Then all continue, and arrive whole.
fn uploads(manager: &Value, is_http2: bool) -> [u64; 2] {
    let (port, arrived) = origin();
    let mut policy = policy(1_000, 1_000, "gcra");
    policy["rules"][0]["quotas"] =
        json!([{"limit": UPLOADS, "window": "1s", "algorithm": "fixed-window"}]);
    let mut main = Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]).behind_origin();
    main.manager = manager.clone();
    // A request to the worker makes it notice that the clock was set.
    let mut setup = Setup::new(1, vec![main, Listener::new("bell", vec![])]);
    setup.origin = port;
    setup.clock_ns = Some(1_000_000_000_000);
    let envoy = setup.start();
    // The window is used up, so all that arrive wait for the next one.
    for _ in 0..UPLOADS {
        assert_eq!(envoy.client().send(&Request::post("/", vec![b'x'])).status, 200);
    }
    let before = [envoy.stat(RECEIVED), allocated(&envoy)];
    let mut request = Request::post("/", vec![b'x'; UPLOAD]);
    if is_http2 {
        request = request.header("content-length", UPLOAD.to_string());
    }
    let (request, main) = (Arc::new(request), envoy.ports[0]);
    let member = move |_| Member { request: Arc::clone(&request), is_http2, fate: Fate::Stays };
    let crowd = thread::spawn(move || gather(main, (0..UPLOADS).map(member).collect(), PATIENCE));
    process::wait_until("all wait", PATIENCE, || {
        (envoy.stat("wasmcustom.tollgate.waiting") == UPLOADS as u64).then_some(())
    });
    // Until no more bytes arrive.
    let mut seen = (0, Instant::now());
    while seen.1.elapsed() < Duration::from_secs(1) {
        let received = envoy.stat(RECEIVED);
        if received != seen.0 {
            seen = (received, Instant::now());
        }
        sleep(Duration::from_millis(50));
    }
    let held = [envoy.stat(RECEIVED), allocated(&envoy)];
    assert_eq!(arrived.load(Ordering::Relaxed), UPLOADS as u64, "nobody went yet");
    envoy.set_clock(1_001_000_000_000);
    let mut bell = Client::connect(envoy.ports[1]);
    process::wait_until("all went", PATIENCE, || {
        bell.send(&Request::get("/"));
        crowd.is_finished().then_some(())
    });
    let ends = crowd.join().expect("a crowd");
    assert!(ends.iter().all(|end| *end == End::Answer(200)), "{ends:?}");
    let whole = (UPLOADS * (UPLOAD + 1)) as u64;
    assert_eq!(arrived.load(Ordering::Relaxed), whole, "they arrive whole");
    [0, 1].map(|i| held[i].saturating_sub(before[i]))
}

// Guards: memory that waiting requests fill with their bodies. Over HTTP/1.1 a connection's buffer
// is the bound (1 MiB by default), over HTTP/2 the window of a stream, which is larger than this
// whole body unless the file configures it.
#[test]
fn a_body_waits_where_it_comes_from() {
    const NARROW: [&str; 2] =
        ["initial_stream_window_size: 65536", "initial_connection_window_size: 1048576"];
    let shipped = include_str!("../../envoy/envoy.yaml");
    assert!(NARROW.iter().all(|line| shipped.contains(line)), "envoy.yaml says the windows");
    process::allow_open_files(4_000);
    let narrow = json!({"http2_protocol_options": {
        "initial_stream_window_size": 65_536, "initial_connection_window_size": 1_048_576,
    }});
    for (what, manager, is_http2, most) in [
        ("HTTP/1.1", json!({}), false, UPLOADS as u64 * 2_500_000),
        ("HTTP/2", narrow, true, 12_000_000),
    ] {
        let [received, grown] = uploads(&manager, is_http2);
        let sent = UPLOADS * UPLOAD;
        println!("{what}: of {sent} bytes {received} received, {grown} more allocated");
        assert!(received > 500_000, "{what}: {received} received: nothing was sent yet");
        assert!(received < most && grown < most, "{what}: {received} received, {grown} held");
    }
}
