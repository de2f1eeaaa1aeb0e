//! The smallest HTTP client: one GET on its own connection, to loopback.
//!
//! Invariant: it can speak from any loopback address, so a probe never spends the quota of the
//! person at the keyboard. No keep-alive, no redirects, no TLS.

use crate::problem::{OrProblem, Problem, Result};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::{
    io::{Read, Write},
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Status line, header lines and body as they came.
    pub text: String,
}

impl Request {
    pub fn new(port: u16, path: &str) -> Self {
        Self { port, path: path.to_owned(), from: Ipv4Addr::LOCALHOST, headers: Vec::new() }
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

    pub fn send(&self) -> Result<Answer> {
        let what = || format!("no answer from port {}", self.port);
        let mut stream = self.connect().or_problem(what(), FIX)?;
        let lines = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n{}\r\n",
            self.path,
            self.port,
            lines.collect::<String>()
        );
        stream.write_all(request.as_bytes()).or_problem(what(), FIX)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).or_problem(what(), FIX)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        parse(text).ok_or_else(|| Problem::new(what(), "it does not speak HTTP", FIX))
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(self.from, 0))?;
        connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port))?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }
}

fn parse(text: String) -> Option<Answer> {
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(Answer { status, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_status() {
        let answer = parse("HTTP/1.1 429 Too Many Requests\r\n\r\n".to_owned()).unwrap();
        assert_eq!(answer.status, 429);
        assert_eq!(parse("SSH-2.0".to_owned()), None);
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
        assert_eq!(Request::new(port, "/").from(from).send().unwrap().status, 200);
        assert_eq!(server.join().unwrap(), "127.9.8.7");
    }
}
