//! An Envoy of the tests: the callbacks of the ABI over streams in memory.
//!
//! As the real one it calls further hooks while it sends a response or resumes a stream, the last
//! ones of the stream too. A stream's memory stays until the test ends, so a call about one that is
//! gone is found out and not undefined.
#![allow(unsafe_code, reason = "the other side of a C ABI")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test fails by a panic"
)]

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tollgate_envoy_module as _;

pub mod main_thread;

use main_thread::Main;

type P = *mut c_void;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Buffer(*const u8, usize);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pair(*const u8, usize, *const u8, usize);

impl Buffer {
    fn of(bytes: &[u8]) -> Self {
        Self(bytes.as_ptr(), bytes.len())
    }

    fn bytes(&self) -> Vec<u8> {
        if self.1 == 0 {
            return vec![];
        }
        // SAFETY: the module lends them for the call.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.to_vec()
    }
}

pub type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// A response that the module sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub status: u32,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub details: String,
}

/// A value in the metadata of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Set {
    Text(&'static str),
    Number(f64),
    Truth(bool),
    /// A list, an object or null.
    Other,
}

/// A stream.
pub struct Stream {
    /// What other filters have set: the filter, the name, the value.
    pub metadata: RefCell<Vec<(&'static str, &'static str, Set)>>,
    /// How often the module has asked for it.
    pub asked: Cell<usize>,
    pub request: Lines,
    pub response: RefCell<Lines>,
    pub body: Vec<u8>,
    pub address: String,
    /// The number of header lines that it claims to have, where that is not the truth.
    pub claimed: Cell<Option<usize>>,
    /// It ends inside the call that answers or resumes it.
    pub ends_inside: bool,
    pub sent: RefCell<Option<Sent>>,
    pub resumed: RefCell<u32>,
    pub states: RefCell<Vec<(String, String)>>,
    pub id: RefCell<*const c_void>,
    pub has_ended: RefCell<bool>,
}

unsafe extern "C" {
    fn envoy_dynamic_module_on_program_init() -> *const c_char;
    fn envoy_dynamic_module_on_http_filter_config_new(c: P, n: Buffer, t: Buffer) -> *const c_void;
    fn envoy_dynamic_module_on_http_filter_config_destroy(c: *const c_void);
    fn envoy_dynamic_module_on_http_filter_new(c: *const c_void, s: P) -> *const c_void;
    fn envoy_dynamic_module_on_http_filter_request_headers(s: P, i: *const c_void, e: bool) -> i32;
    fn envoy_dynamic_module_on_http_filter_response_headers(s: P, i: *const c_void, e: bool)
    -> i32;
    fn envoy_dynamic_module_on_http_filter_response_body(s: P, i: *const c_void, e: bool) -> i32;
    fn envoy_dynamic_module_on_http_filter_response_trailers(s: P, i: *const c_void) -> i32;
    fn envoy_dynamic_module_on_http_filter_stream_complete(s: P, i: *const c_void);
    fn envoy_dynamic_module_on_http_filter_destroy(i: *const c_void);
    fn envoy_dynamic_module_on_http_filter_scheduled(s: P, i: *const c_void, e: u64);
}

/// What one thread's streams said, and its wakes.
static LOG: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());
static AFTER_THE_END: AtomicUsize = AtomicUsize::new(0);
/// Each with the configuration that has defined it, and its name.
static COUNTS: Mutex<Vec<(usize, String, i64)>> = Mutex::new(Vec::new());

thread_local! {
    /// The streams of this thread that were woken.
    static WAKES: (Sender<usize>, Receiver<usize>) = channel();
    static SCHEDULERS: Cell<i64> = const { Cell::new(0) };
    static SCHEDULERS_MADE: Cell<i64> = const { Cell::new(0) };
    /// Seconds that this thread's clock is ahead of the machine's.
    static AHEAD_S: Cell<i64> = const { Cell::new(0) };
}

/// Loads the module; the version of its ABI, and `None` when it refuses.
pub fn load() -> Option<String> {
    // SAFETY: no argument; the result is null or a constant of the module.
    let version = unsafe { envoy_dynamic_module_on_program_init() };
    // SAFETY: as above.
    let text = (!version.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(version) });
    text.map(|text| text.to_str().unwrap().to_owned())
}

