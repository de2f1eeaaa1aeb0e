//! Envoy's C ABI for dynamic modules, bound by hand: the only unsafe code of this crate.
//!
//! `imports` declares what Envoy offers and `exports` is what it calls; the types here make values
//! of both. Source: `source/extensions/dynamic_modules/abi/abi.h` of Envoy 1.38.3, 1.39.3 and
//! 1.40.0, in which everything that is used here is the same.
//!
//! Invariant: a [`Stream`] and a [`Configuration`] are made by `exports` alone, for the time that
//! Envoy promises: a stream until its `destroy`, a configuration for one hook. Bytes that Envoy
//! lends are copied or read before the next call. Not here: what a call means to the filter.
#![allow(unsafe_code, reason = "calls across the ABI are unsafe by nature")]

mod calls;
mod exports;
mod imports;
mod lent;
mod metadata;

use core::ffi::c_void;
use core::ptr::null_mut;

pub(crate) use imports::{Attribute, HeaderKind, Level, NotCalled, can_call};
use imports::{Buffer, HeaderPair};

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// The body of a response that passes, in `envoy_dynamic_module_type_http_body_type`.
const RECEIVED_RESPONSE: i32 = 2;

/// A stream of Envoy, on the thread of its worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(*mut c_void);

/// A configuration of Envoy, on its main thread, during a hook about it.
#[derive(Clone, Copy)]
pub(crate) struct Configuration(*mut c_void);

/// The memory of header lines that are lent to Envoy for one call.
#[derive(Default)]
pub(crate) struct HeaderList(Vec<HeaderPair>);

impl HeaderList {
    fn of<'l>(&mut self, lines: impl Iterator<Item = (&'l [u8], &'l [u8])>) -> &[HeaderPair] {
        self.0.clear();
        self.0.extend(lines.map(HeaderPair::of));
        &self.0
    }
}

/// A handle by which any thread can wake the thread of a stream, or the main thread for a
/// configuration. The stream or the configuration may be gone.
pub(crate) struct Scheduler {
    handle: *mut c_void,
    commit: unsafe extern "C" fn(*mut c_void, u64),
    delete: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: Envoy's schedulers are for other threads; `commit` takes a lock of its own.
unsafe impl Send for Scheduler {}

impl Scheduler {
    /// Makes Envoy call `scheduled` about the stream or the configuration, on its thread; nothing
    /// happens when it is gone.
    pub(crate) fn commit(&self) {
        // SAFETY: the handle lives until it is dropped.
        unsafe { (self.commit)(self.handle, 0) };
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: the handle is deleted once; Envoy allows that on any thread, after the stream
        // or the configuration.
        unsafe { (self.delete)(self.handle) };
    }
}

impl Stream {
    /// True when there are any of these headers.
    pub(crate) fn has_lines(self, kind: HeaderKind) -> bool {
        // SAFETY: the stream lives.
        unsafe { imports::envoy_dynamic_module_callback_http_get_headers_size(self.0, kind) > 0 }
    }

    /// Hands the values of a header, joined by `, `, to `read`, which calls nothing of Envoy; does
    /// not when there is no such line. Envoy knows the place of some headers, of which there is one
    /// line: that costs less than a list of all. For any other it would make a map of all.
    pub(crate) fn read_joined(self, kind: HeaderKind, name: &str, read: &mut dyn FnMut(&[u8])) {
        if name.starts_with(':') || name == "content-type" {
            return self.header(kind, name, read).unwrap_or_default();
        }
        lent::with(self.0, kind, |lines| {
            let mut values = lines.values(name);
            match (values.next(), values.next()) {
                (None, _) => {}
                (Some(value), None) => read(value),
                (Some(first), Some(second)) => {
                    let mut joined = [first, second].join(&b", "[..]);
                    for value in values {
                        joined.extend_from_slice(b", ");
                        joined.extend_from_slice(value);
                    }
                    read(&joined);
                }
            }
        });
    }

    /// The first line of a header, of which there is at most one.
    pub(crate) fn header<T>(
        self,
        kind: HeaderKind,
        name: &str,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        if lent::is_of(self.0, kind) {
            return lent::with(self.0, kind, |lines| Some(read(lines.values(name).next()?)))?;
        }
        let mut found = Buffer::EMPTY;
        // SAFETY: the stream lives; Envoy writes one buffer, which is read before any other call.
        unsafe {
            let name = Buffer::of(name.as_bytes());
            imports::envoy_dynamic_module_callback_http_get_header(
                self.0,
                kind,
                name,
                &raw mut found,
                0,
                null_mut(),
            )
            .then(|| read(found.bytes()))
        }
    }

