//! How much memory is taken, and when it is too much to take more.
//!
//! An allocation that fails inside a request cannot be answered: Rust aborts, the virtual machine
//! is gone, and its worker with it. So a request is refused long before the host's end of memory (1
//! GiB in Envoy). Invariant: what clients can make grow asks here first. Deliberately absent: who
//! took how much.
#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]

use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

/// From here on no request takes more. Far above what the limits on waiting requests come to, and
/// far below the end, because memory that was given back in pieces is not all of use.
pub const HIGH_WATER: usize = 256 << 20;

/// Bytes that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting.
pub struct Counted;

// SAFETY: every call is the system allocator's, with the same arguments and the same result.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        counted(unsafe { System.alloc(layout) }, layout.size(), 0)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        counted(unsafe { System.alloc_zeroed(layout) }, layout.size(), 0)
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(bytes, layout) };
    }

    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        counted(unsafe { System.realloc(bytes, layout, size) }, size, layout.size())
    }
}

/// Notes an allocation that took the place of one of `before` bytes, unless it failed.
fn counted(bytes: *mut u8, size: usize, before: usize) -> *mut u8 {
    if !bytes.is_null() {
        TAKEN.fetch_add(size, Ordering::Relaxed);
        TAKEN.fetch_sub(before, Ordering::Relaxed);
    }
    bytes
}

/// What the gauge says of this machine's memory.
static REPORTED: AtomicUsize = AtomicUsize::new(0);

/// By how many bytes this machine's memory has grown since this was asked last. It never shrinks.
pub fn grown() -> i64 {
    let has = core::arch::wasm32::memory_size(0).saturating_mul(65_536);
    let had = REPORTED.swap(has, Ordering::Relaxed);
    i64::try_from(has.saturating_sub(had)).unwrap_or(i64::MAX)
}

/// True when no request may take more.
pub fn is_short() -> bool {
    TAKEN.load(Ordering::Relaxed) > HIGH_WATER
}

/// True when `len` bytes more may be taken: above the high water there is as much again for
/// requests that are under way.
pub fn has_room_for(len: usize) -> bool {
    TAKEN.load(Ordering::Relaxed).saturating_add(len) <= HIGH_WATER.saturating_mul(2)
}
