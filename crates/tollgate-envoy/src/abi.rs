//! What the host calls: the exports of the proxy-wasm ABI, and nothing but handing over to
//! [`Filter`].
//!
//! Our own and not the SDK's, because its dispatcher panics about a context that it does not know,
//! and a host does ask about such: a request that is answered after its client left has its
//! response seen by a context that was deleted. Invariant: none of these traps, whatever the host
//! calls, in any order, about any context. `exports.txt` names what the shipped module exports:
//! every callback costs each request some time.
#![allow(
    unsafe_code,
    reason = "a name that the host calls and memory that it takes are unsafe by nature"
)]

use std::alloc::{Layout, alloc};
use std::panic;
use std::ptr::null_mut;

use crate::host::{Host, log_critical};
use crate::memory;
use tollgate_filter::filter::{Filter, Flow};

thread_local! {
    /// The one filter of this virtual machine, which has one thread.
    static FILTER: Filter<Host> = const { Filter::new(Host) };
}

/// Hands a call over; `otherwise` is never the answer, but there is one.
fn filter<T>(otherwise: T, call: impl FnOnce(&Filter<Host>) -> T) -> T {
    FILTER.try_with(call).unwrap_or(otherwise)
}

/// Which version of the ABI this module speaks.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_abi_version_0_2_1() {}

/// Called once, before anything else.
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    panic::set_hook(Box::new(|panic| log_critical(&panic.to_string())));
}

/// Memory for what a host call returns, which takes it over; null when there is too little: the
/// host then answers its call with a failure.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(len: usize) -> *mut u8 {
    match Layout::array::<u8>(len) {
        // SAFETY: the layout is not empty.
        Ok(layout) if len > 0 && memory::has_room_for(len) => unsafe { alloc(layout) },
        _ => null_mut(),
    }
}

/// A context begins: a root of its own, or a stream of the root `parent`.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    filter((), |filter| filter.on_context_create(context, parent));
}

/// The root's configuration of `len` bytes; false refuses it.
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

/// The answer to a request of our own, which the context `context` made; 0 headers when there is
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
