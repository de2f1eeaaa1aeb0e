//! An origin that the test plays: it sees the bytes that the Worker forwards, and decides the time
//! and the content of its responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A request as the origin received it.
pub struct Received {
    pub method: String,
    pub target: String,
    /// Every line, names in lower case.
    pub headers: Vec<(String, String)>,
    connection: BufReader<TcpStream>,
}

impl Received {
    /// The only line of `name`, if any.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Sends these bytes now.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.connection.get_mut().write_all(bytes.as_ref()).expect("the Worker went away");
    }

    /// The same for a Worker that may disconnect; false when it has.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.connection.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Responds with a body and closes the connection.
    pub fn answer(&mut self, status: &str, headers: &str, body: impl AsRef<[u8]>) {
        let length = body.as_ref().len();
        self.send(format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
        ));
        self.send(body);
    }

    /// The next piece of a body with a length or in chunks; empty at its end.
    pub fn piece(&mut self, most: usize) -> Vec<u8> {
        let most = match self.header("transfer-encoding") {
            Some(_) => {
                let mut size = String::new();
                self.connection.read_line(&mut size).expect("a chunk size");
                usize::from_str_radix(size.trim(), 16).expect("a chunk size")
            }
            None => most,
        };
        let mut piece = vec![0; most];
        self.connection.read_exact(&mut piece).expect("the body ended early");
        if self.header("transfer-encoding").is_some() {
            self.connection.read_exact(&mut [0; 2]).expect("the end of a chunk");
        }
        piece
    }

    /// The whole body.
    pub fn body(&mut self) -> Vec<u8> {
        if let Some(length) = self.header("content-length") {
            let length = length.parse().expect("a length");
            return self.piece(length);
        }
        let mut body = vec![];
        while self.header("transfer-encoding").is_some() {
            let piece = self.piece(0);
            if piece.is_empty() {
                break;
            }
            body.extend(piece);
        }
        body
    }
}

/// Serves every connection in a thread of its own until the test ends; returns the URL.
pub fn serve(handler: impl Fn(&mut Received) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the origin");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let handler = Arc::new(handler);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let handler = Arc::clone(&handler);
            thread::spawn(move || {
                if let Some(mut received) = receive(connection) {
                    handler(&mut received);
                }
            });
        }
    });
    url
}

fn receive(connection: TcpStream) -> Option<Received> {
    let mut connection = BufReader::new(connection);
    let line = read_line(&mut connection)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = vec![];
    loop {
        let line = read_line(&mut connection)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None => return Some(Received { method, target, headers, connection }),
        }
    }
}

/// One line; bytes that are not text are replaced.
fn read_line(connection: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = vec![];
    connection.read_until(b'\n', &mut line).ok()?;
    Some(String::from_utf8_lossy(&line).into_owned())
}
