//! Measures decisions on a Redis: CPU of this process and of the engine, round trips, latency.
//! Started by `cargo xtask bench fleet`, which starts the engine.
//!
//! Arguments: the engine's port, its process id, rounds, and how many replicas must have a commit,
//! if any. Output: one line per method and round: its name, requests, nanoseconds of this process
//! and of the engine, calls, and two latencies in nanoseconds, the median and the 99th percentile.
//! Then, per counting method, the requests allowed around the edge of a window: `edge`, its name,
//! the limit, the number allowed. Last, the memory of a key in the engine: `memory`, the method,
//! bytes.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement, not shipped"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Surface};
use tollgate_redis::{Address, Engine, KeyRequest, Options, Replicas, resp};

const REQUESTS: usize = 20_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("port, process id, rounds");
    let (port, pid, rounds) = (next(), next(), next().parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let engine = Engine::new(options(&port, arguments.next())).expect("random bytes");
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it is there");
    stream.set_nodelay(true).expect("a socket");
    let mut plain = Plain { stream, read: Vec::new(), number: None };
    runtime.block_on(ask(&engine, 1, 200, |i| format!("warm {i}")));
    for round in 0..rounds {
        let run = |name: &str, requests: usize, work: &mut dyn FnMut() -> Vec<u64>| {
            let before = [used_ns("self"), used_ns(&pid), engine.tally().calls];
            let mut latencies = work();
            let after = [used_ns("self"), used_ns(&pid), engine.tally().calls];
            latencies.sort_unstable();
            let at = |share: usize| latencies.get(latencies.len() * share / 100).copied();
            let [own, other, calls] = [0, 1, 2].map(|i| after[i] - before[i]);
            let (median, slow) = (at(50).unwrap_or(0), at(99).unwrap_or(0));
            println!("{name} {requests} {own} {other} {calls} {median} {slow}");
        };
        for (name, clients) in [("distinct_1", 1), ("distinct_64", 64), ("distinct_512", 512)] {
            let requests = if clients == 1 { REQUESTS / 10 } else { REQUESTS };
            run(name, requests, &mut || {
                let key = move |i| format!("{round} {name} {i}");
                runtime.block_on(ask(&engine, clients, requests, key))
            });
        }
        run("again_64", REQUESTS, &mut || {
            runtime
                .block_on(ask(&engine, 64, REQUESTS, move |i| format!("{round} distinct_64 {i}")))
        });
        run("hot_64", REQUESTS, &mut || {
            runtime.block_on(ask(&engine, 64, REQUESTS, move |_| format!("{round} hot")))
        });
        run("ping_1", REQUESTS / 10, &mut || {
            (0..REQUESTS / 10).map(|_| plain.ask(&[&[b"PING"]])).collect()
        });
        run("incr_expire_1", REQUESTS / 10, &mut || {
            (0..REQUESTS / 10).map(|i| plain.counts(round, i, 1)).collect()
        });
        run("incr_expire_64", REQUESTS, &mut || {
            (0..REQUESTS / 64).map(|i| plain.counts(round, i * 64, 64)).collect()
        });
        println!("edge incr_expire {LIMIT} {}", plain.edge(round));
        for algorithm in ["fixed-window", "gcra", "sliding-window", "sliding-log"] {
            let admitted = runtime.block_on(edge(&engine, algorithm, round));
            println!("edge {algorithm} {LIMIT} {admitted}");
        }
    }
    let key = format!("tollgate:{}", engine.name(b"0 distinct_64 0"));
    println!("memory commit {}", plain.memory(&key));
    println!("memory incr_expire {}", plain.memory("domain_key_0_0_1780000000"));
}

/// The engine at a port; `replicas` replicas must have a commit, if given.
fn options(port: &str, replicas: Option<String>) -> Options {
    let address = Address::parse(&format!("redis://127.0.0.1:{port}")).expect("it is");
    let mut options = Options::new(address);
    options.replicas = replicas.map(|count| Replicas {
        count: count.parse().expect("a number"),
        timeout: Duration::from_millis(100),
    });
    options
}

/// The limit of a one-second window.
const LIMIT: u64 = 1_000;
/// Before and after the edge of a window.
const AROUND: Duration = Duration::from_millis(300);

