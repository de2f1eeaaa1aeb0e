//! The current work, its duration, and a sign that it is alive.
//!
//! Invariant: on a terminal one line is redrawn; elsewhere whole lines are written, at most one per
//! job and ten seconds, so that a CI log stays readable. Nothing here fails.

use crate::problem::Result;
use std::{
    io::{IsTerminal, Write, stdout},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const REDRAW: Duration = Duration::from_millis(200);
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// Terminals narrower than this wrap; that is ugly, not wrong.
const LINE_WIDTH: usize = 100;

/// One job that takes time: an installation, a compilation.
#[derive(Debug)]
pub struct Job {
    pub name: String,
    pub log: PathBuf,
    started: Instant,
    lines: AtomicUsize,
    last: Mutex<String>,
}

impl Job {
    pub fn new(name: impl Into<String>, log: PathBuf) -> Self {
        Self {
            name: name.into(),
            log,
            started: Instant::now(),
            lines: AtomicUsize::new(0),
            last: Mutex::new(String::new()),
        }
    }

    /// Takes note of new output.
    pub fn saw(&self, bytes: &[u8]) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.lines.fetch_add(lines, Ordering::Relaxed);
        let text = String::from_utf8_lossy(bytes);
        if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
            let line = line.rsplit('\r').next().unwrap_or_default().trim();
            *lock(&self.last) = line.chars().filter(|char| !char.is_control()).collect();
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn describe(&self) -> String {
        let name = format!("{} {}", self.name, seconds(self.elapsed()));
        match self.lines.load(Ordering::Relaxed) {
            0 => name,
            lines => format!("{name} ({lines} lines) {}", lock(&self.last)),
        }
    }
}

/// All jobs that run at the moment.
#[derive(Debug, Default)]
pub struct Board {
    jobs: Mutex<Vec<Arc<Job>>>,
    finished: AtomicBool,
}

impl Board {
    /// Runs `work` while the board is drawn.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let drawing = scope.spawn(|| self.draw_until_finished());
            let result = work();
            self.finished.store(true, Ordering::Relaxed);
            drawing.thread().unpark();
            drawing.join().ok();
            result
        })
    }

    /// Runs `work` as a job that is named while it runs: the present and past wording, and the
    /// reason.
    pub fn job<T>(
        &self,
        job: Job,
        [doing, done]: [&str; 2],
        why: &str,
        work: impl FnOnce(&Job) -> Result<T>,
    ) -> Result<T> {
        let job = Arc::new(job);
        self.say(&format!("  {:<28} {doing}: {why}", job.name));
        lock(&self.jobs).push(Arc::clone(&job));
        let result = work(&job);
        lock(&self.jobs).retain(|other| !Arc::ptr_eq(other, &job));
        let verdict = if result.is_ok() { done } else { "FAILED" };
        self.say(&format!("  {:<28} {verdict} after {}", job.name, seconds(job.elapsed())));
        result
    }

    /// A separate line above the board.
    pub fn say(&self, line: &str) {
        let clear = if stdout().is_terminal() { "\r\x1b[2K" } else { "" };
        println!("{clear}{line}");
    }

    fn draw_until_finished(&self) {
        let terminal = stdout().is_terminal();
        let every = if terminal { REDRAW } else { PLAIN_EVERY };
        for turn in 0_usize.. {
            thread::park_timeout(every);
            if self.finished.load(Ordering::Relaxed) {
                break;
            }
            let jobs: Vec<String> = lock(&self.jobs).iter().map(|job| job.describe()).collect();
            if terminal {
                let spinner = ['|', '/', '-', '\\'][turn % 4];
                let line: String = jobs.join(" · ").chars().take(LINE_WIDTH).collect();
                print!("\r\x1b[2K{spinner} {line}");
                stdout().flush().ok();
            } else {
                jobs.iter().for_each(|job| println!("    ... {job}"));
            }
        }
    }
}

/// A duration in readable form: `0.4 s`, `12 s`, `3 min 20 s`.
pub fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// Also where a thread panicked while it held the lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_speech() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(12)), "12 s");
        assert_eq!(seconds(Duration::from_secs(200)), "3 min 20 s");
    }

    #[test]
    fn a_job_remembers_its_last_line() {
        let job = Job::new("tool", PathBuf::new());
        job.saw(b"Compiling a\nCompiling b\r\n\n");
        assert_eq!(job.lines.load(Ordering::Relaxed), 3);
        assert_eq!(*lock(&job.last), "Compiling b");
    }
}
