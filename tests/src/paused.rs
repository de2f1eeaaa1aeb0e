//! An origin that sends the head of each response and all but its last piece at once, and the end
//! when the test wants it.
//!
//! Invariant: one request at a time waits for its head, so the test knows whose response is next.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The origin, for as long as the test runs.
pub struct Paused {
    /// The port on which it listens.
    pub port: u16,
    next: Arc<Mutex<Option<Script>>>,
}

/// A response.
struct Script {
    /// Status and fields, each with the end of its line.
    head: String,
    pieces: Vec<Vec<u8>>,
    end: Receiver<()>,
}

/// A response that has not ended; it ends when this is dropped.
pub struct Unended {
    _end: Sender<()>,
}

impl Paused {
    /// Starts it. In its responses it repeats these headers of the requests, under the second name.
    pub fn start(repeated: &'static [(&'static str, &'static str)]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the origin");
        let port = listener.local_addr().expect("an address").port();
        let next = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&next);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let next = Arc::clone(&shared);
                thread::spawn(move || serve(&connection, &next, repeated));
            }
        });
        Self { port, next }
    }

    /// Lets the next request have a response with this status, fields and body.
    pub fn answer_next(&self, status: u16, fields: &[(&str, &str)], pieces: &[&[u8]]) -> Unended {
        let (sender, end) = channel();
        let mut head = format!("HTTP/1.1 {status} As Wanted\r\n");
        fields.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        *self.next.lock().expect("nobody panics with it") = Some(Script { head, pieces, end });
        Unended { _end: sender }
    }
}

/// Serves one request.
fn serve(
    connection: &TcpStream,
    next: &Mutex<Option<Script>>,
    repeated: &[(&str, &str)],
) -> Option<()> {
    connection.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(connection);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        if reader.read_line(&mut request).ok()? == 0 {
            return None;
        }
    }
    let value = |wanted: &str| {
        let mut fields = request.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    let len = value("content-length").map_or(0, |len| len.parse().expect("a number"));
    reader.read_exact(&mut vec![0; len]).ok()?;
    let Script { head, pieces, end } = next.lock().expect("nobody panics with it").take()?;
    let mut start = head.into_bytes();
    for (name, other) in repeated {
        if let Some(value) = value(name) {
            start.extend(format!("{other}: {value}\r\n").into_bytes());
        }
    }
    start.extend(b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n");
    let mut writer = connection;
    if request.starts_with("HEAD ") {
        return writer.write_all(&start).ok();
    }
    let mut chunks: Vec<Vec<u8>> = pieces.iter().map(|piece| chunk(piece)).collect();
    let last = chunks.pop().unwrap_or_default();
    writer.write_all(&[start, chunks.concat()].concat()).ok()?;
    let _ = end.recv(); // until the sender is dropped
    writer.write_all(&[&last[..], b"0\r\n\r\n"].concat()).ok()
}

fn chunk(piece: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}
