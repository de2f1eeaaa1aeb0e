//! The types of the ABI, and the functions that Envoy offers.
//!
//! Invariant: declarations, names and views of memory alone.
#![allow(unsafe_code, reason = "declares functions of another program")]

use core::ffi::{CStr, c_void};
use core::ptr::{NonNull, null};
use core::slice;

/// Which headers of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum HeaderKind {
    Request = 0,
    Response = 2,
    ResponseTrailers = 3,
}

/// A value that Envoy knows of a stream: numbers of `envoy_dynamic_module_type_attribute_id`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Attribute {
    ResponseSize = 21,
    SourceAddress = 24,
    CertificateSubject = 33,
    CertificateDnsSan = 35,
    CertificateUriSan = 37,
    CertificateSha256 = 38,
    RouteName = 61,
}

/// Severities of Envoy's log.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Level {
    Info = 2,
    Warning = 3,
    Error = 4,
    Critical = 5,
}

/// Bytes that one side lends to the other for a call.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Buffer {
    bytes: *const u8,
    len: usize,
}

impl Buffer {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self { bytes: null(), len: 0 };

    /// Lends these bytes.
    pub(crate) const fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.as_ptr(), len: bytes.len() }
    }

    /// The lent bytes.
    ///
    /// # Safety
    /// The lender keeps them as they are until the result is no longer used.
    pub(crate) const unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.bytes.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: as the caller promises.
        unsafe { slice::from_raw_parts(self.bytes, self.len) }
    }
}

/// The name and the value of a header line, lent like a [`Buffer`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct HeaderPair {
    name: *const u8,
    name_len: usize,
    value: *const u8,
    value_len: usize,
}

impl HeaderPair {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self { name: null(), name_len: 0, value: null(), value_len: 0 };

    /// Lends this line.
    pub(crate) const fn of((name, value): (&[u8], &[u8])) -> Self {
        Self {
            name: name.as_ptr(),
            name_len: name.len(),
            value: value.as_ptr(),
            value_len: value.len(),
        }
    }

    /// The name.
    ///
    /// # Safety
    /// See [`Buffer::bytes`].
    pub(crate) const unsafe fn name<'a>(&self) -> &'a [u8] {
        // SAFETY: as the caller promises.
        unsafe { Buffer { bytes: self.name, len: self.name_len }.bytes() }
    }

    /// The value, if it is the header `name`. Most lines differ in the length of their names.
    ///
    /// # Safety
    /// See [`Buffer::bytes`].
    pub(crate) unsafe fn value_of<'a>(&self, name: &[u8]) -> Option<&'a [u8]> {
        // SAFETY: as the caller promises.
        let is_it = self.name_len == name.len() && unsafe { self.name() } == name;
        // SAFETY: as the caller promises.
        is_it.then(|| unsafe { self.value() })
    }

    /// The value.
    ///
    /// # Safety
    /// See [`Buffer::bytes`].
    pub(crate) const unsafe fn value<'a>(&self) -> &'a [u8] {
        // SAFETY: as the caller promises.
        unsafe { Buffer { bytes: self.value, len: self.value_len }.bytes() }
    }
}

/// A pointer that a hook returns for Envoy to keep; it is a number and points to nothing.
pub(crate) const fn kept(number: NonZeroNumber) -> *const c_void {
    NonNull::<c_void>::without_provenance(number).as_ptr()
}

/// What [`kept`] takes.
pub(crate) type NonZeroNumber = core::num::NonZeroUsize;

/// The number in a pointer of [`kept`].
pub(crate) fn number(kept: *const c_void) -> usize {
    kept.addr()
}

/// Where a function of this process is, if there is one of this name.
pub(super) fn address(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name ends with a zero byte. A null handle means any library.
    NonNull::new(unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) })
}

pub(super) const NEW: &CStr = c"envoy_dynamic_module_callback_http_filter_config_scheduler_new";
pub(super) const COMMIT: &CStr =
    c"envoy_dynamic_module_callback_http_filter_config_scheduler_commit";
pub(super) const DELETE: &CStr =
    c"envoy_dynamic_module_callback_http_filter_config_scheduler_delete";
pub(super) const CALLOUT: &CStr = c"envoy_dynamic_module_callback_http_filter_config_http_callout";

