//! How much memory is allocated, and whether more may be.
//!
//! The filter cannot handle a failed allocation inside a request: Rust aborts, and the virtual
//! machine and its worker are lost. So a request is denied long before the host's memory limit (1
//! GiB in Envoy). Invariant: everything that clients can make grow checks here first. Deliberately
//! absent: which part allocated how much.
#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]

use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

/// From here on no request allocates more. Far above the sum of the limits on waiting requests, and
/// far below the end, because memory that was freed in pieces is not all usable.
pub const HIGH_WATER: usize = 256 << 20;

/// Allocated bytes.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting. A module that does not name it as its `#[global_allocator]` is
/// never short of memory.
#[derive(Debug)]
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

/// Counts an allocation that replaced one of `before` bytes, unless it failed.
fn counted(bytes: *mut u8, size: usize, before: usize) -> *mut u8 {
    if !bytes.is_null() {
        TAKEN.fetch_add(size, Ordering::Relaxed);
        TAKEN.fetch_sub(before, Ordering::Relaxed);
    }
    bytes
}

/// This virtual machine's memory as the gauge shows it.
static REPORTED: AtomicUsize = AtomicUsize::new(0);

/// By how many bytes this virtual machine's memory has grown since the last call. It never shrinks.
pub fn grown() -> i64 {
    let has = core::arch::wasm32::memory_size(0).saturating_mul(65_536);
    let had = REPORTED.swap(has, Ordering::Relaxed);
    i64::try_from(has.saturating_sub(had)).unwrap_or(i64::MAX)
}

/// True when no request may allocate more.
pub fn is_short() -> bool {
    TAKEN.load(Ordering::Relaxed) > HIGH_WATER
}

/// True when `len` bytes more may be allocated: above the high water there is as much again for
/// requests in progress.
pub fn has_room_for(len: usize) -> bool {
    TAKEN.load(Ordering::Relaxed).saturating_add(len) <= HIGH_WATER.saturating_mul(2)
}
