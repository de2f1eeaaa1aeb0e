//! Hostile connections: too many, too slow, too long, or not HTTP at all.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{self, allow_open_files, wait_until};
use tollgate_e2e::server::{ADMIN_TOKEN, Setup, TollgateServer, value_of};
use tollgate_e2e::workerd::{answer, check_request};

const PATIENCE: Duration = Duration::from_secs(60);

fn setup() -> Setup {
    Setup::new(json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "quotas": [
        {"algorithm": "fixed-window", "limit": 1_000_000, "window": "366d"}]}]}))
}

fn connect(server: &TollgateServer) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// All bytes until the server closes; a failed test when it does not.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let (mut read, started) = (Vec::new(), Instant::now());
    let mut some = [0; 4096];
    loop {
        match process::read(stream, &mut some) {
            Ok(0) => return read,
            Ok(n) => read.extend_from_slice(&some[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return read,
            Err(e) => panic!("{e} after {:?}: the connection stays open", started.elapsed()),
        }
    }
}

fn works(server: &TollgateServer) {
    let asked = server.client().send(&check_request("GET", "/", "192.0.2.1"));
    assert_eq!(answer(&asked)["decision"], "allow");
}

/// The value of a metric, once there is room for the connection that requests it.
fn counted(server: &TollgateServer, name: &str) -> u64 {
    let request = Request::get("/.well-known/tollgate/metrics")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"));
    wait_until("the metrics are shown", PATIENCE, || {
        let mut client = tollgate_e2e::http::Client::try_connect(server.port).ok()?;
        value_of(&client.try_send(&request).ok()?.text(), name)
    })
}

// Guards: a flood of connections that send nothing. Those beyond the limit are closed at once, the
// memory of the others is bounded, and when they have timed out every client is served again.
#[test]
fn a_flood_of_connections_is_bounded() {
    allow_open_files(20_000);
    let server = setup().set("max_connections", 500).set("header_timeout", 20).operated().start();
    works(&server);
    let before = server.server.resident_bytes();
    let mut held = Vec::new();
    for _ in 0..5_000 {
        if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)) {
            held.push(stream);
        }
    }
    assert_eq!((server.probe("/live"), server.probe("/ready")), (200, 200));
    let grown = server.server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for connections that say nothing");
    wait_until("room", PATIENCE, || {
        let mut client = tollgate_e2e::http::Client::try_connect(server.port).ok()?;
        client.try_send(&check_request("GET", "/", "192.0.2.1")).ok()
    });
    let refused = counted(&server, "tollgate_connections_refused_total");
    assert!(refused >= 4_000, "{refused}");
}

// Guards: one unauthorized client that takes the connections of all.
#[test]
fn an_address_has_a_part_of_the_connections() {
    let server = setup().set("max_per_address", 5).set("header_timeout", 60).operated().start();
    let mut held: Vec<TcpStream> = (0..5).map(|_| connect(&server)).collect();
    // The first ones may not have reached the server yet.
    wait_until("closed at once", PATIENCE, || {
        let mut one_more = connect(&server);
        one_more.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        matches!(process::read(&mut one_more, &mut [0]), Ok(0)).then_some(())
    });
    drop(held.pop());
    wait_until("room", PATIENCE, || {
        let mut client = tollgate_e2e::http::Client::try_connect(server.port).ok()?;
        client.try_send(&check_request("GET", "/", "192.0.2.1")).ok()?;
        Some(())
    });
    assert_ne!(counted(&server, "tollgate_connections_refused_by_address_total"), 0);
    for stream in &mut held {
        stream.write_all(&Request::get("/.well-known/tollgate/health").to_bytes()).expect("sent");
        assert!(process::read(stream, &mut [0; 64]).expect("who is served stays") > 0);
    }
}