/// Why Envoy did not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCalled {
    /// There is no such cluster, or Envoy takes no such request.
    Refused,
    /// No host of the cluster is healthy, or its circuit breaker is open.
    Failed,
}

/// True when Envoy offers all that calls need.
pub(crate) fn can_call() -> bool {
    [NEW, COMMIT, DELETE, CALLOUT].into_iter().all(|name| address(name).is_some())
}

type Opaque = *mut c_void;

unsafe extern "C" {
    /// Of the C library.
    fn dlsym(library: Opaque, name: *const core::ffi::c_char) -> Opaque;
    pub(crate) fn envoy_dynamic_module_callback_log(level: Level, text: Buffer);
    pub(crate) fn envoy_dynamic_module_callback_http_get_headers_size(
        stream: Opaque,
        kind: HeaderKind,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_http_get_headers(
        stream: Opaque,
        kind: HeaderKind,
        pairs: *mut HeaderPair,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_get_header(
        stream: Opaque,
        kind: HeaderKind,
        name: Buffer,
        value: *mut Buffer,
        index: usize,
        count: *mut usize,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_set_header(
        stream: Opaque,
        kind: HeaderKind,
        name: Buffer,
        value: Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_add_header(
        stream: Opaque,
        kind: HeaderKind,
        name: Buffer,
        value: Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_send_response(
        stream: Opaque,
        status: u32,
        headers: *const HeaderPair,
        count: usize,
        body: Buffer,
        details: Buffer,
    );
    pub(crate) fn envoy_dynamic_module_callback_http_send_response_headers(
        stream: Opaque,
        headers: *const HeaderPair,
        count: usize,
        is_last: bool,
    );
    pub(crate) fn envoy_dynamic_module_callback_http_filter_continue_decoding(stream: Opaque);
    pub(crate) fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        stream: Opaque,
        attribute: Attribute,
        value: *mut Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_get_attribute_int(
        stream: Opaque,
        attribute: Attribute,
        value: *mut u64,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_get_metadata_string(
        stream: Opaque,
        source: i32,
        namespace: Buffer,
        key: Buffer,
        value: *mut Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_get_metadata_number(
        stream: Opaque,
        source: i32,
        namespace: Buffer,
        key: Buffer,
        value: *mut f64,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_get_metadata_bool(
        stream: Opaque,
        source: i32,
        namespace: Buffer,
        key: Buffer,
        value: *mut bool,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_get_metadata_keys_count(
        stream: Opaque,
        source: i32,
        namespace: Buffer,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_http_get_metadata_keys(
        stream: Opaque,
        source: i32,
        namespace: Buffer,
        keys: *mut Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_set_filter_state_bytes(
        stream: Opaque,
        key: Buffer,
        value: Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_get_body_size(
        stream: Opaque,
        kind: i32,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_http_get_body_chunks_size(
        stream: Opaque,
        kind: i32,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_http_get_body_chunks(
        stream: Opaque,
        kind: i32,
        chunks: *mut Buffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_scheduler_new(stream: Opaque)
    -> Opaque;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
        scheduler: Opaque,
        event: u64,
    );
    pub(crate) fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: Opaque);
    pub(crate) fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        configuration: Opaque,
        name: Buffer,
        labels: *const Buffer,
        label_count: usize,
        metric: *mut usize,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        configuration: Opaque,
        name: Buffer,
        labels: *const Buffer,
        label_count: usize,
        metric: *mut usize,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_config_define_histogram(
        configuration: Opaque,
        name: Buffer,
        labels: *const Buffer,
        label_count: usize,
        metric: *mut usize,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_increment_counter(
        stream: Opaque,
        metric: usize,
        labels: *const Buffer,
        label_count: usize,
        by: u64,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_increment_gauge(
        stream: Opaque,
        metric: usize,
        labels: *const Buffer,
        label_count: usize,
        by: u64,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_decrement_gauge(
        stream: Opaque,
        metric: usize,
        labels: *const Buffer,
        label_count: usize,
        by: u64,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_set_gauge(
        stream: Opaque,
        metric: usize,
        labels: *const Buffer,
        label_count: usize,
        value: u64,
    ) -> i32;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_record_histogram_value(
        stream: Opaque,
        metric: usize,
        labels: *const Buffer,
        label_count: usize,
        value: u64,
    ) -> i32;
}
