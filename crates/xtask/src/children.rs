//! Every process xtask starts, so that none is left behind.
//!
//! Invariant: a child is in the registry from before it runs until xtask has waited for it, and
//! Ctrl-C or SIGTERM stops everything in the registry before xtask ends. Children get their own
//! process group, so that a tool's helpers end with it. Only pids from the registry are ever
//! signalled.

use crate::{
    problem::{OrProblem, Problem, Result},
    progress::lock,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// How a child is asked to end before its group is killed.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// A tool with helpers (cargo, npm): the whole group is signalled at once.
    Group,
    /// A server that ends its own helpers: only the leader is signalled, and gets this long.
    Leader(Duration),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    pid: Pid,
    stop: Stop,
}

static LIVE: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// A child that is stopped when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    entry: Entry,
    finished: bool,
}

/// Starts `command` with no standard input, in its own process group.
pub fn spawn(command: &mut Command, stop: Stop) -> Result<Running> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut live = lock(&LIVE);
    let child = command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .or_problem(format!("cannot start {program}"), "see `cargo xtask doctor`")?;
    let entry = Entry { pid: Pid::from_child(&child), stop };
    live.push(entry);
    Ok(Running { child, entry, finished: false })
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, if that was piped and has not been taken.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The exit status once the child has ended; `None` while it runs.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().map_err(lost)?;
        if status.is_some() {
            self.forget();
        }
        Ok(status)
    }

    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().map_err(lost)?;
        self.forget();
        Ok(status)
    }

    fn forget(&mut self) {
        self.finished = true;
        lock(&LIVE).retain(|entry| entry.pid != self.entry.pid);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            terminate(self.entry);
            self.forget();
        }
    }
}

/// From now on Ctrl-C, SIGTERM and SIGHUP stop all children, then end xtask with status 130.
pub fn stop_all_on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .or_problem("cannot watch for Ctrl-C", "run again; this should not happen")?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            // The lock is never released: nothing new can start while the rest is stopped.
            let live = lock(&LIVE);
            eprintln!("\nxtask: stopping {} child process(es)", live.len());
            live.iter().rev().for_each(|entry| terminate(*entry));
            std::process::exit(130);
        }
    });
    Ok(())
}

/// Processor time of all children that xtask has waited for, with their own children.
pub fn processor_time() -> Option<Duration> {
    const TICKS: u64 = 100; // per second; a constant of Linux in its interface to programs
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = stat.rsplit_once(") ")?.1;
    let mut fields = after_name.split(' ').skip(13).map_while(|field| field.parse::<u64>().ok());
    let ticks = fields.next()? + fields.next()?; // cutime and cstime
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

fn terminate(entry: Entry) {
    let patience = match entry.stop {
        Stop::Group => {
            kill_process_group(entry.pid, Signal::TERM).ok();
            Duration::from_secs(3)
        }
        Stop::Leader(patience) => {
            kill_process(entry.pid, Signal::TERM).ok();
            patience
        }
    };
    let deadline = Instant::now() + patience;
    while !is_gone(entry.pid) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    // Helpers that outlived their leader, and a leader that ignored the signal.
    kill_process_group(entry.pid, Signal::KILL).ok();
    waitpid(Some(entry.pid), WaitOptions::empty()).ok();
}

fn is_gone(pid: Pid) -> bool {
    !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None))
}

fn lost(error: std::io::Error) -> Problem {
    Problem::new("lost a child process", error.to_string(), "run again; this should not happen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_counted() {
        let before = processor_time().unwrap();
        let mut busy = Command::new("sh");
        busy.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        assert!(busy.status().unwrap().success());
        assert!(processor_time().unwrap() > before);
    }

    #[test]
    fn dropping_a_child_ends_it_and_its_helpers() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
        let mut running = spawn(&mut shell, Stop::Leader(Duration::from_secs(1))).unwrap();
        let mut line = String::new();
        let stdout = running.child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        drop(running);
        let helper = format!("/proc/{}/stat", line.trim());
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let state = std::fs::read_to_string(&helper).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                break;
            }
            assert!(Instant::now() < deadline, "still alive: {state}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
