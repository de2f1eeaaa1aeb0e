//! Servers for one test: started with a log, awaited, and always stopped, by their own process id.
//!
//! Invariant: whatever a test does, its server and the server's children are gone when the `Server`
//! is dropped. Deliberately absent: stopping anything by name.
//!
//! ```no_run
//! use std::process::Command;
//! use tollgate_e2e::process::{self, Server, TempDir};
//! let dir = TempDir::new("envoy");
//! let port = process::free_port();
//! let path = process::required_path("TOLLGATE_ENVOY_BIN", "cargo xtask test envoy");
//! let mut command = Command::new(path);
//! command.args(["-c", "envoy.json"]);
//! let mut server = Server::start(command, dir.path().join("envoy.log"));
//! server.wait_for_port(port);
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, setrlimit,
};

use crate::ports;

/// A server that is not ready within this time fails the test.
pub const READY_WITHIN: Duration = Duration::from_secs(90);

/// The path in the environment variable `name`; a failed test that names the command that sets it.
/// Every test with a server begins here, so from here on failures are printed at once.
pub fn required_path(name: &str, command: &str) -> PathBuf {
    tell_failures_at_once();
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    let path = value.map(PathBuf::from);
    let path = path.unwrap_or_else(|| panic!("{name} is not set; run `{command}`, which sets it"));
    assert!(
        path.exists(),
        "{name} names {}, which does not exist; run `{command}`",
        path.display()
    );
    path
}

/// Prints the reason of a failure when a test fails, too: the report at the end of a run of minutes
/// is lost where the run is ended before, or where only a part of the output is kept.
fn tell_failures_at_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown_at_the_end = panic::take_hook();
        panic::set_hook(Box::new(move |failure| {
            let thread = thread::current();
            tell(&format!("{}: {failure}", thread.name().unwrap_or("a thread")));
            shown_at_the_end(failure);
        }));
    });
}

/// Prints `line` directly: the harness captures the output of `eprintln` in tests.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The number of repetitions of a test with a long form: the value of the environment variable
/// `name`, or `short` without it.
pub fn times(name: &str, short: usize) -> usize {
    std::env::var(name).map_or(short, |text| text.parse().expect("a number"))
}

/// As [`ports::free_port`]; a failed test when there is none.
pub fn free_port() -> u16 {
    ports::free_port().expect("no port")
}

/// Raises this process's limit of open files, which servers inherit, as far as permitted.
pub fn allow_open_files(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(wanted).min(wanted);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).expect("the limit of open files cannot be raised");
    }
}

/// Reads as [`Read::read`] does, and retries an interrupted read: a read with a time-out is
/// interrupted when the machine was suspended and resumes (signal(7)).
///
/// # Errors
///
/// As [`Read::read`].
pub fn read(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Waits until `ready` returns a value; a failed test after `within`.
pub fn wait_until<T>(what: &str, within: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(started.elapsed() < within, "{what}: not within {within:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A directory of this test alone, removed with everything in it.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty directory.
    pub fn new(name: &str) -> Self {
        Self::new_in(std::env::temp_dir(), name)
    }

    /// The same, in `parent`.
    pub fn new_in(parent: impl AsRef<Path>, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tollgate-{name}-{}-{number}", std::process::id());
        let path = parent.as_ref().join(name);
        fs::create_dir_all(&path).expect("no temporary directory");
        Self(path)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server and its children: one process group, killed when this is dropped.
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it with output and errors in `log` (appended: a restart keeps the lines of the first
    /// life).
    pub fn start(mut command: Command, log: impl Into<PathBuf>) -> Self {
        let log = log.into();
        let out = File::options().create(true).append(true).open(&log).expect("no log file");
        let err = out.try_clone().expect("no second handle");
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
        Self { child, log }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until a process listens on `port`; a failed test with the log when the server ends
    /// before.
    pub fn wait_for_port(&mut self, port: u16) {
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = self.child.try_wait().expect("no process status") {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            assert!(started.elapsed() < READY_WITHIN, "port {port} is not open:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it exits without a signal from here; a failed test if it does not.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        wait_until("the server ends", READY_WITHIN, || self.child.try_wait().expect("no status"))
    }

    /// Sends it a signal. After [`Signal::STOP`] this waits until every thread is stopped: on a
    /// busy machine the others continue until the thread that handles the signal is scheduled.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it runs");
        if signal == Signal::STOP {
            wait_until("it stands still", READY_WITHIN, || self.stands_still().then_some(()));
        }
    }

    fn stands_still(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name, which may contain anything.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// `kill -9` of it and its children, now. Calling it twice does nothing.
    pub fn kill(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }

    /// Prints how it ended, for a failed test.
    fn tell(&mut self) {
        const LINES: usize = 40;
        const LINES_AT_ONCE: usize = 5;
        let state = match self.child.try_wait() {
            Ok(None) => "runs".to_owned(),
            Ok(Some(status)) => format!("ended with {status}"),
            Err(error) => error.to_string(),
        };
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = |n: usize| lines.get(lines.len().saturating_sub(n)..).unwrap_or_default();
        let told = |n: usize| {
            format!("the server {} {state}; its last lines:\n{}", self.pid(), last(n).join("\n"))
        };
        tell(&told(LINES_AT_ONCE));
        eprintln!("{}", told(LINES));
    }

    /// Resident memory in bytes, of the process itself.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell();
        }
        self.kill();
    }
}
