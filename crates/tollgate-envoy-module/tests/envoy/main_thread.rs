//! Envoy's main thread: what it offers to a configuration, which the module looks up by name.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::{Buffer, Configuration, P, Pair, count};

/// A request that the module sent.
#[derive(Clone, Debug)]
pub struct Callout {
    pub number: u64,
    pub cluster: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub timeout_ms: u64,
}

impl Callout {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| &**value)
    }
}

/// Header lines and a body; `None` for a failure.
pub type Response<'a> = Option<(&'a [(&'a str, &'a str)], &'a [u8])>;

/// What Envoy has for a configuration.
#[derive(Default)]
pub struct Main {
    /// How often the main thread is to be woken for it.
    wakes: AtomicUsize,
    callouts: Mutex<Vec<Callout>>,
    numbers: AtomicUsize,
    has_ended: AtomicBool,
}

/// What `http_callout` returns.
pub const SENT: i32 = 0;
pub const NO_CLUSTER: i32 = 2;
pub const CANNOT_CREATE: i32 = 4;

thread_local! {
    /// False for an Envoy that offers nothing to configurations.
    static OFFERS: Cell<bool> = const { Cell::new(true) };
    static RESULT: AtomicI32 = const { AtomicI32::new(SENT) };
    /// Done by others while Envoy sends the next request, on this thread.
    static DURING_CALL: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    /// Done by others while this thread compiles its next policy: a policy of a server is checked
    /// for calls after it was read, and before it is stored.
    static DURING_COMPILATION: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Sets what others do while Envoy sends the next request, on this thread.
pub fn during_call(act: impl FnOnce() + 'static) {
    DURING_CALL.set(Some(Box::new(act)));
}

/// Sets what others do while this thread compiles its next policy of a server.
pub fn during_compilation(act: impl FnOnce() + 'static) {
    DURING_COMPILATION.set(Some(Box::new(act)));
}

/// Sets whether this thread is the main one of an Envoy that offers calls.
pub fn set_offers(offers: bool) {
    OFFERS.set(offers);
}

/// Sets what sending a request results in on this thread.
pub fn set_result(result: i32) {
    RESULT.with(|it| it.store(result, Ordering::Relaxed));
}

unsafe extern "C" {
    fn envoy_dynamic_module_on_http_filter_config_scheduled(c: P, n: *const c_void, e: u64);
    fn envoy_dynamic_module_on_http_filter_config_http_callout_done(
        c: P,
        n: *const c_void,
        id: u64,
        result: i32,
        headers: *const Pair,
        count: usize,
        body: *const Buffer,
        chunks: usize,
    );
}

impl Main {
    pub(super) fn leaked() -> &'static Self {
        Box::leak(Box::default())
    }

    pub(super) fn pointer(&self) -> P {
        (&raw const *self).cast_mut().cast()
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }
}

impl Configuration {
    /// Wakes the main thread, which is this one, as often as the module has asked for it; true
    /// when it was woken.
    pub fn run_main(&self) -> bool {
        let mut is_woken = false;
        while self.1.wakes.load(Ordering::SeqCst) > 0 {
            self.1.wakes.fetch_sub(1, Ordering::SeqCst);
            is_woken = true;
            // SAFETY: the configuration lives.
            unsafe {
                envoy_dynamic_module_on_http_filter_config_scheduled(self.1.pointer(), self.0, 0);
            }
        }
        is_woken
    }

    /// Requests without a response, the oldest first.
    pub fn callouts(&self) -> Vec<Callout> {
        self.1.callouts.lock().unwrap().clone()
    }

    /// The response to a request; `None` for a failure.
    pub fn answer(&self, number: u64, response: Response<'_>) {
        self.1.callouts.lock().unwrap().retain(|it| it.number != number);
        self.done(number, response);
    }

