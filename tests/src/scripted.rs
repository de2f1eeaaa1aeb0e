//! An origin that answers each path with bytes that the test has written, in pieces, and remembers
//! the heads of the requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A part of an answer. After the last one the connection ends.
#[derive(Clone)]
pub enum Part {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The same, this many times.
    Repeat(Vec<u8>, usize),
    /// The same, again and again, until the proxy ends the connection.
    Endless(Vec<u8>),
}

/// The origin, for as long as the test runs.
pub struct Scripted {
    /// The port on which it listens.
    pub port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

/// Between two parts, so that the proxy mostly reads them one by one. No test depends on it.
const PAUSE: Duration = Duration::from_millis(3);

impl Scripted {
    /// Starts it with the answer of each path.
    pub fn start(answers: HashMap<String, Vec<Part>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the origin");
        let port = listener.local_addr().expect("an address").port();
        let (answers, heads) = (Arc::new(answers), Arc::new(Mutex::new(Vec::new())));
        let shared = Arc::clone(&heads);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, heads) = (Arc::clone(&answers), Arc::clone(&shared));
                thread::spawn(move || serve(&connection, &answers, &heads));
            }
        });
        Self { port, heads }
    }

    /// The heads of the requests, in lower case.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("nobody panics with it").clone()
    }
}

fn serve(
    connection: &TcpStream,
    answers: &HashMap<String, Vec<Part>>,
    heads: &Mutex<Vec<String>>,
) -> Option<()> {
    connection.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    heads.lock().expect("nobody panics with it").push(head.to_ascii_lowercase());
    let path = head.split(' ').nth(1)?;
    let mut writer = connection;
    for part in answers.get(path)? {
        match part {
            Part::Bytes(bytes) => {
                writer.write_all(bytes).ok()?;
                thread::sleep(PAUSE);
            }
            Part::Repeat(bytes, count) => {
                for _ in 0..*count {
                    writer.write_all(bytes).ok()?;
                }
            }
            Part::Endless(bytes) => loop {
                writer.write_all(bytes).ok()?;
                thread::sleep(PAUSE);
            },
        }
    }
    Some(())
}

/// An answer with these fields and this body, in pieces of this size.
pub fn answer(fields: &[&str], body: &[u8], size: usize) -> Vec<Part> {
    let mut head = String::from("HTTP/1.1 200 OK\r\nconnection: close\r\n");
    fields.iter().for_each(|field| head += &format!("{field}\r\n"));
    head += &format!("content-length: {}\r\n\r\n", body.len());
    let pieces = body.chunks(size.max(1)).map(<[u8]>::to_vec);
    [head.into_bytes()].into_iter().chain(pieces).map(Part::Bytes).collect()
}
