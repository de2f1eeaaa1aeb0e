//! An HTTP/1.1 client on one plain socket: it sends any bytes and returns every header line.
//!
//! Invariant: a header value is bytes and lines are never merged or reordered, so a test sees
//! exactly the client's view. Deliberately absent: redirects, TLS, HTTP/2, connection pools.
//!
//! ```no_run
//! use tollgate_e2e::http::{Client, Request};
//! let mut client = Client::connect(8080);
//! let answer = client.send(&Request::get("/api").header("x-key", "k1"));
//! assert_eq!((answer.status, answer.text()), (200, "hello\n".into()));
//! ```

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::process::read;

/// No response within this time fails the test: a request that hangs is a bug. No machine is this
/// slow, even when the first request waits until its server is read from a disk.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);

const MAX_HEADERS: usize = 128;

/// A request to send.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Any method and target, without a body.
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), headers: vec![], body: vec![] }
    }

    /// `GET target`.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// `POST target` with a body; `content-length` is added.
    pub fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::new("POST", target) }
    }

    /// Sets the body; `content-length` is added.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Adds one header line; the same name may be added again. Values may be any bytes.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// The bytes on the wire; `host: localhost` is added unless the test has set one.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host")) {
            out.extend_from_slice(b"host: localhost\r\n");
        }
        for (name, value) in &self.headers {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT") {
            out.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }
}

/// A received response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Every line, in order; names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The values of the lines of `name` (lower case), in order, as text.
    pub fn all(&self, name: &str) -> Vec<String> {
        let lines = self.headers.iter().filter(|(n, _)| n == name);
        lines.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    /// The value of the only line of `name`; `None` when there is none; a failed test when there
    /// are several.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.all(name);
        assert!(lines.len() <= 1, "{name} came {} times: {lines:?}", lines.len());
        lines.pop()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One keep-alive connection to a server on this machine.
pub struct Client {
    stream: TcpStream,
    /// The bytes sent first on every connection.
    preamble: String,
    port: u16,
    read: Vec<u8>,
}

impl Client {
    /// A connection to `port` on the loopback interface; a failed test if no server listens.
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap_or_else(|e| panic!("no connection to port {port}: {e}"))
    }

    /// The same, for a server that may be down.
    pub fn try_connect(port: u16) -> io::Result<Self> {
        Self::open(port, String::new())
    }

    /// The same through a load balancer that names `peer` as the client by the PROXY protocol,
    /// version 1.
    pub fn connect_as(peer: IpAddr, port: u16) -> Self {
        let (family, here) = if peer.is_ipv4() { ("TCP4", "127.0.0.1") } else { ("TCP6", "::1") };
        Self::open(port, format!("PROXY {family} {peer} {here} 4711 {port}\r\n"))
            .unwrap_or_else(|e| panic!("no connection to port {port} for {peer}: {e}"))
    }

    fn open(port: u16, preamble: String) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_nodelay(true)?;
        stream.write_all(preamble.as_bytes())?;
        Ok(Self { stream, preamble, port, read: vec![] })
    }

    /// Sends and waits for the response. A connection that the server closed after its last
    /// response is opened again.
    pub fn send(&mut self, request: &Request) -> Response {
        self.renew_if_closed();
        self.try_send(request).unwrap_or_else(|e| panic!("no answer from port {}: {e}", self.port))
    }

    /// Opens the connection again if the server has closed it: it was idle for long (the machine
    /// may have been suspended), or the server drains. Nothing is sent twice: this happens before a
    /// request is sent.
    pub fn renew_if_closed(&mut self) {
        self.stream.set_nonblocking(true).expect("a socket");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        let is_open = match peeked {
            Ok(read) => read > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if !is_open && let Ok(fresh) = Self::open(self.port, self.preamble.clone()) {
            *self = fresh;
        }
    }

    /// The same, for a server that may be killed meanwhile.
    pub fn try_send(&mut self, request: &Request) -> io::Result<Response> {
        self.start(request)?;
        self.finish(request.method == "HEAD")
    }

    /// Only sends, so several clients can have requests in flight at once.
    pub fn start(&mut self, request: &Request) -> io::Result<()> {
        self.stream.write_all(&request.to_bytes())
    }

    /// True when a part of a response has arrived.
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let there = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        !self.read.is_empty() || there.is_ok_and(|read| read > 0)
    }

    /// Waits for the head of the response to one started request; [`Client::finish`] then returns
    /// the whole.
    pub fn head(&mut self) -> io::Result<Response> {
        loop {
            match parse_head(&self.read, true)? {
                Some((response, _, _)) if response.status >= 200 => return Ok(response),
                Some((_, _, used)) => drop(self.read.drain(..used)),
                None if self.fill()? > 0 => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Waits for the response to one started request; `head` means that it has no body.
    pub fn finish(&mut self, head: bool) -> io::Result<Response> {
        let (mut response, framing) = loop {
            if let Some((response, framing, used)) = parse_head(&self.read, head)? {
                self.read.drain(..used);
                if response.status >= 200 {
                    break (response, framing);
                }
            } else if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        response.body = match framing {
            Framing::Length(length) => self.take(length)?,
            Framing::Chunked => self.take_chunks()?,
            Framing::UntilClose => {
                while self.fill()? > 0 {}
                std::mem::take(&mut self.read)
            }
        };
        // A server that shuts down accepts no more connections, but it has responded.
        if response.all("connection").iter().any(|v| v.eq_ignore_ascii_case("close"))
            && let Ok(fresh) = Self::open(self.port, self.preamble.clone())
        {
            *self = fresh;
        }
        Ok(response)
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 16 * 1024];
        let n = read(&mut self.stream, &mut chunk)?;
        self.read.extend_from_slice(&chunk[..n]);
        Ok(n)
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.read.drain(..length).collect())
    }

    fn take_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = vec![];
        loop {
            let (start, length) = loop {
                match httparse::parse_chunk_size(&self.read) {
                    Ok(httparse::Status::Complete((start, length))) => {
                        break (start, length as usize);
                    }
                    Ok(httparse::Status::Partial) if self.fill()? > 0 => {}
                    _ => return Err(io::Error::other("a chunk without a size")),
                }
            };
            self.take(start)?;
            body.extend(self.take(length)?);
            self.take(2)?;
            if length == 0 {
                return Ok(body); // no trailers: no server here sends any
            }
        }
    }
}

enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

fn parse_head(bytes: &[u8], head: bool) -> io::Result<Option<(Response, Framing, usize)>> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut lines);
    let used = match parsed.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Complete(used) => used,
        httparse::Status::Partial => return Ok(None),
    };
    let headers: Vec<(String, Vec<u8>)> =
        parsed.headers.iter().map(|h| (h.name.to_ascii_lowercase(), h.value.to_vec())).collect();
    let response = Response { status: parsed.code.unwrap_or(0), headers, body: vec![] };
    let chunked = response.all("transfer-encoding").iter().any(|v| v.contains("chunked"));
    let bodiless = head || response.status < 200 || matches!(response.status, 204 | 304);
    let framing = match response.header("content-length").map(|v| v.parse()) {
        _ if bodiless => Framing::Length(0),
        _ if chunked => Framing::Chunked,
        Some(length) => Framing::Length(length.map_err(io::Error::other)?),
        None => Framing::UntilClose,
    };
    Ok(Some((response, framing, used)))
}