    /// Bytes of all names and values.
    pub(crate) fn lines_len(self, kind: HeaderKind) -> usize {
        let add = |sum: usize, (name, value): (&[u8], &[u8])| {
            sum.saturating_add(name.len()).saturating_add(value.len())
        };
        lent::with(self.0, kind, |lines| lines.iter().fold(0, add)).unwrap_or_default()
    }

    /// Sets a header; earlier lines under that name are replaced.
    pub(crate) fn set_header(self, kind: HeaderKind, name: &str, value: &str) {
        lent::end();
        let (name, value) = (Buffer::of(name.as_bytes()), Buffer::of(value.as_bytes()));
        // SAFETY: the stream lives; Envoy reads both during the call. A line that it does not take
        // changes nothing for the request.
        let _ = unsafe {
            imports::envoy_dynamic_module_callback_http_set_header(self.0, kind, name, value)
        };
    }

    /// Appends a header line.
    pub(crate) fn add_header(self, kind: HeaderKind, name: &str, value: &str) {
        lent::end();
        let (name, value) = (Buffer::of(name.as_bytes()), Buffer::of(value.as_bytes()));
        // SAFETY: as in `set_header`.
        let _ = unsafe {
            imports::envoy_dynamic_module_callback_http_add_header(self.0, kind, name, value)
        };
    }

    /// Responds in the origin's place. Envoy may call hooks of this stream, its last one too,
    /// before this returns.
    pub(crate) fn respond<'l>(
        self,
        status: u16,
        (list, lines): (&mut HeaderList, impl Iterator<Item = (&'l [u8], &'l [u8])>),
        body: &[u8],
        details: &str,
    ) {
        lent::end();
        let pairs = list.of(lines);
        // SAFETY: the stream lives; Envoy reads all of them during the call.
        unsafe {
            imports::envoy_dynamic_module_callback_http_send_response(
                self.0,
                status.into(),
                pairs.as_ptr(),
                pairs.len(),
                Buffer::of(body),
                Buffer::of(details.as_bytes()),
            );
        }
        lent::end(); // of hooks inside
    }

