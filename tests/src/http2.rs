//! One request over HTTP/2 in the clear, with prior knowledge, as gRPC clients send theirs.
//!
//! Invariant: the response is returned as framed: header fields that ended the stream are
//! distinguished from an empty body. The protocol is implemented by the `h2` crate, except for
//! [`status_of`], which sends requests that no honest client would send.

use std::io::{self, Read, Write};
use std::net::{self, Ipv4Addr};

use http::Request as Head;
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http::{ANSWER_WITHIN, Request, Response};

/// A received response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its header fields and its body.
    pub response: Response,
    /// True when the header fields ended the stream: a trailers-only response in gRPC's terms.
    pub is_trailers_only: bool,
    /// The fields after the body.
    pub trailers: Vec<(String, Vec<u8>)>,
}

/// The part of a request that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it.
    Whole,
    /// Its head, without the end of the stream: more could follow.
    Head,
    /// All of it, without waiting for the response.
    Begun,
}

/// Sends `request` to `port` on a connection of its own; a failed test when no response comes in
/// time.
pub fn send(port: u16, request: &Request) -> Answer {
    send_part(port, request, Sent::Whole)
}

/// The same from an address of this machine (127.0.0.2 is one).
pub fn send_from(from: Ipv4Addr, port: u16, request: &Request) -> Answer {
    answer_of(port, exchange(from, port, request, Sent::Whole))
}

/// The same with only a part of the request sent.
pub fn send_part(port: u16, request: &Request, sent: Sent) -> Answer {
    answer_of(port, exchange(Ipv4Addr::LOCALHOST, port, request, sent))
}

/// A response whose head has arrived.
type Incoming = http::Response<h2::RecvStream>;
type Exchanged = Result<Answer, Box<dyn std::error::Error>>;

fn answer_of(port: u16, exchange: impl Future<Output = Exchanged>) -> Answer {
    let runtime = Builder::new_current_thread().enable_all().build().expect("no runtime");
    answer_on(&runtime, port, exchange)
}

fn answer_on(runtime: &Runtime, port: u16, exchange: impl Future<Output = Exchanged>) -> Answer {
    let answer = runtime.block_on(async { timeout(ANSWER_WITHIN, exchange).await });
    answer
        .unwrap_or_else(|_| panic!("no answer from port {port} within {ANSWER_WITHIN:?}"))
        .unwrap_or_else(|e| panic!("no answer from port {port}: {e}"))
}

/// A request in flight; its client disconnects when this is dropped.
pub struct RequestInFlight {
    /// True when its response has a body that may not have ended; meaningless for a head alone.
    pub has_body: bool,
    port: u16,
    open: Open,
    answer: Option<Incoming>,
    runtime: Runtime,
}

impl RequestInFlight {
    /// Waits for the end of the response to a whole request.
    pub fn finish(self) -> Answer {
        let answer = self.answer.expect("the request is whole");
        answer_on(&self.runtime, self.port, self.open.rest(answer))
    }
}

/// Begins `request`, waits for the head of the response if all of it is sent, and stays connected.
pub fn hold(port: u16, request: &Request, sent: Sent) -> RequestInFlight {
    hold_from(Ipv4Addr::LOCALHOST, port, request, sent)
}

/// The same from an address of this machine (127.0.0.2 is one).
pub fn hold_from(from: Ipv4Addr, port: u16, request: &Request, sent: Sent) -> RequestInFlight {
    let runtime = Builder::new_current_thread().enable_all().build().expect("no runtime");
    let begun = async {
        let mut open = begin(from, port, request, sent).await?;
        let answer = match sent {
            Sent::Whole => Some((&mut open.answer).await?),
            Sent::Head | Sent::Begun => {
                // The bytes are sent when the connection is polled again.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                None
            }
        };
        Ok::<_, Box<dyn std::error::Error>>((open, answer))
    };
    let (open, answer) = runtime
        .block_on(async { timeout(ANSWER_WITHIN, begun).await })
        .unwrap_or_else(|_| panic!("no answer from port {port} within {ANSWER_WITHIN:?}"))
        .unwrap_or_else(|e| panic!("no answer from port {port}: {e}"));
    let has_body = answer.as_ref().is_some_and(|answer| !answer.body().is_end_stream());
    RequestInFlight { has_body, port, open, answer, runtime }
}

