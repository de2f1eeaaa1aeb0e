//! One thread that wakes workers when a time has come: Envoy's ABI has no timer.
//!
//! Invariant: a worker is woken at its time or later, never earlier, and through a stream that its
//! own thread has registered; the handle of that stream is only used under the lock under which it
//! is taken back. Not here: what a worker does when it wakes.

use std::collections::HashMap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::abi::{Level, Scheduler, log};

/// A worker's handle, and when it wants to be woken.
struct Wake {
    scheduler: Scheduler,
    at: Option<Instant>,
}

#[derive(Default)]
struct Wakes {
    by_worker: HashMap<u64, Wake>,
    has_thread: bool,
}

#[derive(Default)]
struct Timer {
    wakes: Mutex<Wakes>,
    changed: Condvar,
}

static TIMER: LazyLock<Timer> = LazyLock::new(Timer::default);

/// Registers a handle for this worker; an earlier one is dropped.
pub(crate) fn register(worker: u64, scheduler: Scheduler) {
    let at = None;
    TIMER.lock().by_worker.insert(worker, Wake { scheduler, at });
}

/// Takes the handle of this worker back; from now on it is not used.
pub(crate) fn unregister(worker: u64) {
    TIMER.lock().by_worker.remove(&worker);
}

/// Wakes this worker once at `at`, or never; nothing happens without a handle.
pub(crate) fn wake_at(worker: u64, at: Option<Instant>) {
    let mut wakes = TIMER.lock();
    let Some(wake) = wakes.by_worker.get_mut(&worker) else { return };
    if wake.at == at {
        return;
    }
    wake.at = at;
    if at.is_some() && !wakes.has_thread {
        let named = thread::Builder::new().name("tollgate".into());
        match named.spawn(|| TIMER.run()) {
            Ok(_) => wakes.has_thread = true,
            Err(error) => log(Level::Error, &format!("tollgate: there is no timer: {error}")),
        }
    }
    drop(wakes);
    TIMER.changed.notify_one();
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Wakes> {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut wakes = self.lock();
        loop {
            let now = Instant::now();
            for wake in wakes.by_worker.values_mut() {
                if wake.at.is_some_and(|at| at <= now) {
                    wake.at = None;
                    wake.scheduler.commit();
                }
            }
            let next_at = wakes.by_worker.values().filter_map(|wake| wake.at).min();
            wakes = match next_at {
                Some(at) => {
                    let waited = self.changed.wait_timeout(wakes, at.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(wakes).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
