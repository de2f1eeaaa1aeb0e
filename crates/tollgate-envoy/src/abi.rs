//! The exports of the proxy-wasm ABI, which the host calls. They only hand each call over to
//! [`Filter`].
//!
//! These are our own and not the SDK's, because its dispatcher panics on a context that it does not
//! know. A host does call about such contexts: when a client leaves before its response, the host
//! passes the response to a context that was deleted. Invariant: no export traps, whatever the host
//! calls, in any order, about any context. `exports.txt` names the exports of the shipped modules,
//! and `exports_full.txt` those of the full one alone: every callback costs each request some time.
#![allow(
    unsafe_code,
    reason = "a name that the host calls and memory that it takes are unsafe by nature"
)]

use std::alloc::{Layout, alloc};
use std::panic;
use std::ptr::null_mut;

use tollgate_filter::filter::{Filter, Flow};
use tollgate_filter::host::proxy::Unsupported;
use tollgate_wasm_host::host::{Host, Module, log_critical};
use tollgate_wasm_host::memory;

/// This module.
#[derive(Clone)]
struct Tollgate;

impl Module for Tollgate {
    const READS_DOCUMENTS: bool = cfg!(feature = "document");
    const READS_BODIES: bool = cfg!(feature = "body");
    const UNSUPPORTED: Unsupported = Unsupported {
        waiting: if cfg!(feature = "waiting") { None } else { Some(NO_WAITING) },
        calls: if cfg!(feature = "calls") { None } else { Some(NO_CALLS) },
        parts: None,
    };
}

/// The messages of the lean module.
const NO_WAITING: &str = "this module holds no requests; load tollgate-envoy-slim.wasm";
const NO_CALLS: &str = "this module sends no requests of its own; load tollgate-envoy-slim.wasm";

thread_local! {
    /// The one filter of this virtual machine, which has one thread.
    static FILTER: Filter<Host<Tollgate>> = const { Filter::new(Host::new()) };
}

/// Hands a call over. `otherwise` is the return value when there is no filter, which never happens.
fn filter<T>(otherwise: T, call: impl FnOnce(&Filter<Host<Tollgate>>) -> T) -> T {
    FILTER.try_with(call).unwrap_or(otherwise)
}

/// The ABI version of this module.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_abi_version_0_2_1() {}

/// Called once, before anything else.
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    panic::set_hook(Box::new(|panic| log_critical(&panic.to_string())));
}

/// Allocates memory for the result of a host call, which takes it over. Null when there is too
/// little memory; the host then fails its call.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(len: usize) -> *mut u8 {
    match Layout::array::<u8>(len) {
        // SAFETY: the layout is not empty.
        Ok(layout) if len > 0 && memory::has_room_for(len) => unsafe { alloc(layout) },
        _ => null_mut(),
    }
}

/// A context begins: a root, or a stream of the root `parent`.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    filter((), |filter| filter.on_context_create(context, parent));
}

/// Reads the root's configuration of `len` bytes; false rejects it.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_configure(root: u32, len: usize) -> u32 {
    filter(false, |filter| filter.on_configure(root, len)).into()
}

/// The root's timer.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_tick(root: u32) {
    filter((), |filter| filter.on_tick(root));
}

/// A request.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_request_headers(stream: u32, _count: u32, _end: u32) -> u32 {
    filter(Flow::Continue, |filter| filter.on_request_headers(stream)).number()
}

/// Its response.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_response_headers(stream: u32, _count: u32, _end: u32) -> u32 {
    filter((), |filter| filter.on_response_headers(stream));
    Flow::Continue.number()
}

/// A piece of the response's body, of `len` bytes.
#[cfg(feature = "body")]
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_response_body(stream: u32, len: usize, is_last: u32) -> u32 {
    filter((), |filter| filter.on_response_body(stream, len, is_last != 0));
    Flow::Continue.number()
}

/// The response's trailers.
#[cfg(feature = "body")]
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_response_trailers(stream: u32, _count: u32) -> u32 {
    filter((), |filter| filter.on_response_trailers(stream));
    Flow::Continue.number()
}

/// The response to a request of our own, which the context `context` sent; 0 headers when there is
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_http_call_response(
    context: u32,
    call: u32,
    _headers: u32,
    body_len: usize,
    _trailers: u32,
) {
    filter((), |filter| filter.on_call_answered(context, call, body_len));
}

/// A context ends.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_delete(context: u32) {
    filter((), |filter| filter.on_delete(context));
}
