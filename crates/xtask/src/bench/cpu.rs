//! The kernel's data about processors: their model, their load, a process's use, and where it may
//! run.
//!
//! Invariant: time is the sum over the threads of a process in nanoseconds, from `schedstat`; the
//! ticks of `/proc/<pid>/stat` would be 10 ms. Linux only, as all of xtask is.

use crate::problem::{OrProblem, Problem, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

/// User and system time of all threads of a process so far. A thread that ended takes its time
/// along, which Envoy and workerd do not do under load.
pub fn used_ns(pid: u32) -> Result<u64> {
    let fix = "see whether the server still runs";
    let what = || format!("cannot read the time that process {pid} used");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).or_problem(what(), fix)?;
    let texts = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("schedstat")));
    Ok(texts.flatten().filter_map(|text| running_ns(&text)).sum())
}

/// The most memory that a process ever had resident, in KiB.
pub fn peak_memory_kib(pid: u32) -> Result<u64> {
    memory_kib(pid, "VmHWM:")
}

/// The memory that a process has resident now, in KiB.
pub fn resident_memory_kib(pid: u32) -> Result<u64> {
    memory_kib(pid, "VmRSS:")
}

fn memory_kib(pid: u32, which: &str) -> Result<u64> {
    let fix = "see whether the server still runs";
    let what = || format!("cannot read the memory of process {pid}");
    let text = fs::read_to_string(format!("/proc/{pid}/status")).or_problem(what(), fix)?;
    let why = || format!("no {which} was reported");
    memory_in(&text, which).ok_or_else(|| Problem::new(what(), why(), fix))
}

fn memory_in(status: &str, which: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(which))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The first figure of `schedstat`: the time spent running.
fn running_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

pub fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model_in(&text).unwrap_or("unknown CPU").to_owned()
}

fn model_in(cpuinfo: &str) -> Option<&str> {
    cpuinfo
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim()))
}

/// Of the last minute: above a few tenths before the start, other programs are measured, too.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The assignment of processors.
#[derive(Debug, Clone, Copy)]
pub enum ProcessorRole {
    Server,
    Client,
}

/// Runs `work` so that the processes it starts stay on one processor, another one for each seat.
/// A machine with one processor, or one that forbids it, is used as it is.
pub fn seated<T>(seat: ProcessorRole, work: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None);
    if let Some(place) = before.as_ref().ok().and_then(|all| place(all, seat)) {
        sched_setaffinity(None, &place).ok();
    }
    let result = work();
    if let Ok(before) = before {
        sched_setaffinity(None, &before).ok();
    }
    result
}

fn place(all: &CpuSet, seat: ProcessorRole) -> Option<CpuSet> {
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let (first, second) = (allowed.next()?, allowed.next()?);
    let mut one = CpuSet::new();
    one.set(match seat {
        ProcessorRole::Server => first,
        ProcessorRole::Client => second,
    });
    Some(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(running_ns("123456789 55 42\n"), Some(123_456_789));
        assert_eq!(running_ns(""), None);
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU 7\nmodel\t\t: 1\n";
        assert_eq!(model_in(cpuinfo), Some("Some CPU 7"));
    }

    #[test]
    fn the_seats_differ_and_are_given_back() {
        let mut all = CpuSet::new();
        all.set(2);
        assert!(place(&all, ProcessorRole::Server).is_none());
        all.set(5);
        assert!(
            place(&all, ProcessorRole::Server).is_some_and(|one| one.is_set(2) && one.count() == 1)
        );
        assert!(
            place(&all, ProcessorRole::Client).is_some_and(|one| one.is_set(5) && one.count() == 1)
        );
        let before = sched_getaffinity(None).unwrap().count();
        seated(ProcessorRole::Client, || ());
        assert_eq!(sched_getaffinity(None).unwrap().count(), before);
    }

    #[test]
    fn this_process_uses_time() {
        let before = used_ns(std::process::id()).unwrap();
        assert!(before > 0);
        assert!(used_ns(u32::MAX).is_err());
        assert!(peak_memory_kib(std::process::id()).unwrap() > 100);
        assert!(resident_memory_kib(std::process::id()).unwrap() > 100);
        let status = "Name:\tx\nVmHWM:\t   1234 kB\nVmRSS:\t   12 kB\n";
        assert_eq!(memory_in(status, "VmHWM:"), Some(1234));
        assert_eq!(memory_in(status, "VmRSS:"), Some(12));
        assert_eq!(memory_in("Name:\tx\n", "VmRSS:"), None);
    }
}
