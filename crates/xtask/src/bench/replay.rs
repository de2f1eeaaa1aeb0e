//! The speed of `tollgate replay`, compared with the least cost of reading the same log: finding
//! its lines, or unpacking it, and nothing else.
//!
//! Invariant: both read the same file in the same round, so that a slow minute of the machine falls
//! out of the ratio; a ratio is the median of its rounds. All time is that of the whole program.
//! The logs are made, and the same in every run; a day of real traffic, which is in no repository,
//! is measured when `TOLLGATE_NASA_LOG` names it.

use super::{
    cpu,
    effort::Effort,
    figures::{Table, figure, grouped, median, most, paired_ratio},
};
use crate::{
    children::{self, Stop},
    files,
    problem::{Problem, Result},
    run,
    workspace::Workspace,
};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const LINES: usize = 2_000_000;
const CLIENTS: usize = 100_000;
/// How often the day of real traffic is repeated, one day later each time.
const DAYS: usize = 20;
/// One rule, as most policies begin.
const POLICY: &str = r#"{ "version": 1, "rules": [{ "name": "each", "key": ["client_ip"], "quotas": [{ "limit": 10, "window": "1m" }] }] }"#;

/// One log, and the program it is compared with.
struct Subject {
    name: &'static str,
    log: PathBuf,
    lines: usize,
    /// `split` or `gunzip`.
    floor: &'static str,
}

/// One run of a program.
#[derive(Debug, Clone, Copy)]
struct Ran {
    seconds: f64,
    peak_bytes: f64,
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let (floor, tollgate) = programs(workspace)?;
    let folder = workspace.out.join("bench");
    let policy = folder.join("policy.json");
    files::write(&policy, POLICY)?;
    let logs = Logs { floor: &floor, folder: &folder };
    let subjects = subjects(&logs)?;
    let replay = |log: &Path| ran(&tollgate, ["replay".as_ref(), policy.as_os_str(), log.as_ref()]);
    let heading = ["log", "floor, lines/s", "replay, lines/s", "ratio", "peak memory"];
    let mut table = Table::new("Replay: one gcra rule of each client", &heading);
    for subject in &subjects {
        let (mut floors, mut replays) = (Vec::new(), Vec::new());
        for round in 0..effort.rounds {
            eprintln!("  replay of {}: round {} of {}", subject.name, round + 1, effort.rounds);
            floors.push(ran(&floor, [subject.floor.as_ref(), subject.log.as_os_str()])?);
            replays.push(replay(&subject.log)?);
        }
        table.row(cells(subject, &floors, &replays));
    }
    table.note(
        "The floor finds the lines of a log (split) or unpacks it (gunzip) and does nothing else; the ratio is \
         the replay's speed to its, of whole programs, in the median of the rounds. Built by the profile release-test: \
         what ships is linked as one and is faster. The peak is the resident memory. The machine's other work slows whichever of both waits for memory.",
    );
    Ok(table.markdown())
}

/// The program that does no more than it must, and ours.
fn programs(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    for what in [
        ["-p", "tollgate-access-log", "--example", "floor"],
        ["-p", "tollgate-cli", "--bin", "tollgate"],
    ] {
        let mut cargo = workspace.cargo();
        cargo.args(["build", "--profile", "release-test"]).args(what);
        run::shown(&mut cargo, "fix the errors of the compiler")?;
    }
    let built = workspace.target.join("release-test");
    Ok((built.join("examples/floor"), built.join("tollgate")))
}

fn subjects(logs: &Logs<'_>) -> Result<Vec<Subject>> {
    let size = [LINES.to_string(), CLIENTS.to_string()];
    let combined = logs.made("combined", "combined.log", &size)?;
    let packed = logs.made("gzip", "combined.log.gz", [combined.as_os_str()])?;
    let tsv = logs.made("tsv", "names.tsv", &size)?;
    let plain = |name, log| Subject { name, log, lines: LINES, floor: "split" };
    let mut subjects = vec![
        plain("combined", combined),
        Subject { floor: "gunzip", ..plain("combined, gzip", packed) },
        plain("names, TSV", tsv),
    ];
    if let Some(day) = std::env::var_os("TOLLGATE_NASA_LOG") {
        let days = DAYS.to_string();
        let log = logs.made("days", "days.tsv", [day.as_os_str(), days.as_ref()])?;
        let text = files::bytes(&log)?;
        let lines = text.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1);
        subjects.push(Subject { lines, ..plain("a real day x 20, TSV", log) });
    }
    Ok(subjects)
}

/// Where logs are made.
struct Logs<'a> {
    floor: &'a Path,
    folder: &'a Path,
}

impl Logs<'_> {
    /// The log with these properties: made again, since an incomplete one may exist.
    fn made<S: AsRef<OsStr>>(
        &self,
        kind: &str,
        name: &str,
        more: impl IntoIterator<Item = S>,
    ) -> Result<PathBuf> {
        let log = self.folder.join(name);
        let mut command = Command::new(self.floor);
        command.arg(kind).arg(&log).args(more);
        run::output(&mut command, "see crates/tollgate-access-log/examples/floor.rs")?;
        Ok(log)
    }
}

/// Runs a program to its end, and watches its memory.
fn ran<'a>(program: &Path, words: impl IntoIterator<Item = &'a OsStr>) -> Result<Ran> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null());
    let begun = Instant::now();
    let mut running = children::spawn(&mut command, Stop::Group)?;
    let mut peak_bytes = 0.0_f64;
    let status = loop {
        // It may have just ended.
        let peak_kib = cpu::peak_memory_kib(running.pid()).unwrap_or(0);
        peak_bytes = peak_bytes.max(peak_kib as f64 * 1024.0);
        match running.poll()? {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    if status.success() {
        return Ok(Ran { seconds, peak_bytes });
    }
    let why = format!("{} ended with {status}", program.display());
    Err(Problem::new("cannot measure", why, "run it by hand on target/tollgate/bench"))
}

fn cells(subject: &Subject, floors: &[Ran], replays: &[Ran]) -> [String; 5] {
    let seconds = |runs: &[Ran]| runs.iter().map(|ran| ran.seconds).collect::<Vec<_>>();
    let speed = |runs: &[Ran]| grouped((subject.lines as f64 / median(&seconds(runs))) as usize);
    let peak = most(&replays.iter().map(|ran| ran.peak_bytes).collect::<Vec<_>>());
    [
        subject.name.to_owned(),
        format!("{}, {}", subject.floor, speed(floors)),
        speed(replays),
        // Speeds are the other way round than times.
        figure(paired_ratio(&seconds(floors), &seconds(replays)), 2),
        format!("{} MiB", figure(peak / 1_048_576.0, 0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_speeds_in_one_round() {
        let (log, lines) = (PathBuf::new(), 1_000_000);
        let subject = Subject { name: "a", log, lines, floor: "split" };
        let ran = |seconds| Ran { seconds, peak_bytes: 12_000_000.0 };
        let (floors, replays) = ([ran(1.0), ran(10.0), ran(1.0)], [ran(4.0), ran(40.0), ran(2.0)]);
        let cells = cells(&subject, &floors, &replays);
        let expected = "a|split, 1,000,000|250,000|0.25|11 MiB";
        assert_eq!(cells.join("|"), expected);
    }
}
