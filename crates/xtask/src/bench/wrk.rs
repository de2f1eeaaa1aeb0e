//! wrk: the command line of one load, and its report.
//!
//! Invariant: only loopback is loaded, from 16 connections and for a bounded time. Latencies are
//! not read.

use super::cpu::{ProcessorRole, seated};
use crate::{
    problem::{Problem, Result},
    run,
};
use std::{path::PathBuf, process::Command, time::Duration};

/// Enough to keep one worker busy; more only lengthens the queue.
const CONNECTIONS: &str = "16";

/// The request, sent repeatedly.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    pub path: &'static str,
    pub headers: Vec<&'static str>,
    /// A Lua file for a request that is not a GET.
    pub script: Option<PathBuf>,
}

/// The responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    pub requests: u64,
    /// Answers that are neither 2xx nor 3xx.
    pub refused: u64,
}

pub fn load(port: u16, requests: &Requests, duration: Duration) -> Result<Served> {
    let mut command = Command::new("wrk");
    command.args(["-t", "1", "-c", CONNECTIONS, "-d", &format!("{}s", duration.as_secs())]);
    requests.headers.iter().for_each(|header| {
        command.args(["-H", header]);
    });
    requests.script.iter().for_each(|script| {
        command.arg("-s").arg(script);
    });
    command.arg(format!("http://127.0.0.1:{port}{}", requests.path));
    let fix = "see whether the server still runs";
    let text = seated(ProcessorRole::Client, || run::output(&mut command, fix))?;
    served(&text).ok_or_else(|| Problem::new("cannot read the output of wrk", text, fix))
}

/// `None` when nothing was served.
fn served(text: &str) -> Option<Served> {
    let lines = || text.lines().map(str::trim);
    let requests = lines().find_map(|line| line.split_once(" requests in ")?.0.parse().ok())?;
    let refused = lines().find_map(|line| line.strip_prefix("Non-2xx or 3xx responses: "));
    let refused = refused.map_or(Some(0), |count| count.trim().parse().ok())?;
    (requests > 0).then_some(Served { requests, refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 16 connections\n  \
        Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   313.10us  106.91us   3.58ms\n  \
        51234 requests in 1.10s, 5.42MB read\nRequests/sec:  46576.36\nTransfer/sec:      4.93MB\n";

    #[test]
    fn reads_how_much_was_served() {
        assert_eq!(served(SAID), Some(Served { requests: 51_234, refused: 0 }));
    }

    #[test]
    fn reads_how_much_was_refused() {
        let said = SAID.replace("Requests/sec", "  Non-2xx or 3xx responses: 51233\nRequests/sec");
        assert_eq!(served(&said), Some(Served { requests: 51_234, refused: 51_233 }));
    }

    #[test]
    fn nothing_served_is_no_measurement() {
        assert_eq!(served("unable to connect to 127.0.0.1:1 Connection refused\n"), None);
        assert_eq!(served("  0 requests in 1.10s, 0.00B read\n"), None);
    }
}