    /// Responds with these headers alone, `:status` among them; otherwise as [`Stream::respond`].
    pub(crate) fn respond_with_headers<'l>(
        self,
        (list, lines): (&mut HeaderList, impl Iterator<Item = (&'l [u8], &'l [u8])>),
    ) {
        lent::end();
        let pairs = list.of(lines);
        // SAFETY: as in `respond`.
        unsafe {
            imports::envoy_dynamic_module_callback_http_send_response_headers(
                self.0,
                pairs.as_ptr(),
                pairs.len(),
                true,
            );
        }
        lent::end();
    }

    /// Lets a stopped request continue. Envoy may call hooks of this stream before this returns.
    pub(crate) fn resume(self) {
        lent::end();
        // SAFETY: the stream lives.
        unsafe { imports::envoy_dynamic_module_callback_http_filter_continue_decoding(self.0) };
        lent::end();
    }

    /// Hands a value that is text to `read`, which calls nothing of Envoy.
    pub(crate) fn attribute<T>(
        self,
        attribute: Attribute,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let mut found = Buffer::EMPTY;
        // SAFETY: the stream lives; Envoy writes one buffer, which is read before any other call.
        unsafe {
            imports::envoy_dynamic_module_callback_http_filter_get_attribute_string(
                self.0,
                attribute,
                &raw mut found,
            )
            .then(|| read(found.bytes()))
        }
    }

    /// A value that is a number.
    pub(crate) fn number(self, attribute: Attribute) -> Option<u64> {
        let mut found = 0;
        // SAFETY: the stream lives; Envoy writes one number.
        unsafe {
            imports::envoy_dynamic_module_callback_http_filter_get_attribute_int(
                self.0,
                attribute,
                &raw mut found,
            )
            .then_some(found)
        }
    }

    /// Sets a value that the access log can read.
    pub(crate) fn set_filter_state(self, key: &str, value: &str) {
        let (key, value) = (Buffer::of(key.as_bytes()), Buffer::of(value.as_bytes()));
        // SAFETY: the stream lives; Envoy reads both during the call.
        let _ = unsafe {
            imports::envoy_dynamic_module_callback_http_set_filter_state_bytes(self.0, key, value)
        };
    }

    /// How many bytes of the response's body the hook for it announces.
    pub(crate) fn response_body_len(self) -> usize {
        // SAFETY: the stream lives.
        unsafe {
            imports::envoy_dynamic_module_callback_http_get_body_size(self.0, RECEIVED_RESPONSE)
        }
    }

    /// At most `len` bytes of the response's body that passes, from its byte `from` on.
    pub(crate) fn response_body(self, from: usize, len: usize) -> Vec<u8> {
        let mut copied = Vec::new();
        // SAFETY: the stream lives. Envoy writes exactly as many buffers as it said, and they are
        // read before any other call.
        unsafe {
            let count = imports::envoy_dynamic_module_callback_http_get_body_chunks_size(
                self.0,
                RECEIVED_RESPONSE,
            );
            let mut chunks = vec![Buffer::EMPTY; count];
            let chunks_at = chunks.as_mut_ptr();
            if imports::envoy_dynamic_module_callback_http_get_body_chunks(
                self.0,
                RECEIVED_RESPONSE,
                chunks_at,
            ) {
                let mut skip = from;
                for chunk in &chunks {
                    let bytes = chunk.bytes();
                    let rest = bytes.get(skip.min(bytes.len())..).unwrap_or_default();
                    skip = skip.saturating_sub(bytes.len());
                    let room = len.saturating_sub(copied.len()).min(rest.len());
                    copied.extend_from_slice(rest.get(..room).unwrap_or_default());
                }
            }
        }
        copied
    }

    /// A handle to wake this thread while this stream lives.
    pub(crate) fn scheduler(self) -> Scheduler {
        // SAFETY: the stream lives.
        let handle =
            unsafe { imports::envoy_dynamic_module_callback_http_filter_scheduler_new(self.0) };
        Scheduler {
            handle,
            commit: imports::envoy_dynamic_module_callback_http_filter_scheduler_commit,
            delete: imports::envoy_dynamic_module_callback_http_filter_scheduler_delete,
        }
    }

    /// Adds to a counter or a gauge, or records a value in a histogram. Envoy changes nothing for a
    /// number that it does not know.
    pub(crate) fn count(self, kind: MetricKind, metric: usize, by: i64) {
        let amount = by.unsigned_abs();
        let no_labels = core::ptr::null();
        // SAFETY: the stream lives; there are no labels to read.
        let _ = unsafe {
            match kind {
                MetricKind::Counter => {
                    imports::envoy_dynamic_module_callback_http_filter_increment_counter(
                        self.0, metric, no_labels, 0, amount,
                    )
                }
                MetricKind::Gauge if by < 0 => {
                    imports::envoy_dynamic_module_callback_http_filter_decrement_gauge(
                        self.0, metric, no_labels, 0, amount,
                    )
                }
                MetricKind::Gauge => {
                    imports::envoy_dynamic_module_callback_http_filter_increment_gauge(
                        self.0, metric, no_labels, 0, amount,
                    )
                }
                MetricKind::Histogram => {
                    imports::envoy_dynamic_module_callback_http_filter_record_histogram_value(
                        self.0, metric, no_labels, 0, amount,
                    )
                }
            }
        };
    }

    /// Sets a gauge.
    pub(crate) fn set_gauge(self, metric: usize, value: u64) {
        let no_labels = core::ptr::null();
        // SAFETY: as in `count`.
        let _ = unsafe {
            imports::envoy_dynamic_module_callback_http_filter_set_gauge(
                self.0, metric, no_labels, 0, value,
            )
        };
    }
}

impl Configuration {
    /// Defines a metric; `None` when Envoy does not.
    pub(crate) fn define(self, kind: MetricKind, name: &str) -> Option<usize> {
        let (name, no_labels) = (Buffer::of(name.as_bytes()), core::ptr::null());
        let mut number = 0;
        // SAFETY: the configuration lives; Envoy reads the name and writes one number.
        let status = unsafe {
            let define = match kind {
                MetricKind::Counter => {
                    imports::envoy_dynamic_module_callback_http_filter_config_define_counter
                }
                MetricKind::Gauge => {
                    imports::envoy_dynamic_module_callback_http_filter_config_define_gauge
                }
                MetricKind::Histogram => {
                    imports::envoy_dynamic_module_callback_http_filter_config_define_histogram
                }
            };
            define(self.0, name, no_labels, 0, &raw mut number)
        };
        (status == 0).then_some(number)
    }
}

/// True when Envoy offers a function that came with 1.38. Before that others had the same names and
/// took other arguments.
pub(crate) fn is_known() -> bool {
    imports::address(c"envoy_dynamic_module_callback_is_validation_mode").is_some()
}

/// One line in Envoy's log, from any thread.
pub(crate) fn log(level: Level, text: &str) {
    // SAFETY: Envoy reads the text during the call.
    unsafe { imports::envoy_dynamic_module_callback_log(level, Buffer::of(text.as_bytes())) };
}
