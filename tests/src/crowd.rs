//! Many clients at once, over HTTP/1.1 and HTTP/2, some of which disconnect before their response.
//!
//! Invariant: every member ends, and one that has neither a response nor left in time is reported
//! as hung. Deliberately absent: the parts of a response other than its status and the presence of
//! `retry-after`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2::client::SendRequest;
use http::Request as Head;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::http::Request;

/// Streams of one HTTP/2 connection.
const STREAMS: usize = 50;

/// One client.
#[derive(Clone)]
pub struct Member {
    /// The request that it sends.
    pub request: Arc<Request>,
    /// True for one of many streams of a connection, false for a connection of its own.
    pub is_http2: bool,
    /// Whether it waits for its response.
    pub fate: Fate,
}

/// Whether a client waits for its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits.
    Stays,
    /// It disconnects this long after the first of all requests has arrived.
    LeavesAfter(Duration),
}

/// How a client's request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status; a denial (429, 503) had `retry-after`.
    Answer(u16),
    /// The client left.
    Left,
    /// Neither happened in time.
    Hung,
    /// The connection or the response was invalid.
    Broken(String),
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends all of them to `port`, and waits at most `patience` for their responses.
pub fn gather(port: u16, members: Vec<Member>, patience: Duration) -> Vec<End> {
    send_and_end(port, members, patience, &AtomicBool::new(false))
}

/// Sends all of them to `port`; when `leave` becomes true, all clients without a response
/// disconnect at once.
pub fn gather_until(port: u16, members: Vec<Member>, leave: &AtomicBool) -> Vec<End> {
    const PATIENCE: Duration = Duration::from_secs(600);
    send_and_end(port, members, PATIENCE, leave)
}

fn send_and_end(
    port: u16,
    members: Vec<Member>,
    patience: Duration,
    leave: &AtomicBool,
) -> Vec<End> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("no runtime");
    runtime.block_on(async {
        let started = Instant::now();
        let mut tasks = Vec::new();
        let (multiplexed, alone): (Vec<_>, Vec<_>) = members.into_iter().partition(|m| m.is_http2);
        for members in multiplexed.chunks(STREAMS) {
            match connect_http2(port).await {
                Ok(sender) => {
                    for member in members.iter().cloned() {
                        let (sender, fate) = (sender.clone(), member.fate);
                        let exchange = async move { over_http2(sender, &member.request).await };
                        tasks.push(spawn(exchange, fate, started, patience));
                    }
                }
                Err(error) => {
                    tasks.push(tokio::spawn(async move { End::Broken(error.to_string()) }))
                }
            }
        }
        for member in alone {
            // One after the other: all at once would overflow the kernel's accept queue of the
            // server.
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
            let exchange = async move { over_http1(stream?, &member.request).await };
            tasks.push(spawn(exchange, member.fate, started, patience));
        }
        while !leave.load(Ordering::Relaxed) && !tasks.iter().all(JoinHandle::is_finished) {
            sleep(Duration::from_millis(20)).await;
        }
        if leave.load(Ordering::Relaxed) {
            tasks.iter().for_each(JoinHandle::abort);
        }
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(match task.await {
                Ok(end) => end,
                Err(error) if error.is_cancelled() => End::Left,
                Err(error) => End::Broken(error.to_string()),
            });
        }
        ends
    })
}

fn spawn(
    exchange: impl Future<Output = Result<End, Failure>> + Send + 'static,
    fate: Fate,
    started: Instant,
    patience: Duration,
) -> JoinHandle<End> {
    let (until, otherwise) = match fate {
        Fate::Stays => (Instant::now() + patience, End::Hung),
        Fate::LeavesAfter(after) => (started + after, End::Left),
    };
    tokio::spawn(async move {
        match timeout_at(until, exchange).await {
            Ok(end) => end.unwrap_or_else(|error| End::Broken(error.to_string())),
            Err(_) => otherwise,
        }
    })
}

async fn connect_http2(port: u16) -> Result<SendRequest<bytes::Bytes>, Failure> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (sender, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn over_http2(sender: SendRequest<bytes::Bytes>, request: &Request) -> Result<End, Failure> {
    let mut sender = sender.ready().await?;
    let uri = format!("http://localhost{}", request.target);
    let mut head = Head::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in &request.headers {
        head = head.header(name.as_slice(), value.as_slice());
    }
    let (answer, mut body) = sender.send_request(head.body(())?, request.body.is_empty())?;
    if !request.body.is_empty() {
        body.send_data(request.body.clone().into(), true)?;
    }
    let answer = answer.await?;
    Ok(end(answer.status().as_u16(), answer.headers().contains_key("retry-after")))
}

async fn over_http1(stream: TcpStream, request: &Request) -> Result<End, Failure> {
    let bytes = request.to_bytes();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut read = Vec::with_capacity(2048);
    loop {
        stream.readable().await?;
        match stream.try_read_buf(&mut read) {
            Ok(0) => return Err("closed without an answer".into()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut fields);
        if head.parse(&read)?.is_complete() {
            let says = head.headers.iter().any(|h| h.name.eq_ignore_ascii_case("retry-after"));
            return Ok(end(head.code.unwrap_or_default(), says));
        }
        read.reserve(2048);
    }
}

fn end(status: u16, says_when: bool) -> End {
    match status {
        429 | 503 if !says_when => End::Broken(format!("{status} without Retry-After")),
        _ => End::Answer(status),
    }
}
