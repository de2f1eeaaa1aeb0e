//! The smallest HTTP client: one GET on its own connection, to loopback.
//!
//! Invariant: it can speak from any loopback address, so a probe never spends the quota of the
//! person at the keyboard. No keep-alive, no redirects, no TLS.

use crate::problem::{OrProblem, Problem, Result};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::{
    io::{BufRead, BufReader, Write},
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

    /// The status of the answer. The rest is not read: a server that closes late would make every
    /// request slow.
    pub fn send(&self) -> Result<u16> {
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
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).or_problem(what(), FIX)?;
        status_of(&line).ok_or_else(|| Problem::new(what(), "it does not speak HTTP", FIX))
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

fn status_of(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn reads_the_status() {
        assert_eq!(status_of("HTTP/1.1 429 Too Many Requests\r\n"), Some(429));
        assert_eq!(status_of("SSH-2.0\r\n"), None);
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
