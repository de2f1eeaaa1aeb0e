//! The bodies of forwarded responses that are read while they pass, for the costs in them.
//!
//! Invariant: of a body only the scanner's place in it is kept. One buffer takes the pieces of all
//! bodies. No number is used twice, in an instance of this wasm or the next: the bytes of a body
//! that began before an abort have no receiver, and its costs stay estimates.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tollgate_policy::BodyScan;
use wasm_bindgen::prelude::*;
use worker::js_sys::Uint8Array;

use crate::runtime::js;

thread_local! {
    /// The scans by their numbers. Not borrowed while other code runs.
    static SCANS: RefCell<BTreeMap<u64, Box<BodyScan>>> = const { RefCell::new(BTreeMap::new()) };
    /// Takes the pieces of bodies, one after the other.
    static PIECE: RefCell<[u8; LONGEST_PIECE]> = const { RefCell::new([0; LONGEST_PIECE]) };
}

/// The most bytes that are copied into wasm at once.
const LONGEST_PIECE: usize = 64 << 10;

/// The most bodies that are read at once. The platform may drop a request without notice, and its
/// scan with it; of more, the oldest is removed, and its costs stay estimates.
const MOST_SCANS: usize = 4_096;

/// A body in progress.
pub(crate) struct ScannedBody(u64);

impl ScannedBody {
    /// The body whose bytes `host.mjs` passes to [`scan_body`] with this number.
    pub(crate) fn new(number: u64, scan: Box<BodyScan>) -> Self {
        SCANS.with_borrow_mut(|scans| {
            if scans.len() >= MOST_SCANS {
                scans.pop_first();
            }
            scans.insert(number, scan);
        });
        Self(number)
    }

    /// Its numbers, at its end. `is_whole` is false where it broke off.
    pub(crate) fn end(self, is_whole: bool) -> Option<Box<BodyScan>> {
        let mut scan = SCANS.with_borrow_mut(|scans| scans.remove(&self.0))?;
        scan.end(is_whole);
        Some(scan)
    }
}

impl Drop for ScannedBody {
    fn drop(&mut self) {
        let left = SCANS.with_borrow_mut(|scans| scans.remove(&self.0));
        drop(left);
    }
}

/// The next bytes of the body with this number. Called by `host.mjs`.
#[wasm_bindgen(js_name = scanBody)]
pub fn scan_body(number: f64, bytes: &Uint8Array) {
    SCANS.with_borrow_mut(|scans| {
        let Some(scan) = scans.get_mut(&js::whole(number)) else { return };
        PIECE.with_borrow_mut(|buffer| {
            let longest = u32::try_from(LONGEST_PIECE).unwrap_or(u32::MAX);
            for from in (0..bytes.length()).step_by(LONGEST_PIECE) {
                let piece = bytes.subarray(from, from.saturating_add(longest));
                let len = usize::try_from(piece.length()).unwrap_or(usize::MAX);
                match buffer.get_mut(..len) {
                    Some(copy) => {
                        piece.copy_to(copy);
                        scan.push(copy);
                    }
                    None => scan.fail(), // no piece is longer than the buffer
                }
            }
        });
    });
}
