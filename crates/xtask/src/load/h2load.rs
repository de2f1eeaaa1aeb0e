//! h2load: one run of it, and its record of every request.
//!
//! Invariant: only loopback is loaded, for a bounded time and with a bounded number of requests.
//! h2load is an independent load generator, whose clock and sockets are not ours.

use crate::{
    bench::cpu::{ProcessorRole, seated},
    files,
    problem::{Problem, Result},
    run,
    workspace::Workspace,
};
use std::{fs, path::PathBuf, process::Command};

/// How the requests of one run are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each connection sends this many per second, for this many seconds, however long the
    /// responses take; a pending response delays the next request of its connection.
    Steady { per_second: u32, seconds: u32 },
    /// Each connection sends this many one after the other, as fast as they are answered.
    AtOnce { requests: u32 },
}

/// One answered or failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// When it was sent, in microseconds since 1970.
    pub sent_us: u64,
    /// `None` when there was no response.
    pub status: Option<u16>,
    /// From the first byte sent to the last one received, in microseconds.
    pub took_us: u64,
}

const FIX: &str = "see whether the server still runs; the log of the run is in target/tollgate/run";

/// Sends to `port` from `connections` connections, each beginning with another of `paths`.
pub fn load(
    workspace: &Workspace,
    port: u16,
    paths: &[String],
    headers: &[&str],
    connections: u32,
    pace: Pace,
) -> Result<Vec<Answer>> {
    let [uris, log] = ["load-uris.txt", "load.log"].map(|name| file(workspace, name));
    files::write(&uris, paths.join("\n") + "\n")?;
    fs::remove_file(&log).ok();
    let mut command = Command::new("h2load");
    command.args(["--h1", "-t", "1", "-m", "1", "-c", &connections.to_string()]);
    match pace {
        Pace::Steady { per_second, seconds } => {
            command.args(["--rps", &per_second.to_string(), "-D", &seconds.to_string()]);
        }
        Pace::AtOnce { requests } => {
            command.args(["-n", &requests.saturating_mul(connections).to_string()]);
        }
    }
    for header in headers {
        command.args(["-H", header]);
    }
    command.arg("-i").arg(&uris).arg("--log-file").arg(&log);
    command.args(["-B", &format!("http://127.0.0.1:{port}")]);
    seated(ProcessorRole::Client, || run::output(&mut command, FIX))?;
    let text = files::text(&log)?;
    answers(&text)
        .ok_or_else(|| Problem::new("cannot read the log of h2load", "unknown lines", FIX))
}

fn file(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.out.join("run").join(name)
}

/// One line each: when in microseconds, the status or -1, how long in microseconds. `None` when a
/// line is invalid.
fn answers(text: &str) -> Option<Vec<Answer>> {
    let line = |line: &str| {
        let mut columns = line.split('\t');
        let sent_us = columns.next()?.parse().ok()?;
        let status: i32 = columns.next()?.parse().ok()?;
        let took_us = columns.next()?.parse().ok()?;
        Some(Answer { sent_us, status: u16::try_from(status).ok(), took_us })
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_h2load_writes() {
        let text = "1795333672700369\t200\t4372\n1795333672700357\t-1\t5\n";
        let expected = [
            Answer { sent_us: 1_795_333_672_700_369, status: Some(200), took_us: 4372 },
            Answer { sent_us: 1_795_333_672_700_357, status: None, took_us: 5 },
        ];
        assert_eq!(answers(text).unwrap(), expected);
        assert_eq!(answers(""), Some(vec![]));
        for wrong in ["x\t200\t1", "1\t200", "1\t200\tx", "\n"] {
            assert_eq!(answers(wrong), None, "{wrong:?}");
        }
    }
}