#[test]
fn who_is_slow_is_closed() {
    let server =
        setup().set("header_timeout", 1).set("body_timeout", 1).set("idle_timeout", 1).start();
    // Nothing, a part of the preface of HTTP/2, a part of a head, a part of a body.
    for sent in ["", "PRI * HT", "POST /check HTTP/1.1\r\nhost: a\r\n"] {
        let mut stream = connect(&server);
        stream.write_all(sent.as_bytes()).expect("sent");
        rest(&mut stream);
    }
    let mut stream = connect(&server);
    stream
        .write_all(b"POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{")
        .expect("sent");
    let said = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    // A whole request, and then silence.
    let mut stream = connect(&server);
    stream.write_all(&Request::get("/.well-known/tollgate/health").to_bytes()).expect("sent");
    let said = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    // Only the preface of HTTP/2.
    let mut stream = connect(&server);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    rest(&mut stream);
    works(&server);
}

#[test]
fn what_is_no_http_is_refused_and_harms_nobody() {
    let server = setup().start();
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    let hostile: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(50),
        b"\r\n\r\n\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET /\0 HTTP/1.1\r\n\r\n".to_vec(),
        b"POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n12345".to_vec(),
        b"POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"POST /check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n".to_vec(),
        b"POST /check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        long.into_bytes(),
        many.into_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff".repeat(20),
    ];
    for sent in hostile {
        let mut stream = connect(&server);
        // The server may close before all is sent.
        let _ = stream.write_all(&sent);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let said = rest(&mut stream);
        let is_refused = !said.windows(13).any(|bytes| bytes == b"HTTP/1.1 200 ");
        assert!(is_refused, "{:?}", String::from_utf8_lossy(&sent[..sent.len().min(80)]));
        works(&server);
    }
    // A chunked body without a length is read to its limit and no further.
    let mut stream = connect(&server);
    let head = b"POST /check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).expect("sent");
    let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
    for _ in 0..100 {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let said = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 413 "), "{said}");
    works(&server);
}

/// The bytes so far, without waiting for more.
fn so_far(stream: &mut TcpStream, read: &mut Vec<u8>) {
    let mut some = [0; 4096];
    stream.set_nonblocking(true).expect("a socket");
    while let Ok(n @ 1..) = process::read(stream, &mut some) {
        read.extend_from_slice(&some[..n]);
    }
}

/// `count` connections that have sent a head and wait with the body, and the bytes that they have
/// read.
fn slow_bodies(server: &TollgateServer, count: usize) -> Vec<(TcpStream, Vec<u8>)> {
    let head = b"POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n";
    let one = |_| {
        let mut stream = connect(server);
        stream.write_all(head).expect("sent");
        (stream, Vec::new())
    };
    (0..count).map(one).collect()
}

/// Waits until all but `left` of them have a response, each 503.
fn all_but(left: usize, held: &mut [(TcpStream, Vec<u8>)]) {
    wait_until("503", PATIENCE, || {
        held.iter_mut().for_each(|(stream, read)| so_far(stream, read));
        let answered = held.iter().filter(|(_, read)| read.ends_with(b"}")).count();
        (answered == held.len() - left).then_some(())
    });
    for (_, read) in held.iter().filter(|(_, read)| !read.is_empty()) {
        let said = String::from_utf8_lossy(read).to_ascii_lowercase();
        assert!(said.starts_with("http/1.1 503 "), "{said}");
        assert!(said.contains("\r\nretry-after: 1\r\n"), "{said}");
    }
}

// Guards: clients that send bodies slowly and take every place, so that all others get 503. Half of
// the places are for unfinished bodies; more of them get 503, counted, and whole requests are
// served.
#[test]
fn slow_bodies_leave_room_for_whole_requests() {
    const LIMIT: usize = 8;
    const SENT: usize = 20;
    let server = setup().set("max_requests", LIMIT).set("body_timeout", 300).operated().start();
    let mut held = slow_bodies(&server, SENT);
    all_but(LIMIT / 2, &mut held);
    let response = server.client().send(&check_request("GET", "/", "192.0.2.1"));
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(counted(&server, "tollgate_overloaded_total"), (SENT - LIMIT / 2) as u64);
}