/// The requests allowed from [`AROUND`] before the edge of a window until the same time after it,
/// for clients that send requests without a pause.
async fn edge(engine: &Engine, algorithm: &str, round: usize) -> u64 {
    let quota = format!(r#""algorithm": "{algorithm}", "limit": {LIMIT}, "window": "1s""#);
    let (request, until) = (request_of(&quota), wait_for_edge());
    let mut tasks = Vec::new();
    for _ in 0..64 {
        let name = engine.name(format!("edge {algorithm} {round}").as_bytes());
        let (engine, request) = (engine.clone(), request.clone());
        tasks.push(tokio::spawn(async move {
            let mut admitted = 0;
            while now() < until {
                let reply = engine.ask(name, KeyRequest::Check(request.clone())).await;
                admitted += u64::from(reply.expect("an answer")[9] & 1);
            }
            admitted
        }));
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("it ends");
    }
    admitted
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later")
}

/// Waits until [`AROUND`] before the end of a second; returns [`AROUND`] after it.
fn wait_for_edge() -> Duration {
    let edge = Duration::from_secs(now().as_secs() + 2);
    std::thread::sleep(edge - AROUND - now());
    edge + AROUND
}

/// Sends this number of requests by this number of concurrent clients; returns the latencies.
async fn ask(
    engine: &Engine,
    clients: usize,
    requests: usize,
    key: impl Fn(usize) -> String + Clone + Send + 'static,
) -> Vec<u64> {
    let request = request();
    let mut tasks = Vec::new();
    for client in 0..clients {
        let (engine, request, key) = (engine.clone(), request.clone(), key.clone());
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            for i in (client..requests).step_by(clients) {
                let began = Instant::now();
                let name = engine.name(key(i).as_bytes());
                engine.ask(name, KeyRequest::Check(request.clone())).await.expect("an answer");
                latencies.push(began.elapsed().as_nanos() as u64);
            }
            latencies
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("it ends"));
    }
    all
}

fn request() -> Vec<u8> {
    request_of(r#""limit": 1000000, "window": "1h""#)
}

fn request_of(quota: &str) -> Vec<u8> {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "quotas": [{{{quota}}}]}}]}}"#
    );
    let policy = tollgate_language::compile(&document, Surface::Library).expect("a policy");
    let body = br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
    let facts = DescribedRequest::parse(body).expect("a request");
    let mut plan = Plan::new();
    policy.plan(&facts, &mut plan);
    let mut request = Vec::new();
    plan.partition(0).expect("one key").request(&policy, &mut request);
    request
}

/// A client that waits for each reply, or for those of a pipeline.
struct Plain {
    stream: TcpStream,
    read: Vec<u8>,
    /// The first number of the last replies.
    number: Option<u64>,
}

impl Plain {
    /// Sends commands together; returns the time until all replies have arrived.
    fn ask(&mut self, commands: &[&[&[u8]]]) -> u64 {
        let began = Instant::now();
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| resp::command(command, &mut bytes));
        self.stream.write_all(&bytes).expect("sent");
        let mut left = commands.len();
        self.number = None;
        while left > 0 {
            let mut buffer = [0; 16_384];
            let len = self.stream.read(&mut buffer).expect("a reply");
            self.read.extend_from_slice(&buffer[..len]);
            while let Some((reply, len)) = resp::read(&self.read).expect("a reply") {
                self.number = self.number.or(reply.number());
                self.read.drain(..len);
                left -= 1;
            }
        }
        began.elapsed().as_nanos() as u64
    }

    /// The commands of `envoyproxy/ratelimit` for this number of keys: `INCRBY` and `EXPIRE` of
    /// each, in one pipeline.
    fn counts(&mut self, round: usize, from: usize, keys: usize) -> u64 {
        let name = |i| format!("domain_key_{round}_{i}_1780000000");
        let names: Vec<String> = (from..from + keys).map(name).collect();
        let pairs = names.iter().map(|name| {
            let name = name.as_bytes();
            [vec![&b"INCRBY"[..], name, b"1"], vec![&b"EXPIRE"[..], name, b"3600"]]
        });
        let commands: Vec<Vec<&[u8]>> = pairs.flatten().collect();
        let commands: Vec<&[&[u8]]> = commands.iter().map(Vec::as_slice).collect();
        self.ask(&commands)
    }

    /// Bytes per key in the engine, including its entries in the tables of keys and expiries.
    fn memory(&mut self, key: &str) -> u64 {
        self.ask(&[&[b"MEMORY", b"USAGE", key.as_bytes()]]);
        self.number.expect("the key is there")
    }

    /// [`edge`], with one counter per second of the wall clock: a hit above the limit is denied,
    /// and counted all the same.
    fn edge(&mut self, round: usize) -> u64 {
        let until = wait_for_edge();
        let mut admitted = 0;
        while now() < until {
            let name = format!("domain_edge_{round}_{}", now().as_secs());
            let name = name.as_bytes();
            self.ask(&[&[b"INCRBY", name, b"1"], &[b"EXPIRE", name, b"1"]]);
            admitted += u64::from(self.number.expect("a count") <= LIMIT);
        }
        admitted
    }
}

/// CPU time of the threads of a process.
fn used_ns(pid: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let texts =
        threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("schedstat")));
    let first = |text: String| text.split_whitespace().next()?.parse::<u64>().ok();
    texts.flatten().filter_map(first).sum()
}
