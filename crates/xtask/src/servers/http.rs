//! The smallest HTTP client: one GET or POST on its own connection, to loopback.
//!
//! Invariant: it can speak from any loopback address, so a probe never spends the quota of the
//! person at the keyboard. No keep-alive, no redirects, no TLS.

use crate::problem::{OrProblem, Problem, Result};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(10);
const FIX: &str = "see whether the server still runs";

#[derive(Debug, Clone)]
pub struct Request {
    port: u16,
    path: String,
    from: Ipv4Addr,
    headers: Vec<(String, String)>,
    /// Makes it a POST.
    body: Option<String>,
}

impl Request {
    pub fn new(port: u16, path: &str) -> Self {
        let from = Ipv4Addr::LOCALHOST;
        Self { port, path: path.to_owned(), from, headers: Vec::new(), body: None }
    }

    /// Speaks from this loopback address.
    pub fn from(mut self, address: Ipv4Addr) -> Self {
        self.from = address;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn post(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self
    }

    /// The status of the response. The rest is not read: a server that closes late would make every
    /// request slow.
    pub fn send(&self) -> Result<u16> {
        let mut line = String::new();
        self.ask()?.read_line(&mut line).or_problem(self.no_answer(), FIX)?;
        status_of(&line)
            .ok_or_else(|| Problem::new(self.no_answer(), "it does not speak HTTP", FIX))
    }

    /// The body of the response, read until the server closes.
    pub fn text(&self) -> Result<String> {
        let mut answer = String::new();
        self.ask()?.read_to_string(&mut answer).or_problem(self.no_answer(), FIX)?;
        let (_, body) = answer
            .split_once("\r\n\r\n")
            .ok_or_else(|| Problem::new(self.no_answer(), "it does not speak HTTP", FIX))?;
        Ok(body.to_owned())
    }

    fn ask(&self) -> Result<BufReader<TcpStream>> {
        let mut stream = self.connect().or_problem(self.no_answer(), FIX)?;
        let lines = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let lines: String = lines.collect();
        let (path, port) = (&self.path, self.port);
        let length = self.body.as_ref().map(|body| format!("Content-Length: {}\r\n", body.len()));
        let request = format!(
            "{} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{lines}{}\r\n{}",
            if self.body.is_some() { "POST" } else { "GET" },
            length.unwrap_or_default(),
            self.body.as_deref().unwrap_or_default(),
        );
        stream.write_all(request.as_bytes()).or_problem(self.no_answer(), FIX)?;
        Ok(BufReader::new(stream))
    }

    fn no_answer(&self) -> String {
        format!("no response from port {}", self.port)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(self.from, 0))?;
        connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port))?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }
}

/// A keep-alive connection.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub fn send(&mut self, request: &str) -> io::Result<()> {
        self.0.get_mut().write_all(request.as_bytes())
    }

    /// Reads a whole response; its status.
    pub fn answer(&mut self) -> io::Result<u16> {
        let (mut status, mut length, mut line) = (None, 0, String::new());
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            status = status.or_else(|| status_of(&line));
            if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.trim().parse().unwrap_or(0);
            }
        }
        self.0.by_ref().take(length).read_to_end(&mut Vec::new())?;
        status.ok_or_else(|| io::Error::other("it does not speak HTTP"))
    }
}

fn status_of(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_status() {
        assert_eq!(status_of("HTTP/1.1 429 Too Many Requests\r\n"), Some(429));
        assert_eq!(status_of("SSH-2.0\r\n"), None);
    }

    #[test]
    fn a_body_is_posted_and_the_answers_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut seen, mut room) = (Vec::new(), [0; 1024]);
            while !seen.ends_with(b"{}") {
                let read = stream.read(&mut room).unwrap();
                assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
                seen.extend_from_slice(&room[..read]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\none\r\n\r\ntwo").unwrap();
            String::from_utf8(seen).unwrap()
        });
        let said = Request::new(port, "/check").post("{}").text().unwrap();
        assert_eq!(said, "one\r\n\r\ntwo");
        let asked = server.join().unwrap();
        assert!(asked.starts_with("POST /check HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("\r\nContent-Length: 2\r\n"), "{asked}");
    }

    #[test]
    fn speaks_from_the_address_it_was_given() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut room = [0; 1024];
            assert!(stream.read(&mut room).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            peer.ip().to_string()
        });
        let from = Ipv4Addr::new(127, 9, 8, 7);
        assert_eq!(Request::new(port, "/").from(from).send().unwrap(), 200);
        assert_eq!(server.join().unwrap(), "127.9.8.7");
    }
}