/// A configuration; `None` when the module rejects it.
pub struct Configuration(*const c_void, &'static Main);

// SAFETY: it is a number of the module.
unsafe impl Sync for Configuration {}
// SAFETY: it is a number of the module.
unsafe impl Send for Configuration {}

impl Configuration {
    pub fn new(text: &str) -> Option<Self> {
        let main = Main::leaked();
        // SAFETY: lent for the call; what is lent for longer is never freed.
        let made = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                main.pointer(),
                Buffer::of(b"tollgate"),
                Buffer::of(text.as_bytes()),
            )
        };
        (!made.is_null()).then_some(Self(made, main))
    }

    /// A stream begins.
    pub fn open(&self, stream: Stream) -> &'static Stream {
        let stream: &'static Stream = Box::leak(Box::new(stream));
        // SAFETY: the stream is never freed.
        let id = unsafe { envoy_dynamic_module_on_http_filter_new(self.0, stream.pointer()) };
        assert!(!id.is_null());
        stream.id.replace(id);
        stream
    }
}

impl Configuration {
    /// It ends, on this thread.
    pub fn destroy(&self) {
        // SAFETY: it is the module's own number.
        unsafe { envoy_dynamic_module_on_http_filter_config_destroy(self.0) };
        self.1.end();
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl Stream {
    /// A request with these headers.
    pub fn get(headers: &[(&str, &str)]) -> Self {
        let pseudo = [(":method", "GET"), (":path", "/"), (":authority", "example.com")];
        let line =
            |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Self {
            metadata: RefCell::default(),
            asked: Cell::default(),
            request: pseudo.iter().chain(headers).map(line).collect(),
            response: RefCell::new(vec![(b":status".to_vec(), b"200".to_vec())]),
            body: vec![],
            address: "192.0.2.1:4711".into(),
            claimed: Cell::new(None),
            ends_inside: false,
            sent: RefCell::default(),
            resumed: RefCell::default(),
            states: RefCell::default(),
            id: RefCell::new(std::ptr::null()),
            has_ended: RefCell::default(),
        }
    }

    fn pointer(&self) -> P {
        (&raw const *self).cast_mut().cast()
    }

    fn id(&self) -> *const c_void {
        *self.id.borrow()
    }

    /// The request's headers come; what the module returns.
    pub fn request(&self) -> i32 {
        // SAFETY: the stream lives.
        unsafe {
            envoy_dynamic_module_on_http_filter_request_headers(self.pointer(), self.id(), true)
        }
    }

    pub fn response(&self) {
        // SAFETY: the stream lives.
        unsafe {
            envoy_dynamic_module_on_http_filter_response_headers(self.pointer(), self.id(), false);
        }
    }

    pub fn response_body(&self, is_last: bool) {
        // SAFETY: the stream lives.
        unsafe {
            envoy_dynamic_module_on_http_filter_response_body(self.pointer(), self.id(), is_last);
        }
    }

    pub fn trailers(&self) {
        // SAFETY: the stream lives.
        unsafe { envoy_dynamic_module_on_http_filter_response_trailers(self.pointer(), self.id()) };
    }

    pub fn complete(&self) {
        // SAFETY: the stream lives.
        unsafe { envoy_dynamic_module_on_http_filter_stream_complete(self.pointer(), self.id()) };
    }

    pub fn destroy(&self) {
        self.has_ended.replace(true);
        // SAFETY: the number is the module's own.
        unsafe { envoy_dynamic_module_on_http_filter_destroy(self.id()) };
    }

    /// Both of its last hooks.
    pub fn end(&self) {
        self.complete();
        self.destroy();
    }

    pub fn scheduled(&self) {
        // SAFETY: the stream lives.
        unsafe { envoy_dynamic_module_on_http_filter_scheduled(self.pointer(), self.id(), 0) };
    }

    pub fn response_header(&self, name: &str) -> Option<String> {
        let response = self.response.borrow();
        let line = response.iter().find(|(it, _)| it == name.as_bytes());
        line.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
    }
}

/// Waits until a stream of this thread was woken.
pub fn wait_for_wake() {
    WAKES.with(|(_, wakes)| wakes.recv_timeout(Duration::from_secs(30))).expect("no wake");
}

/// Wakes a stream of this thread as soon as one is to be woken; false when none is for this long.
pub fn run_next_wake(most: Duration) -> bool {
    let woken = WAKES.with(|(_, wakes)| wakes.recv_timeout(most));
    wake(woken.ok());
    woken.is_ok()
}

/// Wakes the streams of this thread that are to be woken and live.
pub fn run_wakes() {
    let woken: Vec<usize> = WAKES.with(|(_, wakes)| wakes.try_iter().collect());
    wake(woken);
}

fn wake(woken: impl IntoIterator<Item = usize>) {
    for pointer in woken {
        // SAFETY: every stream of this process was leaked.
        let stream = unsafe { &*std::ptr::with_exposed_provenance::<Stream>(pointer) };
        if !*stream.has_ended.borrow() {
            stream.scheduled();
        }
    }
}

/// Lines of the log at this level that contain `text`.
pub fn logged(level: i32, text: &str) -> usize {
    let log = LOG.lock().unwrap();
    log.iter().filter(|(at, line)| *at == level && line.contains(text)).count()
}

/// The errors in the log.
pub fn errors() -> Vec<String> {
    let log = LOG.lock().unwrap();
    log.iter().filter(|(at, _)| *at == 4).map(|(_, line)| line.clone()).collect()
}

/// Handles that this thread made and did not delete.
pub fn schedulers() -> i64 {
    SCHEDULERS.get()
}

/// Handles that this thread made.
pub fn schedulers_made() -> i64 {
    SCHEDULERS_MADE.get()
}

/// Puts the monotonic clock of this thread forward.
pub fn let_pass(seconds: i64) {
    AHEAD_S.set(AHEAD_S.get() + seconds);
}

#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

/// Takes the place of the C library's function in this program, as `dlsym` of the main thread does.
///
/// # Safety
/// As for the C function: `out` points to a time that may be written.
#[cfg_attr(not(tollgate_sanitized), unsafe(no_mangle))]
#[cfg_attr(tollgate_sanitized, expect(dead_code))]
unsafe extern "C" fn clock_gettime(clock: i32, out: *mut TimeSpec) -> i32 {
    const MONOTONIC: i32 = 1;
    #[cfg(target_arch = "x86_64")]
    const NUMBER: i64 = 228;
    #[cfg(target_arch = "aarch64")]
    const NUMBER: i64 = 113;
    // SAFETY: the system's function of this number has these arguments.
    let status = unsafe { syscall(NUMBER, clock, out) };
    if status == 0 && clock == MONOTONIC {
        // SAFETY: it was just written.
        unsafe { (*out).seconds += AHEAD_S.get() };
    }
    status as i32
}

/// Calls about streams that had ended.
pub fn calls_after_the_end() -> usize {
    AFTER_THE_END.load(Ordering::SeqCst)
}

impl Configuration {
    /// The same of what this configuration has defined.
    pub fn counted(&self, text: &str) -> i64 {
        let (counts, of) = (COUNTS.lock().unwrap(), self.1.pointer().expose_provenance());
        let its = counts.iter().filter(|(by, name, _)| *by == of && name.contains(text));
        its.map(|(.., count)| count).sum()
    }
}

/// The sum of the counters and gauges whose names contain `text`.
pub fn counted(text: &str) -> i64 {
    let counts = COUNTS.lock().unwrap();
    counts.iter().filter(|(_, name, _)| name.contains(text)).map(|(.., count)| count).sum()
}

fn stream(pointer: P) -> &'static Stream {
    // SAFETY: every stream of this process was leaked.
    let stream = unsafe { &*pointer.cast_const().cast::<Stream>() };
    if *stream.has_ended.borrow() {
        AFTER_THE_END.fetch_add(1, Ordering::SeqCst);
    }
    stream
}

fn lines(stream: &Stream, kind: i32) -> Lines {
    match kind {
        0 => stream.request.clone(),
        2 => stream.response.borrow().clone(),
        _ => vec![],
    }
}

fn pairs(at: *const Pair, count: usize) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    // SAFETY: the module lends them for the call.
    let all = unsafe { std::slice::from_raw_parts(at, count) };
    let line = |Pair(name, name_len, value, value_len): &Pair| {
        (text(Buffer(*name, *name_len).bytes()), text(Buffer(*value, *value_len).bytes()))
    };
    all.iter().map(line).collect()
}

