//! What Envoy offers to a configuration on its main thread: requests to clusters, a handle that
//! wakes that thread, and counters.
//!
//! Source: `abi.h` of Envoy 1.40.0. 1.38.3 and 1.39.3 have the same, except the counters, which
//! came with 1.39. The functions are looked up, so that the module also loads where they are
//! absent.
//!
//! Invariant: Envoy is called on its main thread alone, during a hook about the configuration, for
//! which Envoy holds it. Not here: which calls are made.
#![allow(unsafe_code, reason = "calls across the ABI are unsafe by nature")]

use core::ffi::{CStr, c_void};
use core::ptr::null;

use super::imports::{self, Buffer, CALLOUT, COMMIT, DELETE, HeaderPair, NEW, NotCalled};
use super::{Configuration, MetricKind, Scheduler};

type Opaque = *mut c_void;
type New = unsafe extern "C" fn(Opaque) -> Opaque;
type Commit = unsafe extern "C" fn(Opaque, u64);
type Delete = unsafe extern "C" fn(Opaque);
type Callout =
    unsafe extern "C" fn(Opaque, *mut u64, Buffer, *const HeaderPair, usize, Buffer, u64) -> i32;
type Count = unsafe extern "C" fn(Opaque, usize, *const Buffer, usize, u64) -> i32;

/// The function of this name and type.
///
/// # Safety
/// It has this type.
unsafe fn function<T: Copy>(name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<Opaque>(), "a pointer to a function") };
    let address = imports::address(name)?.as_ptr();
    // SAFETY: a function's address, and as the caller promises.
    Some(unsafe { core::mem::transmute_copy::<Opaque, T>(&address) })
}

impl Configuration {
    /// A handle to wake the main thread for this configuration; `None` when Envoy offers none.
    pub(crate) fn scheduler(self) -> Option<Scheduler> {
        // SAFETY: the types are those of the ABI.
        let (new, commit, delete) = unsafe {
            (function::<New>(NEW)?, function::<Commit>(COMMIT)?, function::<Delete>(DELETE)?)
        };
        // SAFETY: the configuration lives.
        let handle = unsafe { new(self.0) };
        (!handle.is_null()).then_some(Scheduler { handle, commit, delete })
    }

    /// Sends a request; returns the number with which its response comes, after this has returned.
    ///
    /// # Errors
    /// It was not sent, and no response comes.
    pub(crate) fn call<'l>(
        self,
        cluster: &str,
        headers: impl Iterator<Item = (&'l [u8], &'l [u8])>,
        body: &[u8],
        timeout_ms: u64,
    ) -> Result<u64, NotCalled> {
        const SENT: i32 = 0;
        const CANNOT_CREATE: i32 = 4;
        // SAFETY: the type is that of the ABI.
        let callout = unsafe { function::<Callout>(CALLOUT) }.ok_or(NotCalled::Refused)?;
        let pairs: Vec<_> = headers.map(HeaderPair::of).collect();
        let mut number = 0;
        // SAFETY: the configuration lives; Envoy reads all of them during the call.
        let result = unsafe {
            let cluster = Buffer::of(cluster.as_bytes());
            let (pairs, count, body) = (pairs.as_ptr(), pairs.len(), Buffer::of(body));
            callout(self.0, &raw mut number, cluster, pairs, count, body, timeout_ms)
        };
        match result {
            SENT => Ok(number),
            CANNOT_CREATE => Err(NotCalled::Failed),
            _ => Err(NotCalled::Refused),
        }
    }

    /// Adds to a counter or a gauge, or records a value in a histogram; false when this Envoy has
    /// no such function for a configuration.
    pub(crate) fn count(self, kind: MetricKind, metric: usize, by: i64) -> bool {
        let name = match kind {
            MetricKind::Counter => {
                c"envoy_dynamic_module_callback_http_filter_config_increment_counter"
            }
            MetricKind::Gauge if by < 0 => {
                c"envoy_dynamic_module_callback_http_filter_config_decrement_gauge"
            }
            MetricKind::Gauge => {
                c"envoy_dynamic_module_callback_http_filter_config_increment_gauge"
            }
            MetricKind::Histogram => {
                c"envoy_dynamic_module_callback_http_filter_config_record_histogram_value"
            }
        };
        self.measure(name, metric, by.unsigned_abs())
    }

    /// Sets a gauge; false as for [`Configuration::count`].
    pub(crate) fn set_gauge(self, metric: usize, value: u64) -> bool {
        let name = c"envoy_dynamic_module_callback_http_filter_config_set_gauge";
        self.measure(name, metric, value)
    }

    fn measure(self, name: &CStr, metric: usize, value: u64) -> bool {
        // SAFETY: the type is that of the ABI, for all five functions.
        let Some(count) = (unsafe { function::<Count>(name) }) else { return false };
        // SAFETY: the configuration lives; there are no labels to read.
        let _ = unsafe { count(self.0, metric, null(), 0, value) };
        true
    }
}
