//! The host's clocks (WASI preview 1), and the offset of this virtual machine.
//!
//! Invariant: a missing clock of the host is a value. Deliberately absent: the choice of the
//! offset; that is `clock`'s.
#![allow(unsafe_code, reason = "a call across the ABI is unsafe by nature")]

use core::cell::Cell;

use tollgate_core::{Span, Timestamp};

const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, nanos: *mut u64) -> u32;
}

thread_local! {
    static OFFSET: Cell<Span> = const { Cell::new(Span::ZERO) };
}

/// Since the start of the machine.
pub fn monotonic() -> Option<Timestamp> {
    time(MONOTONIC)
}

/// Since 1970.
pub fn wall() -> Option<Timestamp> {
    time(REALTIME)
}

/// The offset that is added to the monotonic clock.
pub fn offset() -> Span {
    OFFSET.get()
}

/// Sets it.
pub fn set_offset(offset: Span) {
    OFFSET.set(offset);
}

fn time(clock: u32) -> Option<Timestamp> {
    let mut nanos = 0;
    // SAFETY: the host writes eight bytes to `nanos`.
    let status = unsafe { clock_time_get(clock, 1, &raw mut nanos) };
    (status == 0).then_some(Timestamp::from_nanos(nanos))
}
