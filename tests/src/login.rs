//! An origin that checks passwords: it responds with the status in the path, `/401` or `/200`,
//! shows the costs and has the size that the request names, and counts the requests that reach it.
//! It can hold its responses, like an origin that hashes slowly, and takes the time that a request
//! names.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The origin, for as long as the test runs.
pub struct Login {
    /// The port on which it listens.
    pub port: u16,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    is_held: AtomicBool,
    arrived: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
    left: AtomicUsize,
    order: Mutex<Vec<String>>,
}

impl Login {
    /// Starts it.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the origin");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let seen = Arc::clone(&shared);
                thread::spawn(move || while seen.serve(&connection).is_some() {});
            }
        });
        Self { port, seen }
    }

    /// Holds responses from now on, or sends all that are held.
    pub fn hold(&self, is_held: bool) {
        self.seen.is_held.store(is_held, SeqCst);
    }

    /// The number of requests that have arrived.
    pub fn arrived(&self) -> usize {
        self.seen.arrived.load(SeqCst)
    }

    /// The largest number of requests at one time.
    pub fn most_at_once(&self) -> usize {
        self.seen.most.load(SeqCst)
    }

    /// The values of `x-who` in the order in which the requests arrived.
    pub fn order(&self) -> Vec<String> {
        self.seen.order.lock().expect("no test failed").clone()
    }

    /// The number of requests cancelled before their response.
    pub fn left(&self) -> usize {
        self.seen.left.load(SeqCst)
    }
}

impl Seen {
    /// Serves one request; `None` when there is no more.
    fn serve(&self, connection: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(connection);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let lines = head.to_ascii_lowercase();
        let announced = lines.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; announced.map_or(0, |length| length.parse().unwrap_or(0))];
        reader.read_exact(&mut body).ok()?;
        self.arrived.fetch_add(1, SeqCst);
        let under_way = self.under_way.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(under_way, SeqCst);
        let named = |name: &str| lines.lines().find_map(|line| line.strip_prefix(name));
        let who = named("x-who: ").map(str::to_owned);
        self.order.lock().expect("no test failed").extend(who);
        let pause = named("x-pause-ms: ").and_then(|pause| pause.parse().ok()).unwrap_or(0);
        thread::sleep(Duration::from_millis(pause));
        let is_there = self.wait(connection);
        self.under_way.fetch_sub(1, SeqCst);
        if !is_there {
            self.left.fetch_add(1, SeqCst);
            return None;
        }
        let status = head.split('/').nth(1).and_then(|word| word.get(..3)).unwrap_or("200");
        // Each line `x-show` of the request becomes a line `x-tokens` of the response.
        let shown = lines.lines().filter_map(|line| line.strip_prefix("x-show: "));
        let shown: String = shown.map(|value| format!("x-tokens: {value}\r\n")).collect();
        let size = lines.lines().find_map(|line| line.strip_prefix("x-size: "));
        let body = "x".repeat(size.map_or(0, |size| size.parse().unwrap_or(0)));
        let head = format!("HTTP/1.1 {status} Checked\r\n{shown}content-length: {}", body.len());
        let answer = format!("{head}\r\n\r\n{body}");
        // With `x-stop` the rest of the body never comes.
        let stop = lines.lines().find_map(|line| line.strip_prefix("x-stop: "));
        let missing = stop.map_or(0, |sent| body.len() - sent.parse::<usize>().unwrap_or(0));
        (&mut &*connection).write_all(&answer.as_bytes()[..answer.len() - missing]).ok()
    }

    /// False when the peer disconnected meanwhile.
    fn wait(&self, connection: &TcpStream) -> bool {
        connection.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out");
        let mut is_there = true;
        while is_there && self.is_held.load(SeqCst) {
            is_there = match connection.peek(&mut [0]) {
                Ok(read) => read > 0,
                Err(error) => matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ),
            };
        }
        connection.set_read_timeout(None).expect("no time-out");
        is_there
    }
}
