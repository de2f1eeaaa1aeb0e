//! A library to preload into a server (`LD_PRELOAD`): its monotonic clock is what the test says.
//!
//! The time stands in the file `clock` of the server's working directory: eight bytes, nanoseconds,
//! little-endian, read at every call. The wall clock is the machine's. A shipped filter has no way
//! to be told the time, and needs none: this stands in for the C library below an unchanged Envoy.
//!
//! Invariant: nothing here allocates, because an allocator may ask for the time. A process without
//! such a file has the machine's clocks. Not for timed waits in the kernel, which know the
//! machine's clock only: a time far in the future makes them wait until they are woken.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, clockid_t, timespec};

const UNOPENED: c_int = -2;
static FILE: AtomicI32 = AtomicI32::new(UNOPENED);

const SECOND_NS: u64 = 1_000_000_000;

/// The C library's function of this name.
///
/// # Safety
/// As there: `out` points to a `timespec` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    let is_monotonic = matches!(
        clock,
        libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
    );
    match given().filter(|_| is_monotonic) {
        Some(ns) => {
            let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let time = timespec { tv_sec: part(ns / SECOND_NS), tv_nsec: part(ns % SECOND_NS) };
            // SAFETY: the caller's promise.
            unsafe { out.write(time) };
            0
        }
        None => {
            // SAFETY: the call that the C library makes, with the arguments it was given.
            let status = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) };
            c_int::try_from(status).unwrap_or(-1)
        }
    }
}

/// What the file says; `None` without a file.
fn given() -> Option<u64> {
    let mut file = FILE.load(Ordering::Relaxed);
    if file == UNOPENED {
        // SAFETY: a text that ends with a zero byte. Two threads may both open it: one is kept.
        file = unsafe { libc::open(c"clock".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        FILE.store(file, Ordering::Relaxed);
    }
    let mut bytes = [0; 8];
    // SAFETY: `bytes` has room for what is read.
    let read = unsafe { libc::pread(file, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (read == 8).then_some(u64::from_le_bytes(bytes))
}