/// A block that the module keeps a view of until its hook ends.
fn lend(bytes: &[u8]) -> Buffer {
    Buffer::of(Box::leak(bytes.to_vec().into_boxed_slice()))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_log(level: i32, text: Buffer) {
    LOG.lock().unwrap().push((level, String::from_utf8(text.bytes()).unwrap()));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_headers_size(s: P, kind: i32) -> usize {
    let stream = stream(s);
    stream.claimed.get().unwrap_or_else(|| lines(stream, kind).len())
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_headers(
    s: P,
    kind: i32,
    out: *mut Pair,
) -> bool {
    for (i, (name, value)) in lines(stream(s), kind).iter().enumerate() {
        let (name, value) = (lend(name), lend(value));
        // SAFETY: the module has room for as many as Envoy reported.
        unsafe { out.add(i).write(Pair(name.0, name.1, value.0, value.1)) };
    }
    true
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_header(
    s: P,
    kind: i32,
    name: Buffer,
    out: *mut Buffer,
    index: usize,
    _count: *mut usize,
) -> bool {
    let name = name.bytes();
    let lines = lines(stream(s), kind);
    let found = lines.iter().filter(|(it, _)| *it == name).nth(index);
    // SAFETY: the module has room for one.
    found.map(|(_, value)| unsafe { out.write(lend(value)) }).is_some()
}

fn set(s: P, kind: i32, name: &Buffer, value: &Buffer, replaces: bool) -> bool {
    let mut lines = stream(s).response.borrow_mut();
    if kind == 2 {
        let name = name.bytes();
        lines.retain(|(it, _)| !(replaces && *it == name));
        lines.push((name, value.bytes()));
    }
    kind == 2
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_set_header(
    s: P,
    k: i32,
    n: Buffer,
    v: Buffer,
) -> bool {
    set(s, k, &n, &v, true)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_add_header(
    s: P,
    k: i32,
    n: Buffer,
    v: Buffer,
) -> bool {
    set(s, k, &n, &v, false)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response(
    s: P,
    status: u32,
    headers: *const Pair,
    count: usize,
    body: Buffer,
    details: Buffer,
) {
    let stream = stream(s);
    let text = |bytes: &Buffer| String::from_utf8(bytes.bytes()).unwrap();
    let (headers, body, details) = (pairs(headers, count), text(&body), text(&details));
    stream.sent.replace(Some(Sent { status, headers, body, details }));
    if stream.ends_inside {
        stream.end();
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_send_response_headers(
    s: P,
    headers: *const Pair,
    count: usize,
    _is_last: bool,
) {
    let headers = pairs(headers, count);
    let sent = Sent { status: 200, headers, body: String::new(), details: String::new() };
    stream(s).sent.replace(Some(sent));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_continue_decoding(s: P) {
    let stream = stream(s);
    stream.resumed.replace_with(|count| *count + 1);
    if stream.ends_inside {
        stream.response();
        stream.end();
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
    s: P,
    id: i32,
    out: *mut Buffer,
) -> bool {
    // SAFETY: the module has room for one.
    (id == 24).then(|| unsafe { out.write(lend(stream(s).address.as_bytes())) }).is_some()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_get_attribute_int(
    s: P,
    id: i32,
    out: *mut u64,
) -> bool {
    // SAFETY: the module has room for one.
    (id == 21).then(|| unsafe { out.write(stream(s).body.len() as u64) }).is_some()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_keys_count(
    _s: P,
    _k: i32,
    _n: Buffer,
) -> usize {
    0
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_keys(
    _s: P,
    _source: i32,
    _namespace: Buffer,
    _keys: *mut Buffer,
) -> bool {
    false
}

/// The value in the metadata of the stream, if `read` takes its type. Envoy logs an error for
/// another one.
fn metadata<T>(
    s: P,
    source: i32,
    (namespace, key): (&Buffer, &Buffer),
    read: impl FnOnce(&Set) -> Option<T>,
) -> Option<T> {
    let stream = stream(s);
    stream.asked.set(stream.asked.get() + 1);
    let all = stream.metadata.borrow();
    let is_it = |(of, name, _): &&(&str, &str, Set)| {
        source == 0 && of.as_bytes() == namespace.bytes() && name.as_bytes() == key.bytes()
    };
    let (_, name, value) = all.iter().find(is_it)?;
    let found = read(value);
    if found.is_none() {
        LOG.lock().unwrap().push((4, format!("key {name} is not one")));
    }
    found
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_string(
    s: P,
    source: i32,
    namespace: Buffer,
    key: Buffer,
    out: *mut Buffer,
) -> bool {
    let text = metadata(s, source, (&namespace, &key), |value| match value {
        Set::Text(text) => Some(lend(text.as_bytes())),
        Set::Number(_) | Set::Truth(_) | Set::Other => None,
    });
    // SAFETY: the module has room for one.
    text.map(|text| unsafe { out.write(text) }).is_some()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_number(
    s: P,
    source: i32,
    namespace: Buffer,
    key: Buffer,
    out: *mut f64,
) -> bool {
    let number = metadata(s, source, (&namespace, &key), |value| match value {
        Set::Number(number) => Some(*number),
        Set::Text(_) | Set::Truth(_) | Set::Other => None,
    });
    // SAFETY: the module has room for one.
    number.map(|number| unsafe { out.write(number) }).is_some()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_metadata_bool(
    s: P,
    source: i32,
    namespace: Buffer,
    key: Buffer,
    out: *mut bool,
) -> bool {
    let truth = metadata(s, source, (&namespace, &key), |value| match value {
        Set::Truth(truth) => Some(*truth),
        Set::Text(_) | Set::Number(_) | Set::Other => None,
    });
    // SAFETY: the module has room for one.
    truth.map(|truth| unsafe { out.write(truth) }).is_some()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_set_filter_state_bytes(
    s: P,
    k: Buffer,
    v: Buffer,
) -> bool {
    let text = |bytes: &Buffer| String::from_utf8(bytes.bytes()).unwrap();
    stream(s).states.borrow_mut().push((text(&k), text(&v)));
    true
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_body_size(s: P, _kind: i32) -> usize {
    stream(s).body.len()
}

/// In pieces of three bytes.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_body_chunks_size(s: P, _kind: i32) -> usize {
    stream(s).body.chunks(3).len()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_get_body_chunks(
    s: P,
    _kind: i32,
    out: *mut Buffer,
) -> bool {
    for (i, chunk) in stream(s).body.chunks(3).enumerate() {
        // SAFETY: the module has room for as many as Envoy reported.
        unsafe { out.add(i).write(lend(chunk)) };
    }
    true
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_new(s: P) -> P {
    let pointer = (&raw const *stream(s)).expose_provenance();
    SCHEDULERS.set(SCHEDULERS.get() + 1);
    SCHEDULERS_MADE.set(SCHEDULERS_MADE.get() + 1);
    let wakes = WAKES.with(|(wakes, _)| wakes.clone());
    Box::into_raw(Box::new((wakes, pointer))).cast()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
    scheduler: P,
    _event: u64,
) {
    // SAFETY: it is not deleted yet.
    let (wakes, pointer) = unsafe { &*scheduler.cast::<(Sender<usize>, usize)>() };
    wakes.send(*pointer).ok();
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: P) {
    SCHEDULERS.set(SCHEDULERS.get() - 1);
    // SAFETY: it is deleted once.
    drop(unsafe { Box::from_raw(scheduler.cast::<(Sender<usize>, usize)>()) });
}

fn define(by: P, name: &Buffer, out: *mut usize) -> i32 {
    let mut counts = COUNTS.lock().unwrap();
    counts.push((by.expose_provenance(), String::from_utf8(name.bytes()).unwrap(), 0));
    // SAFETY: the module has room for one.
    unsafe { out.write(counts.len()) };
    0
}

fn count(metric: usize, by: i64) -> i32 {
    let mut counts = COUNTS.lock().unwrap();
    counts[metric - 1].2 += by;
    0
}

macro_rules! definitions {
    ($($name:ident),*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(c: P, name: Buffer, _l: *const Buffer, _n: usize, out: *mut usize) -> i32 {
            define(c, &name, out)
        }
    )* };
}

definitions!(
    envoy_dynamic_module_callback_http_filter_config_define_counter,
    envoy_dynamic_module_callback_http_filter_config_define_gauge,
    envoy_dynamic_module_callback_http_filter_config_define_histogram
);

macro_rules! counters {
    ($($name:ident: $delta:expr),*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(s: P, metric: usize, _l: *const Buffer, _n: usize, by: u64) -> i32 {
            stream(s);
            count(metric, ($delta)(by as i64))
        }
    )* };
}

counters!(
    envoy_dynamic_module_callback_http_filter_increment_counter: |by| by,
    envoy_dynamic_module_callback_http_filter_increment_gauge: |by| by,
    envoy_dynamic_module_callback_http_filter_decrement_gauge: |by: i64| -by,
    envoy_dynamic_module_callback_http_filter_set_gauge: |_| 0,
    envoy_dynamic_module_callback_http_filter_record_histogram_value: |_| 0
);