// Guards: an unbounded number of requests in flight. Those beyond the limit get 503, counted, and a
// request that comes when the others have left is served. No other request is sent meanwhile,
// because it could take the place of a held one.
#[test]
fn requests_under_way_are_bounded() {
    const SENT: usize = 20;
    let server = setup().set("max_requests", 1).set("body_timeout", 300);
    let server = server.set("protocols", "ext_authz_http,nginx").operated().start();
    let mut held = slow_bodies(&server, SENT);
    all_but(1, &mut held);
    // A failure would make a proxy allow the request if it is configured to continue without the
    // server.
    for (path, status) in [("/forward-auth/envoy/", 429), ("/forward-auth/nginx", 403)] {
        assert_eq!(server.client().send(&Request::get(path)).status, status, "{path}");
    }
    drop(held);
    wait_until("room", PATIENCE, || {
        let response = server.client().send(&check_request("GET", "/", "192.0.2.1"));
        (response.status == 200).then_some(())
    });
    assert!(counted(&server, "tollgate_overloaded_total") >= SENT as u64 - 1);
}

/// A connection to the server from an address of this machine (127.0.0.2 is one).
async fn connect_from(from: Ipv4Addr, port: u16) -> std::io::Result<tokio::net::TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect((Ipv4Addr::LOCALHOST, port).into()).await
}

// Guards: a crowd that sends nothing, or little and slowly, from many addresses. An address that
// holds its share of the connections leaves the others theirs, memory is bounded by their number,
// and when they are gone nothing of them remains. TOLLGATE_CONNECTIONS=100000 is the same with
// more, as far as the machine's limit of open files allows; half of them are idle and half in the
// middle of a head, a body, or the first bytes of HTTP/2.
#[test]
fn a_crowd_of_slow_connections_leaves_room_for_honest_ones() {
    let wanted: usize = std::env::var("TOLLGATE_CONNECTIONS")
        .map_or(5_000, |count| count.parse().expect("a number of connections"));
    allow_open_files(2 * u64::try_from(wanted).expect("a number") + 2_000);
    let of_each = 500;
    let limit = wanted + 100;
    let server = setup().set("max_connections", limit).set("max_per_address", of_each);
    let server = server.set("header_timeout", 300).set("body_timeout", 300);
    let server = server.set("max_requests", wanted).set("idle_timeout", 300).operated().start();
    works(&server);
    let before = server.server.resident_bytes();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let begun: [&[u8]; 4] = [
        b"",
        b"POST /check HTTP/1.1\r\nhost: a\r\nx-slow: ",
        b"POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ];
    // One address tries twice its share, and each of the others all of its own.
    let addresses = wanted.div_ceil(of_each) + 1;
    let held = runtime.block_on(async {
        use tokio::io::AsyncWriteExt;
        let mut held = Vec::with_capacity(wanted);
        for i in 0..wanted + of_each {
            let address = (i / of_each).saturating_sub(1) % addresses;
            let last = u8::try_from(address % 250).expect("small") + 2;
            let third = u8::try_from(address / 250).expect("small");
            let Ok(mut stream) =
                connect_from(Ipv4Addr::new(127, 0, third, last), server.port).await
            else {
                continue;
            };
            let _ = stream.write_all(begun[i % 8 % 4]).await;
            held.push(stream);
        }
        held
    });
    wait_until("they are held", PATIENCE, || {
        (counted(&server, "tollgate_connections") + 1 >= u64::try_from(wanted).expect("a number"))
            .then_some(())
    });
    wait_until("one has no more than his part", PATIENCE, || {
        let refused = counted(&server, "tollgate_connections_refused_by_address_total");
        (refused >= u64::try_from(of_each).expect("a number")).then_some(())
    });
    // Honest connections, from an address of their own: all of them get responses.
    for _ in 0..50 {
        works(&server);
    }
    assert_eq!((server.probe("/live"), server.probe("/ready")), (200, 200));
    let grown = server.server.resident_bytes().saturating_sub(before);
    let each = grown / u64::try_from(wanted).expect("a number");
    println!("{wanted} connections: {each} bytes each, {} MiB in all", grown >> 20);
    assert!(each < 48 << 10, "{each} bytes for a connection that says little");
    drop(held);
    wait_until("all are gone", PATIENCE, || {
        (counted(&server, "tollgate_connections") <= 1).then_some(())
    });
    works(&server);
}

/// A frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    let head = [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// The fields of `GET /.well-known/tollgate/health`, as a block without a table (RFC 7541, 6.2.2).
fn health_fields() -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x01, 1, b'a', 0x04];
    let path = b"/.well-known/tollgate/health";
    block.push(u8::try_from(path.len()).expect("short"));
    block.extend_from_slice(path);
    block
}