/// A request that was begun.
struct Open {
    answer: h2::client::ResponseFuture,
    _body: h2::SendStream<bytes::Bytes>,
    _sender: h2::client::SendRequest<bytes::Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

async fn begin(
    from: Ipv4Addr,
    port: u16,
    request: &Request,
    sent: Sent,
) -> Result<Open, Box<dyn std::error::Error>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    let (mut sender, connection) = h2::client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let uri = format!("http://localhost{}", request.target);
    let mut head = Head::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in &request.headers {
        head = head.header(name.as_slice(), value.as_slice());
    }
    let (answer, mut body) = sender.send_request(head.body(())?, false)?;
    if sent != Sent::Head {
        body.send_data(request.body.clone().into(), true)?;
    }
    Ok(Open { answer, _body: body, _sender: sender, connection })
}

async fn exchange(from: Ipv4Addr, port: u16, request: &Request, sent: Sent) -> Exchanged {
    let mut open = begin(from, port, request, sent).await?;
    let answer = (&mut open.answer).await?;
    open.rest(answer).await
}

impl Open {
    /// Reads the rest of a response whose head has arrived.
    async fn rest(self, answer: Incoming) -> Exchanged {
        let (head, mut body) = answer.into_parts();
        let is_trailers_only = body.is_end_stream();
        let fields = head.headers.iter();
        let headers = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        let mut response =
            Response { status: head.status.as_u16(), headers: headers.collect(), body: vec![] };
        while let Some(piece) = body.data().await {
            response.body.extend_from_slice(&piece?);
        }
        let trailers = body.trailers().await?.unwrap_or_default();
        let trailers = trailers.iter().map(|(name, it)| (name.to_string(), it.as_bytes().to_vec()));
        let trailers = trailers.collect();
        self.connection.abort();
        Ok(Answer { response, is_trailers_only, trailers })
    }
}

/// The status of the response to a request of exactly these fields, pseudo-fields first; `None`
/// when the stream or the connection is closed instead.
pub fn status_of(port: u16, fields: &[(&[u8], &[u8])]) -> Option<u16> {
    let mut connection = FrameConnection::open(port);
    connection.request(fields);
    loop {
        let (kind, stream_id, payload) = connection.read().ok()?;
        match (kind, stream_id) {
            (1, 1) => return Some(status(&payload)),
            (3 | GOAWAY, _) => return None,
            _ => {}
        }
    }
}

/// The type of the frame that ends a connection (RFC 9113, 6.8).
pub const GOAWAY: u8 = 7;

/// A connection whose frames the test sends and reads itself, with one request.
pub struct FrameConnection(net::TcpStream);

impl FrameConnection {
    /// Opens a connection and sends its preface and settings.
    pub fn open(port: u16) -> Self {
        let mut stream =
            net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a time-out");
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        push_frame(4, 0, 0, &[], &mut out);
        stream.write_all(&out).expect("a preface");
        Self(stream)
    }

    /// Sends the request on stream 1. Its fields are sent as they are, without a table (RFC 7541,
    /// 6.2.3).
    pub fn request(&mut self, fields: &[(&[u8], &[u8])]) {
        let (mut block, mut out) = (vec![], vec![]);
        for (name, value) in fields {
            block.push(0x10);
            for text in [name, value] {
                push_length(text.len(), &mut block);
                block.extend_from_slice(text);
            }
        }
        push_frame(1, 0x5, 1, &block, &mut out); // the stream and the fields end here
        self.0.write_all(&out).expect("a request");
    }

    /// Type, stream and payload of the next frame.
    pub fn read(&mut self) -> io::Result<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let [a, b, c, kind, _, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload)?;
        Ok((kind, u32::from_be_bytes(id), payload))
    }

    /// Reads until a frame of this type comes.
    pub fn wait_for(&mut self, kind: u8) {
        while self.read().expect("a frame").0 != kind {}
    }
}

fn push_length(length: usize, out: &mut Vec<u8>) {
    let small = u8::try_from(length).ok().filter(|length| *length < 127);
    out.push(small.unwrap_or(127));
    if small.is_none() {
        let rest = length - 127;
        assert!(rest < 1 << 14, "a field of a test is short");
        out.extend([0x80 | (rest & 0x7f) as u8, (rest >> 7) as u8]);
    }
}

fn push_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).expect("a short frame");
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The status at the front of a field block: from the static table, or in digits, which a server
/// may write in Huffman's code (RFC 7541, A and B).
fn status(block: &[u8]) -> u16 {
    // A new size of the table.
    let start = block.iter().position(|byte| !(0x20..0x40).contains(byte));
    match &block[start.unwrap_or(0)..] {
        [0x88, ..] => 200,
        [0x8c, ..] => 400,
        [0x08 | 0x18 | 0x48, 3, digits @ ..] => {
            std::str::from_utf8(&digits[..3]).expect("digits").parse().expect("a status")
        }
        [0x08 | 0x18 | 0x48, 0x83, 0x68, 0x4f, 0xff, ..] => 429,
        other => panic!("a status that this test does not know: {other:?}"),
    }
}
