//! Real servers on loopback: Envoy, workerd, tollgate-server, the demo origin, the Docker engine.
//!
//! Invariant: a server that was started is stopped when its value is dropped, and none listens
//! beyond loopback. Also used by `bench`; tests of the products have their own helpers in `tests/`.

pub mod docker;
pub mod envoy;
pub mod static_files;
pub mod http;
#[path = "../../../../tests/src/ports.rs"]
mod ports;
pub mod tollgate;
pub mod workerd;

use crate::{
    children::Running,
    files,
    problem::{OrProblem, Problem, Result},
};
use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How long a server may take until it responds.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may take to end when asked.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// One running server.
#[derive(Debug)]
pub struct Server {
    pub name: &'static str,
    pub port: u16,
    pub running: Running,
    pub log: PathBuf,
}

/// Between two looks whether a server is up: benches measure how long it took.
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

impl Server {
    /// Waits until `GET path` on the server's port is answered.
    fn wait_until_ready(self, port: u16, path: &str) -> Result<Self> {
        let request = http::Request::new(port, path);
        let is_up = || request.send().is_ok_and(|status| status < 500);
        self.wait_until(is_up, START_TIMEOUT, BETWEEN_TRIES)
    }

    /// Waits until it is up, while it runs.
    pub fn wait_until(
        mut self,
        is_up: impl Fn() -> bool,
        patience: Duration,
        pause: Duration,
    ) -> Result<Self> {
        let found = until(patience, pause, || self.check_alive().map(|()| is_up().then_some(())))?;
        found.ok_or_else(|| self.complaint("it did not respond in time"))?;
        Ok(self)
    }

    /// An error once the server has ended without a request to stop.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.running.poll()? {
            None => Ok(()),
            Some(status) => Err(self.complaint(&format!("it ended with {status}"))),
        }
    }

    fn complaint(&self, what: &str) -> Problem {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        let fix = format!("read its log: {}", self.log.display());
        Problem::new(format!("{} does not run", self.name), format!("{what}\n{tail}"), fix)
    }
}

/// The result of the first attempt that has one; none after `patience`.
pub fn until<T>(
    patience: Duration,
    pause: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let deadline = Instant::now() + patience;
    loop {
        let found = attempt()?;
        if found.is_some() || Instant::now() > deadline {
            return Ok(found);
        }
        thread::sleep(pause);
    }
}

/// A port of loopback that no other program of ours takes while this one runs.
pub fn free_port() -> Result<u16> {
    ports::free_port().or_problem("no port is free", "close some programs")
}

/// An error that names the flag to change when the port is taken.
pub fn must_be_free(port: u16, flag: &str) -> Result<()> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop).or_problem(
        format!("port {port} cannot be used"),
        format!("stop the program that listens there, or choose another port with {flag}"),
    )
}

/// Sends both outputs of `command` into a fresh file.
pub fn log_to(command: &mut Command, log: &Path) -> Result<()> {
    let fix = "free disk space";
    files::make_folder(log.parent().unwrap_or(log))?;
    let file = File::create(log).or_problem("cannot create a log file", fix)?;
    let second = file.try_clone().or_problem("cannot share a log file", fix)?;
    command.stdout(file).stderr(second);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_result_ends_the_wait_and_patience_ends_it_without_one() {
        let mut attempts = 0..;
        let mut third = || Ok(attempts.next().filter(|attempt| *attempt == 2));
        assert_eq!(until(START_TIMEOUT, Duration::ZERO, &mut third).unwrap(), Some(2));
        assert_eq!(until::<()>(Duration::ZERO, Duration::ZERO, || Ok(None)).unwrap(), None);
        let failed = || Err::<Option<()>, _>(Problem::new("a", "b", "c"));
        assert!(until(START_TIMEOUT, Duration::ZERO, failed).is_err());
    }
}