// Guards: requests that cost a server more than their client over HTTP/2: streams that are begun
// and reset (CVE-2023-44487), fields that never end (CVE-2024-27316), pings and settings that each
// require a response while the client reads none (CVE-2019-9512, 9515), responses that no window
// lets out (CVE-2019-9511). Each connection is closed or bounded, and others are served.
#[test]
fn floods_of_http2_end_and_harm_nobody() {
    let server = setup().set("header_timeout", 2).set("idle_timeout", 2).operated().start();
    let before = server.server.resident_bytes();
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
    let resets = (0..50_000_u32).flat_map(|i| {
        let stream = 2 * i + 1;
        [frame(1, 5, stream, &health_fields()), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
    });
    let fields_without_end = [
        frame(1, 0, 1, &health_fields()),
        frame(9, 0, 1, &[&[0x00, 1, b'x', 0x7f, 0x81, 0x7e][..], &[b'y'; 16_000]].concat())
            .repeat(200),
    ]
    .concat();
    let no_window = {
        // SETTINGS_INITIAL_WINDOW_SIZE 0, and a hundred requests whose responses cannot be sent.
        let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let asks = (0..100_u32).flat_map(|i| frame(1, 5, 2 * i + 1, &health_fields()));
        settings.into_iter().chain(asks).collect::<Vec<u8>>()
    };
    let floods: [(&str, Vec<u8>); 6] = [
        ("resets", resets.collect()),
        ("fields without end", fields_without_end),
        ("pings", frame(6, 0, 0, &[7; 8]).repeat(500_000)),
        ("settings", frame(4, 0, 0, &[0, 3, 0, 0, 0, 1]).repeat(500_000)),
        ("no window", no_window),
        (
            "empty data",
            [frame(1, 4, 1, &health_fields()), frame(0, 0, 1, &[]).repeat(500_000)].concat(),
        ),
    ];
    for (name, sent) in &floods {
        let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&server)).collect();
        for stream in &mut streams {
            // The client does not read, so bytes that the server does not read stay with the
            // client.
            stream.set_write_timeout(Some(Duration::from_secs(3))).expect("a socket");
            let _ = stream.write_all(&preface).and_then(|()| stream.write_all(sent));
        }
        for _ in 0..5 {
            works(&server);
        }
        for stream in &mut streams {
            rest(stream);
        }
        let grown = server.server.resident_bytes().saturating_sub(before);
        println!("{name}: {} KiB sent, {} KiB of memory", sent.len() >> 10, grown >> 10);
        assert!(grown < 48 << 20, "{name}: {grown} bytes");
    }
    wait_until("all are gone", PATIENCE, || {
        (counted(&server, "tollgate_connections") <= 1).then_some(())
    });
}

// Guards: connections that begin TLS and never continue, or send something other than TLS.
#[test]
fn slow_handshakes_end() {
    let files = tollgate_e2e::process::TempDir::new("slow-tls");
    let own =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let path = |name: &str| files.path().join(name);
    std::fs::write(path("cert.pem"), own.cert.pem()).expect("written");
    std::fs::write(path("key.pem"), own.signing_key.serialize_pem()).expect("written");
    let server = setup().set("header_timeout", 1).operated();
    let server = server.set("tls_certificate", path("cert.pem").display());
    let server = server.set("tls_key", path("key.pem").display()).start();
    // Nothing, a part of a record, a record that is longer than the bytes sent.
    let begun: [&[u8]; 4] =
        [b"", b"\x16\x03", b"\x16\x03\x01\x40\x00\x01", b"GET / HTTP/1.1\r\n\r\n"];
    let mut held: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    for (i, stream) in held.iter_mut().enumerate() {
        stream.write_all(begun[i % 4]).expect("sent");
    }
    for stream in &mut held {
        assert!(!rest(stream).starts_with(b"HTTP"));
    }
}
