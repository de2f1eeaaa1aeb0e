//! The handles by which any thread wakes another one of Envoy's, and one thread that does so when a
//! time has come: Envoy's ABI has no timer.
//!
//! The thread sleeps in a read with a time-out, which a byte ends early. Invariant: a worker is
//! woken through a stream that its own thread has registered, the main thread through a
//! configuration that lives; a handle is only used under the lock under which it is taken back. A
//! time that was set is never early. Not here: what a thread does when it wakes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::{Level, Scheduler, log};

/// A thread of Envoy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// The worker with this number, by one of its streams.
    Worker(u64),
    /// The main thread, by the configuration with this number.
    Main(usize),
}

/// A thread's handle, and when it wants to be woken.
struct Wake {
    sleeper: Sleeper,
    scheduler: Scheduler,
    at: Option<Instant>,
}

#[derive(Default)]
struct Wakes {
    /// There are few.
    all: Vec<Wake>,
    /// Ends the sleep of the thread; `None` before there is one.
    alarm: Option<UnixStream>,
    /// The end of its sleep; `None` when that is open.
    sleeps_until: Option<Instant>,
}

static WAKES: LazyLock<Mutex<Wakes>> = LazyLock::new(Mutex::default);

/// Registers a handle for this thread; an earlier one is dropped.
pub(crate) fn register(sleeper: Sleeper, scheduler: Scheduler) {
    let mut wakes = wakes();
    wakes.all.retain(|wake| wake.sleeper != sleeper);
    wakes.all.push(Wake { sleeper, scheduler, at: None });
}

/// Takes the handle of this thread back; from now on it is not used.
pub(crate) fn unregister(sleeper: Sleeper) {
    wakes().all.retain(|wake| wake.sleeper != sleeper);
}

/// Wakes this thread now; nothing happens without a handle.
pub(crate) fn wake(sleeper: Sleeper) {
    let wakes = wakes();
    let wake = wakes.all.iter().find(|wake| wake.sleeper == sleeper);
    wake.into_iter().for_each(|wake| wake.scheduler.commit());
}

/// Wakes this thread once at `at`, or never; nothing happens without a handle. False when there is
/// no thread for it, so it has to be asked again.
pub(crate) fn wake_at(sleeper: Sleeper, at: Option<Instant>) -> bool {
    let mut wakes = wakes();
    let Some(wake) = wakes.all.iter_mut().find(|it| it.sleeper == sleeper) else {
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
                wakes.all.iter_mut().for_each(|wake| wake.at = None);
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
            for wake in &mut wakes.all {
                if wake.at.is_some_and(|at| at <= now) {
                    wake.at = None;
                    wake.scheduler.commit();
                }
            }
            wakes.sleeps_until = wakes.all.iter().filter_map(|wake| wake.at).min();
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