    /// The same about any number.
    pub fn done(&self, number: u64, response: Response<'_>) {
        let line = |(name, value): &(&str, &str)| {
            Pair(name.as_ptr(), name.len(), value.as_ptr(), value.len())
        };
        let (headers, body) = response.unwrap_or_default();
        let headers: Vec<Pair> = headers.iter().map(line).collect();
        let chunks: Vec<Buffer> = body.chunks(1_000).map(Buffer::of).collect();
        // SAFETY: all of it is lent for the call.
        unsafe {
            envoy_dynamic_module_on_http_filter_config_http_callout_done(
                self.1.pointer(),
                self.0,
                number,
                response.is_none().into(),
                headers.as_ptr(),
                headers.len(),
                chunks.as_ptr(),
                chunks.len(),
            );
        }
    }
}

fn main_of(pointer: P) -> &'static Main {
    // SAFETY: every one of this process was leaked.
    let main = unsafe { &*pointer.cast_const().cast::<Main>() };
    assert!(!main.has_ended.load(Ordering::SeqCst), "a call about a configuration that has ended");
    main
}

extern "C" fn scheduler_new(configuration: P) -> P {
    configuration
}

extern "C" fn scheduler_commit(scheduler: P, _event: u64) {
    // SAFETY: every one of this process was leaked.
    let main = unsafe { &*scheduler.cast_const().cast::<Main>() };
    main.wakes.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn scheduler_delete(_scheduler: P) {}

extern "C" fn callout(
    configuration: P,
    number: *mut u64,
    cluster: Buffer,
    headers: *const Pair,
    header_count: usize,
    body: Buffer,
    timeout_ms: u64,
) -> i32 {
    let main = main_of(configuration);
    DURING_CALL.take().into_iter().for_each(|act| act());
    let result = RESULT.with(|it| it.load(Ordering::Relaxed));
    if result == SENT {
        let next = main.numbers.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        let headers = super::pairs(headers, header_count);
        let cluster = String::from_utf8(cluster.bytes()).unwrap();
        let callout = Callout { number: next, cluster, headers, body: body.bytes(), timeout_ms };
        main.callouts.lock().unwrap().push(callout);
        // SAFETY: the module has room for one.
        unsafe { number.write(next) };
    }
    result
}

extern "C" fn add(c: P, metric: usize, _l: *const Buffer, _n: usize, by: u64) -> i32 {
    main_of(c);
    count(metric, by as i64)
}

extern "C" fn subtract(c: P, metric: usize, _l: *const Buffer, _n: usize, by: u64) -> i32 {
    main_of(c);
    count(metric, -(by as i64))
}

extern "C" fn set(c: P, _metric: usize, _l: *const Buffer, _n: usize, _by: u64) -> i32 {
    main_of(c);
    0
}

/// The C library's, in this program: the functions for a configuration, and none of those that an
/// Envoy of 1.38 is known by. The standard library does without the functions that it looks up.
/// ThreadSanitizer has its own, which it calls before any code of ours can run.
#[cfg_attr(not(tollgate_sanitized), unsafe(no_mangle))]
#[cfg_attr(tollgate_sanitized, expect(dead_code))]
extern "C" fn dlsym(_library: P, name: *const c_char) -> P {
    // SAFETY: a name ends with a zero byte.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(name) = name.strip_prefix(b"envoy_dynamic_module_callback_http_filter_config_") else {
        return null_mut();
    };
    if !OFFERS.get() {
        return null_mut();
    }
    if name == b"scheduler_new" {
        DURING_COMPILATION.take().into_iter().for_each(|act| act());
    }
    match name {
        b"scheduler_new" => scheduler_new as extern "C" fn(P) -> P as P,
        b"scheduler_commit" => scheduler_commit as extern "C" fn(P, u64) as P,
        b"scheduler_delete" => scheduler_delete as extern "C" fn(P) as P,
        b"http_callout" => callout as *const () as P,
        b"increment_counter" | b"increment_gauge" => add as *const () as P,
        b"decrement_gauge" => subtract as *const () as P,
        b"set_gauge" | b"record_histogram_value" => set as *const () as P,
        _ => null_mut(),
    }
}
