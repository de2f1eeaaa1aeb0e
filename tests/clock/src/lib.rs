//! A library to preload into a server (`LD_PRELOAD`): the test sets its monotonic clock.
//!
//! The time is read at every call from the file `clock` in the server's working directory: eight
//! bytes, nanoseconds, little-endian. The wall clock is the machine's, or that of the file `clock`
//! if both files exist, plus the offset in the file `wall`, in nanoseconds, signed. A shipped
//! filter has no interface to set the time, and needs none: this library replaces the C library's
//! clock below an unchanged Envoy, or an unchanged Redis.
//!
//! Invariant: nothing here allocates, because an allocator may read the time. A process without
//! such files has the machine's clocks. Not for timed waits in the kernel, which use only the
//! machine's clock: after a jump far into the future they wait until they are woken.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void, clockid_t, time_t, timespec, timeval};

const UNOPENED: c_int = -2;
static FILE: AtomicI32 = AtomicI32::new(UNOPENED);
static WALL: AtomicI32 = AtomicI32::new(UNOPENED);

const SECOND_NS: u64 = 1_000_000_000;

/// The C library's function of this name.
///
/// # Safety
/// As for the C function: `out` points to a `timespec` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    let is_monotonic = matches!(
        clock,
        libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
    );
    let is_wall = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE);
    let more = if is_wall { read(&WALL, c"wall").map(i64::from_le_bytes) } else { None };
    let set = given().and_then(|ns| match more {
        Some(more) => ns.checked_add_signed(more),
        None => Some(ns).filter(|_| is_monotonic),
    });
    match set {
        Some(ns) => {
            let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let time = timespec { tv_sec: part(ns / SECOND_NS), tv_nsec: part(ns % SECOND_NS) };
            // SAFETY: the caller's promise.
            unsafe { out.write(time) };
            0
        }
        None => {
            // SAFETY: the C library makes the same call, with the same arguments.
            let status = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) };
            if let (0, Some(more)) = (status, more) {
                // SAFETY: the system has just written it.
                let time = unsafe { out.read() };
                let ns = time.tv_sec * SECOND_NS as i64 + time.tv_nsec + more;
                let second = SECOND_NS as i64;
                let moved =
                    timespec { tv_sec: ns.div_euclid(second), tv_nsec: ns.rem_euclid(second) };
                // SAFETY: the caller's promise.
                unsafe { out.write(moved) };
            }
            c_int::try_from(status).unwrap_or(-1)
        }
    }
}

/// The C library's function of this name, which Redis calls.
///
/// # Safety
/// As for the C function: `out` points to a `timeval` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(out: *mut timeval, _zone: *mut c_void) -> c_int {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written.
    let status = unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    // SAFETY: the caller's promise.
    unsafe { out.write(timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1_000 }) };
    status
}

/// The C library's function of this name, which Redis compares with the one above.
///
/// # Safety
/// As for the C function: `out` is null, or points to a `time_t` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(out: *mut time_t) -> time_t {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` may be written.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write(now.tv_sec) };
    }
    now.tv_sec
}

/// The time in the file `clock`; `None` without the file.
fn given() -> Option<u64> {
    read(&FILE, c"clock").map(u64::from_le_bytes)
}

/// The eight bytes of a file, which is opened once.
fn read(opened: &AtomicI32, name: &CStr) -> Option<[u8; 8]> {
    let mut file = opened.load(Ordering::Relaxed);
    if file == UNOPENED {
        // SAFETY: a text that ends with a zero byte. Two threads may both open it: one is kept.
        file = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        opened.store(file, Ordering::Relaxed);
    }
    let mut bytes = [0; 8];
    // SAFETY: `bytes` has room for the bytes read.
    let read = unsafe { libc::pread(file, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (read == 8).then_some(bytes)
}
