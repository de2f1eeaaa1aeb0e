//! Calls to the host, through the ABI itself (proxy-wasm 0.2.1 and WASI preview 1). Clocks and
//! metrics are next to it.
//!
//! The SDK's `hostcalls` panic on an unexpected status (a trap takes the worker's VM down) and on a
//! header that is not UTF-8, take only text for names of shared data, send neither details nor a
//! gRPC status, and have no monotonic clock. Invariant: nothing here panics, and every failure of
//! the host is a value. Deliberately absent: the callbacks of the host; a module exports them.
#![allow(unsafe_code, reason = "a call across the ABI is unsafe by nature")]

use core::marker::PhantomData;
use core::ptr::null_mut;

use tollgate_core::{Span, Timestamp};
use tollgate_filter::host::Seed;

use crate::host_clock;
use crate::host_functions::{
    proxy_add_header_map_value, proxy_continue_stream, proxy_get_buffer_bytes,
    proxy_get_header_map_pairs, proxy_get_header_map_size, proxy_get_header_map_value,
    proxy_get_property, proxy_get_shared_data, proxy_http_call, proxy_log,
    proxy_replace_header_map_value, proxy_send_local_response, proxy_set_effective_context,
    proxy_set_property, proxy_set_shared_data, proxy_set_tick_period_milliseconds, random_get,
};
use crate::memory;
use tollgate_filter::host::calls::{Calls, HttpCall, NotSent};
use tollgate_filter::host::proxy::{Proxy, Unsupported};
use tollgate_filter::host::reply::Reply;
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_filter::host::streams::AnyNumbers;
use tollgate_filter::request::facts::RequestSource;
use tollgate_filter::wire::header_map::{HeaderMap, HeaderMapWriter};

/// The statuses that are distinguished; every other one is a failure.
pub(crate) const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;
const INTERNAL_FAILURE: u32 = 10;

const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const RESPONSE_TRAILERS: u32 = 3;
const CALL_RESPONSE_HEADERS: u32 = 6;
const RESPONSE_BODY: u32 = 1;
const CALL_RESPONSE_BODY: u32 = 4;
const PLUGIN_CONFIGURATION: u32 = 7;
const HTTP_REQUEST: u32 = 0;
const INFO_LEVEL: u32 = 2;
const WARN_LEVEL: u32 = 3;
const ERROR_LEVEL: u32 = 4;
const CRITICAL_LEVEL: u32 = 5;

/// The abilities of a module, which are its own and not the host's.
pub trait Module: Clone {
    /// See [`Proxy::READS_DOCUMENTS`].
    const READS_DOCUMENTS: bool;
    /// See [`Proxy::READS_BODIES`].
    const READS_BODIES: bool;
    /// See [`Proxy::UNSUPPORTED`].
    const UNSUPPORTED: Unsupported = Unsupported::NOTHING;
}

/// The host of this virtual machine, for the module `M`.
#[derive(Clone)]
pub struct Host<M>(PhantomData<M>);

impl<M: Module> Host<M> {
    /// The host.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M: Module> Default for Host<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Module> Proxy for Host<M> {
    const READS_DOCUMENTS: bool = M::READS_DOCUMENTS;
    const READS_BODIES: bool = M::READS_BODIES;
    const UNSUPPORTED: Unsupported = M::UNSUPPORTED;
    type Streams<T> = AnyNumbers<T>;

    fn monotonic(&self) -> Option<Timestamp> {
        host_clock::monotonic()
    }

    fn wall_clock(&self) -> Option<Timestamp> {
        host_clock::wall()
    }

    fn clock_offset(&self) -> Span {
        host_clock::offset()
    }

    fn set_clock_offset(&self, offset: Span) {
        host_clock::set_offset(offset);
    }

    fn random_seed(&self) -> Option<Seed> {
        let mut seed = Seed::default();
        // SAFETY: the host writes `seed.len()` bytes to `seed`.
        let status = unsafe { random_get(seed.as_mut_ptr(), seed.len()) };
        (status == OK).then_some(seed)
    }

    fn configuration(&self, len: usize) -> Vec<u8> {
        buffer(PLUGIN_CONFIGURATION, 0, len)
    }

