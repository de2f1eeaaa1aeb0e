//! A real `tollgate-server`: its settings, its files, its signals.
//!
//! Invariant: it reads no setting from the environment of the test run: its environment has only
//! the variables that the test sets.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::http::{Client, Request, Response};
use crate::process::{self, Server, TempDir, wait_until};

/// The admin token of every server with an admin API.
pub const ADMIN_TOKEN: &str = "only-for-tests-admin";

/// The token of every server that keeps counts of a fleet, and the secret from which it derives the
/// names of keys.
pub const CHECK_TOKEN: &str = "only-for-tests-check";
/// See [`CHECK_TOKEN`].
pub const FLEET_SECRET: &str = "only-for-tests-fleet";

/// The binary.
pub fn server_bin() -> PathBuf {
    process::required_path("TOLLGATE_SERVER_BIN", "cargo xtask test server")
}

/// The setup of a server.
pub struct Setup {
    policy: String,
    settings: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    descriptors: Option<u32>,
    wall_ns: Option<i64>,
}

impl Setup {
    /// A server with `policy`, and every other setting at its default.
    pub fn new(policy: impl ToString) -> Self {
        Self {
            policy: policy.to_string(),
            settings: vec![],
            variables: vec![],
            descriptors: None,
            wall_ns: None,
        }
    }

    /// Sets a setting, by a flag.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((format!("--{}", name.replace('_', "-")), value.to_string()));
        self
    }

    /// Sets a variable of its environment.
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.into(), value.to_string()));
        self
    }

    /// Limits the number of the process's file descriptors.
    pub fn descriptors(mut self, most: u32) -> Self {
        self.descriptors = Some(most);
        self
    }

    /// Gives it a wall clock of its own, at this distance from the machine's in nanoseconds.
    pub fn wall(mut self, ns: i64) -> Self {
        self.wall_ns = Some(ns);
        self
    }

    /// Turns the admin API on, with [`ADMIN_TOKEN`].
    pub fn operated(self) -> Self {
        self.variable("TOLLGATE_ADMIN_TOKEN", ADMIN_TOKEN)
    }

    /// Enables leases for nodes, with [`CHECK_TOKEN`] and [`FLEET_SECRET`].
    pub fn leasing(self) -> Self {
        let with_token = self.variable("TOLLGATE_CHECK_TOKEN", CHECK_TOKEN);
        with_token.variable("TOLLGATE_FLEET_SECRET", FLEET_SECRET)
    }

    /// Starts it and waits until it listens.
    pub fn start(self) -> TollgateServer {
        let dir = TempDir::new("server");
        fs::write(dir.path().join("policy.json"), &self.policy).expect("the policy is written");
        let (port, operations) = (process::free_port(), process::free_port());
        let mut server = TollgateServer {
            server: spawn(&self, dir.path(), (port, operations)),
            setup: self,
            dir,
            port,
            operations,
        };
        server.server.wait_for_port(port);
        server
    }
}

fn spawn(setup: &Setup, dir: &Path, (port, operations): (u16, u16)) -> Server {
    let mut command = match setup.descriptors {
        None => Command::new(server_bin()),
        Some(most) => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")]);
            shell.arg(server_bin());
            shell
        }
    };
    command.env_clear().current_dir(dir).args(["--policy", "policy.json"]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--operations-listen", &format!("127.0.0.1:{operations}")]);
    for (name, value) in &setup.settings {
        command.args([name, value]);
    }
    if let Some(ns) = setup.wall_ns {
        fs::write(dir.join("wall"), ns.to_le_bytes()).expect("written");
        command
            .env("LD_PRELOAD", process::required_path("TOLLGATE_CLOCK", "cargo xtask test fleet"));
    }
    command.envs(setup.variables.iter().map(|(name, value)| (name, value)));
    Server::start(command, dir.join("server.log"))
}

/// A running server.
pub struct TollgateServer {
    pub server: Server,
    setup: Setup,
    dir: TempDir,
    /// The port for requests.
    pub port: u16,
    /// The port for probes.
    pub operations: u16,
}

impl TollgateServer {
    /// A connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// The response of one of its paths to the operator.
    pub fn operate(
        &self,
        method: &str,
        path: &str,
        body: &str,
        fields: &[(&str, &str)],
    ) -> Response {
        let target = format!("/.well-known/tollgate/{path}");
        let mut request = Request::new(method, &target)
            .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
            .header("content-type", "application/json");
        if !body.is_empty() {
            request = request.body(body);
        }
        for (name, value) in fields {
            request = request.header(name, value);
        }
        self.client().send(&request)
    }

    /// The value of a series of its metrics; a failed test when it is absent.
    pub fn metric(&self, series: &str) -> u64 {
        let metrics = self.operate("GET", "metrics", "", &[]).text();
        value_of(&metrics, series).unwrap_or_else(|| panic!("no {series}: {metrics}"))
    }

    /// The status of a probe; 0 when there is no response.
    pub fn probe(&self, path: &str) -> u16 {
        let client = Client::try_connect(self.operations);
        let answer = client.and_then(|mut client| client.try_send(&Request::get(path)));
        answer.map_or(0, |answer| answer.status)
    }

    /// Sets its [wall clock](Setup::wall), as the difference from the machine's in nanoseconds.
    pub fn set_wall(&self, ns: i64) {
        // In place: a clock that is read meanwhile finds all eight bytes.
        let file = fs::OpenOptions::new().write(true).open(self.file("wall"));
        file.and_then(|mut file| file.write_all(&ns.to_le_bytes())).expect("written");
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As [`Server::signal`].
    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Kills it at once and starts it again with the same settings and files.
    pub fn crash(&mut self) {
        self.server.kill();
        self.server = spawn(&self.setup, self.dir.path(), (self.port, self.operations));
        self.server.wait_for_port(self.port);
    }

    /// The lines of its log about `event`.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let lines = self.server.log();
        let read = lines.lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
        });
        read.filter(|line| line["event"] == event).collect()
    }

    /// Waits until its log has `count` lines about `event`.
    pub fn wait_for_events(&self, event: &str, count: usize) -> Vec<Value> {
        wait_until(event, Duration::from_secs(60), || {
            Some(self.events(event)).filter(|lines| lines.len() >= count)
        })
    }
}

/// The value of a series in the text of metrics, if present.
pub fn value_of(metrics: &str, series: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.trim().parse().expect("a number"))
}
