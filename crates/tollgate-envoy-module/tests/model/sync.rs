//! The primitives of the module's `sync`, each step of which lets the scheduler choose a thread.
//!
//! Invariant: a guard can panic at both of its ends, while its lock is held. A static lives for one
//! execution. Not here: orders of memory; what is modelled has its values under locks, and numbers
//! of one atomic, of which each has one order anyway.

use std::cell::Cell;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::{Deref, DerefMut};
use std::panic::resume_unwind;
use std::sync::LockResult;

pub use shuttle::sync::atomic::{AtomicU32, Ordering};
pub use shuttle::sync::{Arc, PoisonError};
pub use shuttle::thread_local;

use shuttle::lazy_static::Lazy;
use shuttle::sync::{self, Once};

/// The same in each execution.
pub type RandomState = BuildHasherDefault<DefaultHasher>;

thread_local! {
    /// The number of ends of guards before this thread panics.
    static FAULT: Cell<Option<usize>> = Cell::new(None);
}

/// The panic of [`panics_after`].
pub struct Fault;

/// Lets this thread panic at the end of a guard that this many others are before.
pub fn panics_after(ends: Option<usize>) {
    FAULT.with(|fault| fault.set(ends));
}

fn end_of_guard() {
    let left = FAULT.with(Cell::get);
    FAULT.with(|fault| fault.set(left.and_then(|left| left.checked_sub(1))));
    if left == Some(0) {
        resume_unwind(Box::new(Fault)); // without a report
    }
}

/// A lock that is held.
pub struct Guard<G>(G);

impl<G> Guard<G> {
    fn new(locked: LockResult<G>) -> LockResult<Self> {
        let locked =
            locked.map(Self).map_err(|poisoned| PoisonError::new(Self(poisoned.into_inner())));
        end_of_guard();
        locked
    }
}

impl<G> Drop for Guard<G> {
    fn drop(&mut self) {
        end_of_guard();
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.0
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.0
    }
}

pub type MutexGuard<'a, T> = Guard<sync::MutexGuard<'a, T>>;

#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Guard::new(self.0.lock())
    }
}

#[derive(Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn read(&self) -> LockResult<Guard<sync::RwLockReadGuard<'_, T>>> {
        Guard::new(self.0.read())
    }

    pub fn write(&self) -> LockResult<Guard<sync::RwLockWriteGuard<'_, T>>> {
        Guard::new(self.0.write())
    }
}

pub struct OnceLock<T> {
    once: Once,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self { once: Once::new(), value: std::sync::OnceLock::new() }
    }
}

impl<T> OnceLock<T> {
    /// A value that is there stays, so only its absence depends on other threads.
    pub fn get(&self) -> Option<&T> {
        if self.value.get().is_none() {
            shuttle::thread::yield_now();
        }
        self.value.get()
    }

    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        self.once.call_once(|| drop(self.value.set(init())));
        self.value.get().expect("it was set")
    }
}

pub struct LazyLock<T: Sync>(Lazy<T>);

impl<T: Sync> LazyLock<T> {
    pub const fn new(init: fn() -> T) -> Self {
        Self(Lazy::new(init))
    }
}

impl<T: Sync + 'static> Deref for LazyLock<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the module has these as statics alone.
        let this: &'static Self = unsafe { &*std::ptr::from_ref(self) };
        this.0.get()
    }
}
