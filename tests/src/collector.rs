//! An OpenTelemetry collector for tests: it receives OTLP over HTTP, and decodes it with a codec
//! that is not this project's.
//!
//! Invariant: it shows the received messages, decoded; bytes that are not an OTLP message fail the
//! test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message;

use crate::process::{read, wait_until};

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct Export {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Of", tags = "1, 2, 3, 5")]
    pub of: Option<Of>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Of {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(message, tag = "5")]
    List(ListValue),
}

#[derive(Clone, PartialEq, Message)]
pub struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

/// A value as text: `7`, `a`, `[a, b]`.
fn said(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.of.as_ref()) {
        None => String::new(),
        Some(Of::Text(text)) => text.clone(),
        Some(Of::Flag(flag)) => flag.to_string(),
        Some(Of::Number(number)) => number.to_string(),
        Some(Of::List(list)) => {
            let each: Vec<String> = list.values.iter().map(|value| said(Some(value))).collect();
            format!("[{}]", each.join(", "))
        }
    }
}

impl Span {
    /// The value of the attribute `name`, as text.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let found = self.attributes.iter().find(|pair| pair.key == name);
        found.map(|pair| said(pair.value.as_ref()))
    }
}

/// How it treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It accepts them.
    Takes,
    /// It accepts them and reports this number of spans as rejected.
    Rejects(u8),
    /// It responds with an error.
    Fails,
    /// It accepts the connection and sends nothing.
    Silent,
    /// It sends a response without end.
    Endless,
}

/// Head and body of a request.
pub type Taken = (String, Vec<u8>);

/// A running collector.
pub struct Collector {
    pub port: u16,
    taken: Arc<Mutex<Vec<Taken>>>,
}

impl Collector {
    /// Starts a collector.
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream, manner, &all));
            }
        });
        Self { port, taken }
    }

    /// Head and body of every request.
    pub fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The service attributes and the spans of each request.
    pub fn exports(&self) -> Vec<(Vec<String>, Vec<Span>)> {
        let mut all = Vec::new();
        for (_, body) in self.taken() {
            let export = Export::decode(&*body).expect("a message of OTLP");
            for of in export.resource_spans {
                let resource = of.resource.unwrap_or_default().attributes;
                let said = |pair: &KeyValue| format!("{}={}", pair.key, said(pair.value.as_ref()));
                let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
                all.push((resource.iter().map(said).collect(), spans.collect()));
            }
        }
        all
    }

    /// Waits until this number of spans have arrived; returns all spans.
    pub fn wait_for(&self, count: usize) -> Vec<Span> {
        wait_until("spans", Duration::from_secs(60), || {
            let spans: Vec<Span> =
                self.exports().into_iter().flat_map(|(_, spans)| spans).collect();
            (spans.len() >= count).then_some(spans)
        })
    }
}

fn serve(mut stream: TcpStream, manner: Manner, all: &Mutex<Vec<Taken>>) {
    let mut came = Vec::new();
    let mut some = [0; 65_536];
    let (head, body) = loop {
        let end = came.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&came[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|it| it.parse().ok()).expect("a length");
            if came.len() >= end + 4 + length {
                break (head, came[end + 4..].to_vec());
            }
        }
        match read(&mut stream, &mut some) {
            Ok(read @ 1..) => came.extend_from_slice(&some[..read]),
            Ok(0) | Err(_) => return,
        }
    };
    all.lock().unwrap_or_else(PoisonError::into_inner).push((head, body));
    let answer = |status: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let _ = match manner {
        Manner::Takes => stream.write_all(&answer("200 OK", b"")),
        Manner::Rejects(count) => stream.write_all(&answer("200 OK", &[0x0a, 2, 8, count])),
        Manner::Fails => stream.write_all(&answer("503 Service Unavailable", b"no")),
        Manner::Silent => {
            // Until the other end closes the connection.
            let _ = stream.read(&mut some);
            return;
        }
        Manner::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(&[b"x: ", &[b'y'; 1000][..], b"\r\n"].concat()).is_ok() {}
            return;
        }
    };
}
