//! Header lines that Envoy has lent to this thread: pointers into its own strings, which a hook
//! looks up several times and Envoy lists once.
//!
//! Invariant: lines are only read before the loan ends. It ends when another hook begins, and with
//! each call that can make Envoy change headers or run other hooks, before and after these; all
//! call [`end`]. The lines are read inside [`with`], where nothing else is called. Not here: what
//! the lines mean.
#![allow(unsafe_code, reason = "reads memory of another program")]

use core::ffi::c_void;
use std::cell::{Cell, RefCell};

use super::imports::{self, HeaderKind, HeaderPair};

/// A stream of Envoy, which lives.
type Stream = *mut c_void;

thread_local! {
    /// The stream whose lines are lent, and which ones.
    static OF: Cell<Option<(Stream, HeaderKind)>> = const { Cell::new(None) };
    static LINES: RefCell<Vec<HeaderPair>> = const { RefCell::new(Vec::new()) };
}

/// Lines that are lent: only [`with`] makes them.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a>(&'a [HeaderPair]);

impl<'a> Lines<'a> {
    /// Names and values.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        // SAFETY: Envoy keeps the lines as they are until the loan ends, which it has not.
        self.0.iter().map(|pair| unsafe { (pair.name(), pair.value()) })
    }

    /// The values of a header.
    pub(super) fn values(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: as in `iter`.
        let value = move |pair: &'a HeaderPair| unsafe { pair.value_of(name.as_bytes()) };
        self.0.iter().filter_map(value)
    }
}

/// The loan ends. Its lines are not read any more.
pub(super) fn end() {
    OF.set(None);
}

/// True when these lines are lent already.
pub(super) fn is_of(stream: Stream, kind: HeaderKind) -> bool {
    OF.get() == Some((stream, kind))
}

/// Hands these lines to `read`, which calls nothing of Envoy; `None` when Envoy has none.
pub(super) fn with<T>(
    stream: Stream,
    kind: HeaderKind,
    read: impl FnOnce(Lines<'_>) -> T,
) -> Option<T> {
    LINES.with_borrow_mut(|pairs| {
        if !is_of(stream, kind) {
            OF.set(None);
            // SAFETY: the stream lives. Envoy writes exactly as many pairs as it said.
            let is_lent = unsafe {
                let count =
                    imports::envoy_dynamic_module_callback_http_get_headers_size(stream, kind);
                pairs.clear();
                pairs.resize(count, HeaderPair::EMPTY);
                let at = pairs.as_mut_ptr();
                imports::envoy_dynamic_module_callback_http_get_headers(stream, kind, at)
            };
            if !is_lent {
                return None;
            }
            OF.set(Some((stream, kind)));
        }
        Some(read(Lines(pairs)))
    })
}
