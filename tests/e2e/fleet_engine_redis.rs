//! A real Redis of one test, and a proxy in front of it.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;
use tollgate_e2e::process::{self, Server, TempDir};
use tollgate_redis::resp;

/// How it stores its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory only.
    Plain,
    /// Every write is on the disk before it is acknowledged.
    Durable,
    /// A node of a cluster.
    Cluster,
}

/// A Redis.
pub struct Redis {
    pub port: u16,
    /// The port on which nodes of a cluster communicate.
    pub bus_port: u16,
    // Declared before its folder, which contains its log.
    server: Server,
    dir: TempDir,
    arguments: Vec<String>,
    wall_ns: Option<i64>,
}

impl Redis {
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[], None)
    }

    /// With more arguments, and a wall clock at this distance from the machine's.
    pub fn start_with(kind: Kind, more: &[&str], wall_ns: Option<i64>) -> Self {
        let (port, bus_port) = (process::free_port(), process::free_port());
        let append = if kind == Kind::Durable { "yes" } else { "no" };
        let mut arguments: Vec<String> =
            ["--bind", "127.0.0.1", "--save", "", "--protected-mode", "no"]
                .into_iter()
                .chain(["--appendonly", append, "--appendfsync", "always"])
                .chain(["--maxmemory-policy", "noeviction", "--port"])
                .map(str::to_owned)
                .collect();
        arguments.push(port.to_string());
        if kind == Kind::Cluster {
            arguments.extend(
                ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"].map(str::to_owned),
            );
            // Otherwise it listens 10,000 above its port, which was not checked to be free.
            arguments.extend(["--cluster-port".to_owned(), bus_port.to_string()]);
        }
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let dir = TempDir::new("redis");
        let server = spawn(&dir, &arguments, wall_ns);
        let mut redis = Self { port, bus_port, dir, arguments, wall_ns, server };
        redis.wait();
        redis
    }

    /// A sentinel alone, which watches the primary at `port`.
    pub fn sentinel(name: &str, primary: u16) -> Self {
        Self::sentinel_with(name, primary, "")
    }

    /// The same with more lines of configuration.
    pub fn sentinel_with(name: &str, primary: u16, more: &str) -> Self {
        let port = process::free_port();
        let dir = TempDir::new("sentinel");
        let configuration = format!(
            "port {port}\nbind 127.0.0.1\nprotected-mode no\n\
             sentinel monitor {name} 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 3000\n\
             {more}"
        );
        std::fs::write(dir.path().join("sentinel.conf"), configuration).expect("written");
        let arguments = ["sentinel.conf", "--sentinel"].map(str::to_owned).to_vec();
        let server = spawn(&dir, &arguments, None);
        let mut sentinel = Self { port, bus_port: 0, dir, arguments, wall_ns: None, server };
        sentinel.wait();
        sentinel
    }

    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Makes this node known to the cluster of `other`.
    pub fn meet(&self, other: &Self) {
        let [port, bus_port] = [other.port, other.bus_port].map(|port| port.to_string());
        self.meet_at(&port, &bus_port);
    }

    /// The same, of a node that others reach at `port`.
    pub fn meet_at(&self, port: &str, bus_port: &str) {
        assert_eq!(self.command(&["CLUSTER", "MEET", "127.0.0.1", port, bus_port]), "+OK");
    }

    fn wait(&mut self) {
        self.server.wait_for_port(self.port);
        process::wait_until("redis answers", process::READY_WITHIN, || {
            (self.try_command(&["PING"])? == "+PONG").then_some(())
        });
    }

    /// `kill -9`, now.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// The same again on the same port, with the data on the disk.
    pub fn restart(&mut self) {
        self.server.kill();
        self.server = spawn(&self.dir, &self.arguments, self.wall_ns);
        self.wait();
    }

    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Sets its wall clock, as the difference from the machine's in nanoseconds.
    pub fn set_wall(&self, ns: i64) {
        std::fs::write(self.dir.path().join("wall"), ns.to_le_bytes()).expect("written");
    }

    /// Its reply to a command, in one line.
    pub fn command(&self, arguments: &[&str]) -> String {
        self.try_command(arguments).expect("redis answers")
    }

    pub fn try_command(&self, arguments: &[&str]) -> Option<String> {
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        self.try_value(&arguments).map(|value| shown(&value))
    }

    /// The same, with bytes.
    pub fn try_value(&self, arguments: &[&[u8]]) -> Option<resp::Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(process::READY_WITHIN)).ok()?;
        let mut bytes = Vec::new();
        resp::command(arguments, &mut bytes);
        stream.write_all(&bytes).ok()?;
        let mut read = Vec::new();
        loop {
            let mut buffer = [0; 4_096];
            let len = process::read(&mut stream, &mut buffer).ok().filter(|len| *len > 0)?;
            read.extend_from_slice(&buffer[..len]);
            if let Some((value, _)) = resp::read(&read).expect("a reply") {
                return Some(value);
            }
        }
    }
}

fn shown(value: &resp::Value) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        resp::Value::Simple(word) => format!("+{}", text(word)),
        resp::Value::Error(line) => format!("-{}", text(line)),
        resp::Value::Int(number) => format!(":{number}"),
        resp::Value::Bulk(bytes) => bytes.as_deref().map_or("nil".to_owned(), text),
        resp::Value::Array(parts) => {
            let parts = parts.as_deref().unwrap_or_default();
            format!("[{}]", parts.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
    }
}

fn spawn(dir: &TempDir, arguments: &[String], wall_ns: Option<i64>) -> Server {
    let hint = "cargo xtask test fleet";
    let mut command = Command::new(process::required_path("TOLLGATE_REDIS_BIN", hint));
    command.current_dir(dir.path()).args(arguments);
    if let Some(ns) = wall_ns {
        std::fs::write(dir.path().join("wall"), ns.to_le_bytes()).expect("written");
        command.env("LD_PRELOAD", process::required_path("TOLLGATE_CLOCK", hint));
    }
    Server::start(command, dir.path().join("log"))
}
