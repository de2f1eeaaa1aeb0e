//! The hooks that Envoy calls. They only hand each call over to `hooks`.
//!
//! Envoy refuses a module that lacks one of these names, whether it calls it or not. Invariant: a
//! hook gives a pointer of Envoy on as the type that says how long it lives, and what it returns to
//! Envoy is a number.
#![allow(unsafe_code, reason = "a name that Envoy calls is unsafe by nature")]

use core::ffi::{c_char, c_void};
use core::ptr::null;

use super::imports::{Buffer, HeaderPair, NonZeroNumber, kept, number};
use super::{Configuration, Stream, lent};
use crate::hooks;

/// The version of the ABI that this module is written for. Envoy 1.38 and 1.39 log that theirs is
/// another one.
const VERSION: &core::ffi::CStr = c"v0.2.0";

type Opaque = *mut c_void;
type Kept = *const c_void;

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    if hooks::on_load() { VERSION.as_ptr() } else { null() }
}

/// # Safety
/// Envoy lends both buffers for the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    configuration: Opaque,
    name: Buffer,
    text: Buffer,
) -> Kept {
    // SAFETY: as Envoy promises.
    let (name, text) = unsafe { (name.bytes(), text.bytes()) };
    let made = hooks::on_configure(Configuration(configuration), name, text);
    made.and_then(NonZeroNumber::new).map_or(null(), kept)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(configuration: Kept) {
    hooks::on_configuration_end(number(configuration));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(configuration: Kept, stream: Opaque) -> Kept {
    lent::end();
    let id = hooks::on_stream(number(configuration), Stream(stream));
    // Envoy closes the stream for null. Numbers begin at 1.
    usize::try_from(id).ok().and_then(NonZeroNumber::new).map_or(null(), kept)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    _stream: Opaque,
    id: Kept,
    _is_last: bool,
) -> i32 {
    hooks::on_request_headers(stream_id(id))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    _stream: Opaque,
    _id: Kept,
    _is_last: bool,
) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(_: Opaque, _: Kept) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    _stream: Opaque,
    id: Kept,
    is_last: bool,
) -> i32 {
    hooks::on_response_headers(stream_id(id), is_last);
    0
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    _stream: Opaque,
    id: Kept,
    is_last: bool,
) -> i32 {
    hooks::on_response_body(stream_id(id), is_last);
    0
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    _stream: Opaque,
    id: Kept,
) -> i32 {
    hooks::on_response_trailers(stream_id(id));
    0
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(_stream: Opaque, id: Kept) {
    hooks::on_stream_end(stream_id(id));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(id: Kept) {
    hooks::on_stream_gone(stream_id(id));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(_: Opaque, _: Kept, _event: u64) {
    lent::end();
    hooks::on_wake();
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    configuration: Opaque,
    number_of_it: Kept,
    _event: u64,
) {
    hooks::on_configuration_wake(number(number_of_it), Configuration(configuration));
}

/// # Safety
/// Envoy lends both lists, and what they point to, for the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_callout_done(
    configuration: Opaque,
    number_of_it: Kept,
    call: u64,
    result: i32,
    headers: *const HeaderPair,
    header_count: usize,
    body: *const Buffer,
    chunk_count: usize,
) {
    const SUCCESS: i32 = 0;
    // SAFETY: as Envoy promises.
    let (headers, chunks) =
        unsafe { (lent_list(headers, header_count), lent_list(body, chunk_count)) };
    // SAFETY: as Envoy promises.
    let line = |pair: &HeaderPair| unsafe { (pair.name(), pair.value()) };
    let response = (result == SUCCESS).then(|| hooks::Response {
        headers: headers.iter().map(line).collect(),
        // SAFETY: as Envoy promises.
        body: chunks.iter().map(|chunk| unsafe { chunk.bytes() }).collect(),
    });
    let configuration = Configuration(configuration);
    hooks::on_call_done((number(number_of_it), configuration), call, response);
}

/// A list that Envoy lends for a call.
///
/// # Safety
/// It has this many elements.
const unsafe fn lent_list<'a, T>(at: *const T, count: usize) -> &'a [T] {
    if at.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(at, count) }
}

/// A hook of a stream begins: the number that `on_http_filter_new` returned.
fn stream_id(id: Kept) -> u32 {
    lent::end();
    u32::try_from(number(id)).unwrap_or_default()
}

// What follows is never called: this module starts no requests by streams and holds no body back.

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
    _stream: Opaque,
    _id: Kept,
    _call: u64,
    _result: i32,
    _headers: *const HeaderPair,
    _header_count: usize,
    _body: *const Buffer,
    _chunk_count: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(
    _stream: Opaque,
    _id: Kept,
    _call: u64,
    _headers: *const HeaderPair,
    _header_count: usize,
    _is_last: bool,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
    _stream: Opaque,
    _id: Kept,
    _call: u64,
    _body: *const Buffer,
    _chunk_count: usize,
    _is_last: bool,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
    _stream: Opaque,
    _id: Kept,
    _call: u64,
    _trailers: *const HeaderPair,
    _trailer_count: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(_: Opaque, _: Kept, _: u64) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    _stream: Opaque,
    _id: Kept,
    _call: u64,
    _reason: i32,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    _stream: Opaque,
    _id: Kept,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    _stream: Opaque,
    _id: Kept,
) {
}
