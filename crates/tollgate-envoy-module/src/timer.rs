//! One thread that wakes workers when a time has come: Envoy's ABI has no timer.
//!
//! The thread sleeps in a read with a time-out, which a byte ends early. Invariant: a worker is
//! woken at its time or later, never earlier, and through a stream that its own thread has
//! registered; the handle of that stream is only used under the lock under which it is taken back.
//! Not here: what a worker does when it wakes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::{Level, Scheduler, log};

/// A worker's handle, and when it wants to be woken.
struct Wake {
    worker: u64,
    scheduler: Scheduler,
    at: Option<Instant>,
}

#[derive(Default)]
struct Wakes {
    /// There are few workers.
    by_worker: Vec<Wake>,
    /// Ends the sleep of the thread; `None` before there is one.
    alarm: Option<UnixStream>,
    /// The end of its sleep; `None` when that is open.
    sleeps_until: Option<Instant>,
}

static WAKES: LazyLock<Mutex<Wakes>> = LazyLock::new(Mutex::default);

/// Registers a handle for this worker; an earlier one is dropped.
pub(crate) fn register(worker: u64, scheduler: Scheduler) {
    let mut wakes = wakes();
    wakes.by_worker.retain(|wake| wake.worker != worker);
    wakes.by_worker.push(Wake { worker, scheduler, at: None });
}

/// Takes the handle of this worker back; from now on it is not used.
pub(crate) fn unregister(worker: u64) {
    wakes().by_worker.retain(|wake| wake.worker != worker);
}

/// Wakes this worker once at `at`, or never; nothing happens without a handle. False when there is
/// no thread for it, so it has to be asked again.
pub(crate) fn wake_at(worker: u64, at: Option<Instant>) -> bool {
    let mut wakes = wakes();
    let Some(wake) = wakes.by_worker.iter_mut().find(|it| it.worker == worker) else {
        return true;
    };
    if wake.at == at {
        return true;
    }
    wake.at = at;
    let Some(at) = at else { return true };
    if wakes.alarm.is_none() {
        match start() {
            Ok(alarm) => wakes.alarm = Some(alarm),
            Err(error) => {
                wakes.by_worker.iter_mut().for_each(|wake| wake.at = None);
                log(Level::Error, &format!("tollgate: there is no timer: {error}"));
                return false;
            }
        }
    }
    if wakes.sleeps_until.is_none_or(|until| at < until)
        && let Some(alarm) = &mut wakes.alarm
    {
        // A full buffer wakes the thread as well.
        let _ = alarm.write(&[0]);
    }
    true
}

fn wakes() -> MutexGuard<'static, Wakes> {
    WAKES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    thread::Builder::new().name("tollgate".into()).spawn(move || run(theirs))?;
    Ok(ours)
}

fn run(mut alarm: UnixStream) {
    /// For an open end: a read without a time-out could not be one with one later.
    const LONG: Duration = Duration::from_secs(3_600);
    /// While a worker is to be woken: the kernel's time goes on as usual when the clock is set.
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    loop {
        let now = Instant::now();
        let next_at = {
            let mut wakes = wakes();
            for wake in &mut wakes.by_worker {
                if wake.at.is_some_and(|at| at <= now) {
                    wake.at = None;
                    wake.scheduler.commit();
                }
            }
            wakes.sleeps_until = wakes.by_worker.iter().filter_map(|wake| wake.at).min();
            wakes.sleeps_until
        };
        let sleep = next_at.map_or(LONG, |at| at.saturating_duration_since(now).min(LOOK_AGAIN));
        // The kernel rounds down, and takes no time-out of zero.
        let sleep = sleep.saturating_add(Duration::from_micros(1));
        if alarm.set_read_timeout(Some(sleep)).is_err() {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut bytes = [0; 64];
        let _ = alarm.read(&mut bytes);
    }
}