    fn plugin_scope(&self) -> Vec<u8> {
        let name = property(b"plugin_name").unwrap_or_default();
        let root_id = property(b"plugin_root_id").unwrap_or_default();
        [name, root_id].join(&0)
    }

    fn log_error(&self, text: &str) {
        log(ERROR_LEVEL, text);
    }

    fn log_warning(&self, text: &str) {
        log(WARN_LEVEL, text);
    }

    fn log_info(&self, text: &str) {
        log(INFO_LEVEL, text);
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        // SAFETY: the host reads both during the call. A value that the host does not take appears
        // in no log.
        let _ =
            unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    }

    fn set_request_header(&self, name: &str, value: &str) {
        set_header(REQUEST_HEADERS, name, value);
    }

    fn set_response_header(&self, name: &str, value: &str) {
        set_header(RESPONSE_HEADERS, name, value);
    }

    fn response_status(&self) -> Option<u16> {
        let value = header(RESPONSE_HEADERS, b":status")?;
        core::str::from_utf8(&value).ok()?.parse().ok()
    }

    fn response_headers(&self) -> Option<HeaderMap> {
        headers(RESPONSE_HEADERS)
    }

    fn response_body(&self, from: usize, len: usize) -> Vec<u8> {
        buffer(RESPONSE_BODY, from, len)
    }

    fn response_trailers(&self) -> Option<HeaderMap> {
        headers(RESPONSE_TRAILERS)
    }

    fn enter(&self, id: u32) -> bool {
        // SAFETY: a plain number. The host returns "bad argument" for a stream that is gone.
        unsafe { proxy_set_effective_context(id) == OK }
    }

    fn add_response_header(&self, name: &str, value: &str) {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        // SAFETY: the host reads both during the call. A rejected line changes nothing for the
        // request.
        let _ = unsafe {
            proxy_add_header_map_value(
                RESPONSE_HEADERS,
                name.as_ptr(),
                name.len(),
                value.as_ptr(),
                value.len(),
            )
        };
    }

    fn reply(&self, reply: Reply<'_>) -> bool {
        let mut headers = HeaderMapWriter::default();
        reply.fields(&mut |name, value| headers.push(name, value.as_bytes()));
        let headers = headers.finish();
        let mut text = String::new();
        reply.write_details(&mut text);
        let len = text.len();
        reply.write_body(&mut text);
        let (details, body) = text.split_at_checked(len).unwrap_or_default();
        let Reply { status, grpc_status, .. } = reply;
        // SAFETY: the host reads all of them during the call.
        let status = unsafe {
            proxy_send_local_response(
                u32::from(status),
                details.as_ptr(),
                details.len(),
                body.as_ptr(),
                body.len(),
                headers.as_ptr(),
                headers.len(),
                grpc_status,
            )
        };
        status == OK
    }

    fn set_tick_ms(&self, ms: u32) {
        // SAFETY: plain numbers. The call has no failure in this host.
        let _ = unsafe { proxy_set_tick_period_milliseconds(ms) };
    }

    fn resume(&self, id: u32) {
        if self.enter(id) {
            // SAFETY: a plain number. The stream exists, so it continues.
            let _ = unsafe { proxy_continue_stream(HTTP_REQUEST) };
        }
    }

    fn request_bytes(&self) -> usize {
        let mut size = 0;
        // SAFETY: the host writes four bytes to `size`.
        let status = unsafe { proxy_get_header_map_size(REQUEST_HEADERS, &raw mut size) };
        if status == OK { size } else { 0 }
    }

    fn memory_growth(&self) -> i64 {
        memory::grown()
    }

    fn is_memory_short(&self) -> bool {
        memory::is_short()
    }
}

fn set_header(map: u32, name: &str, value: &str) {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    // SAFETY: the host reads both during the call. A rejected line changes nothing for the request.
    let _ = unsafe {
        proxy_replace_header_map_value(map, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
}

impl<M: Module> RequestSource for Host<M> {
    type Lines = HeaderMap;

    fn request_headers(&self) -> Option<HeaderMap> {
        headers(REQUEST_HEADERS)
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        property(b"source\0address")
    }

    fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        property(path)
    }
}

impl<M: Module> SharedData for Host<M> {
    fn get(&self, name: &[u8]) -> Stored {
        let (mut bytes, mut len, mut cas) = (null_mut(), 0, 0);
        // SAFETY: the host reads `name` and writes to the three live variables.
        let status = unsafe {
            let (bytes, len, cas) = (&raw mut bytes, &raw mut len, &raw mut cas);
            proxy_get_shared_data(name.as_ptr(), name.len(), bytes, len, cas)
        };
        match status {
            OK => Stored::Value(owned(bytes, len), cas),
            NOT_FOUND => Stored::Absent,
            _ => Stored::Unreachable,
        }
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        // SAFETY: the host reads both during the call.
        let status = unsafe {
            proxy_set_shared_data(name.as_ptr(), name.len(), value.as_ptr(), value.len(), cas)
        };
        match status {
            OK => Written::Done,
            CAS_MISMATCH => Written::Lost,
            _ => Written::Unreachable,
        }
    }
}

impl<M: Module> Calls for Host<M> {
    fn call(&self, call: &HttpCall<'_>) -> Result<u32, NotSent> {
        // The host keeps the whole body until the response was handed over.
        let HttpCall { cluster, headers, body, timeout_ms, most_body: _ } = call;
        let trailers = 0_u32.to_le_bytes(); // an empty map
        let mut number = 0;
        // SAFETY: the host reads all of them during the call and writes four bytes to `number`.
        let status = unsafe {
            proxy_http_call(
                cluster.as_ptr(),
                cluster.len(),
                headers.as_ptr(),
                headers.len(),
                body.as_ptr(),
                body.len(),
                trailers.as_ptr(),
                trailers.len(),
                *timeout_ms,
                &raw mut number,
            )
        };
        match status {
            OK => Ok(number),
            INTERNAL_FAILURE => Err(NotSent::Failed),
            _ => Err(NotSent::Refused),
        }
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        header(CALL_RESPONSE_HEADERS, name.as_bytes())
    }

    fn answer_body(&self, len: usize) -> Vec<u8> {
        buffer(CALL_RESPONSE_BODY, 0, len)
    }
}

/// One line in the host's log about an event that must never happen.
pub fn log_critical(text: &str) {
    log(CRITICAL_LEVEL, text);
}

fn log(level: u32, text: &str) {
    // SAFETY: the host reads `text` during the call. Its status changes nothing for us.
    let _ = unsafe { proxy_log(level, text.as_ptr(), text.len()) };
}

/// At most `len` bytes of one of the host's buffers, from its byte `from` on.
fn buffer(kind: u32, from: usize, len: usize) -> Vec<u8> {
    // SAFETY: `returned` passes pointers to live variables.
    returned(|bytes, got| unsafe { proxy_get_buffer_bytes(kind, from, len, bytes, got) })
        .unwrap_or_default()
}

/// One of the host's maps.
fn headers(map: u32) -> Option<HeaderMap> {
    // SAFETY: `returned` passes pointers to live variables.
    returned(|bytes, len| unsafe { proxy_get_header_map_pairs(map, bytes, len) })
        .map(HeaderMap::new)
}

/// The value of the header `name` of one of the host's maps.
fn header(map: u32, name: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: the host reads the name; `returned` passes pointers to live variables.
    returned(|bytes, len| unsafe {
        proxy_get_header_map_value(map, name.as_ptr(), name.len(), bytes, len)
    })
}

/// A property of the current context; the parts of its path have zero bytes between them.
fn property(path: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: the host reads `path`; `returned` passes pointers to live variables.
    returned(|bytes, len| unsafe { proxy_get_property(path.as_ptr(), path.len(), bytes, len) })
}

/// The bytes that a host call returns through its two pointers; `None` for any status but OK.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    let (mut bytes, mut len) = (null_mut(), 0);
    let status = call(&raw mut bytes, &raw mut len);
    (status == OK).then(|| owned(bytes, len))
}

/// Takes over the bytes that the host wrote into memory from our allocator.
fn owned(bytes: *mut u8, len: usize) -> Vec<u8> {
    if bytes.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the host got `bytes` from the export `malloc`, ours or the SDK's, which takes exactly
    // `len` bytes, aligned as bytes are, from the global allocator; it wrote all of them, and keeps
    // no pointer to them.
    unsafe { Vec::from_raw_parts(bytes, len, len) }
}
