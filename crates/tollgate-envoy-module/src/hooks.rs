//! What each call of Envoy does, behind a guard against panics.
//!
//! Invariant: a panic ends here. It is logged, the request that it happened in is answered with
//! 503, and other streams go on. Not here: pointers.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use crate::abi::{self, Level, Stream, log};
use crate::calls;
pub(crate) use crate::calls::Response;
use crate::configuration::Configuration;
use crate::context::Subject;
use crate::timer::{self, Sleeper};
use crate::worker::{self, Worker};

/// What becomes of the stream that a hook was about when a panic left it.
#[derive(Clone, Copy)]
enum Panicked {
    /// Its request is answered with 503, and the one of this id.
    Fails(u32),
    /// Its response goes on, or it has ended.
    GoesOn,
}

/// Runs a hook; `None` after a panic.
fn guarded<T>(panicked: Panicked, hook: impl FnOnce(&Worker) -> T) -> Option<T> {
    worker::with(|worker| {
        let before = worker.state();
        let result = panic::catch_unwind(AssertUnwindSafe(|| hook(worker)));
        if let Err(panic) = &result {
            report(&**panic);
            let fails = match panicked {
                Panicked::Fails(id) => Some(id),
                Panicked::GoesOn => None,
            };
            worker.recover(before, fails);
            finish(worker, before);
        }
        result.ok()
    })
    .flatten()
}

/// What waits for the end of a hook that a panic has left, and the next tick, are still due.
/// Another panic costs the request that it happened in, and the rest goes on. This ends: what a
/// panic has left is not there for the next try, and a request is answered once.
fn finish(worker: &Worker, before: (u32, Subject)) {
    while let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| worker.finish())) {
        report(&*panic);
        worker.recover(before, Some(NONE));
        if !worker.has_actions() {
            break;
        }
    }
}

fn report(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    log(Level::Critical, &format!("tollgate: a hook was left by a panic: {text}"));
}

/// Envoy loads the module; false refuses that.
pub(crate) fn on_load() -> bool {
    let is_known = abi::is_known();
    if !is_known {
        log(
            Level::Error,
            "tollgate: the dynamic module needs Envoy 1.38 or later; use the wasm module",
        );
    }
    is_known
}

/// Reads a configuration; returns its number, and `None` rejects it.
pub(crate) fn on_configure(envoy: abi::Configuration, name: &[u8], text: &[u8]) -> Option<usize> {
    let main = worker::with(Worker::number)?;
    let configuration = Configuration::enter(name, text, main);
    let number = configuration.number;
    if guarded(Panicked::GoesOn, |worker| worker.check(&configuration, envoy)) == Some(true) {
        return Some(number);
    }
    on_configuration_end(number);
    None
}

/// A configuration ends, with its last stream. Envoy lets no hook about it begin any more.
pub(crate) fn on_configuration_end(number: usize) {
    Configuration::end(number, worker::with(Worker::number));
    guarded(Panicked::GoesOn, Worker::end_roots);
}

/// The main thread is woken for a configuration.
pub(crate) fn on_configuration_wake(number: usize, envoy: abi::Configuration) {
    let of = (number, envoy);
    if guarded(Panicked::Fails(NONE), |worker| worker.wake_main(of)).is_none() {
        timer::wake(Sleeper::Main(number));
    }
}

/// A call of a configuration has its response, or none will come.
pub(crate) fn on_call_done(
    (number, envoy): (usize, abi::Configuration),
    call: u64,
    response: Option<Response<'_>>,
) {
    calls::done(number, call, response.as_ref());
    let of = (number, envoy);
    if guarded(Panicked::Fails(NONE), |worker| worker.deliver_all(of)).is_none() {
        // There may be more mail, also of others.
        timer::wake(Sleeper::Main(number));
    }
    calls::end_call(number, call);
}

/// A stream begins; returns its id, and 0 when its thread is ending or has too many.
pub(crate) fn on_stream(configuration: usize, stream: Stream) -> u32 {
    let id = worker::with(|worker| worker.admit(configuration, stream)).flatten();
    if let Some(id) = id {
        guarded(Panicked::GoesOn, |worker| worker.begin(id, configuration));
    }
    id.unwrap_or_default()
}

/// No stream has this id.
const NONE: u32 = u32::MAX;

/// Decides a request; returns the ABI's number for what becomes of it.
pub(crate) fn on_request_headers(id: u32) -> i32 {
    const STOP: i32 = 4;
    let flow = guarded(Panicked::Fails(id), |worker| worker.request(id));
    flow.map_or(STOP, |flow| i32::try_from(flow.number()).unwrap_or(STOP))
}

/// The response to a request comes, perhaps without a body.
pub(crate) fn on_response_headers(id: u32, is_last: bool) {
    guarded(Panicked::GoesOn, |worker| {
        worker.call(id, |filter, _| {
            filter.on_response_headers(id);
            if is_last {
                filter.on_response_body(id, 0, true);
            }
        });
    });
}

/// A piece of its body passes.
pub(crate) fn on_response_body(id: u32, is_last: bool) {
    guarded(Panicked::GoesOn, |worker| {
        if worker.reads_body(id) {
            worker.call(id, |filter, stream| {
                filter.on_response_body(id, stream.response_body_len(), is_last);
            });
        }
    });
}

/// Its trailers pass.
pub(crate) fn on_response_trailers(id: u32) {
    guarded(Panicked::GoesOn, |worker| {
        worker.call(id, |filter, _| filter.on_response_trailers(id))
    });
}

/// A stream ends.
pub(crate) fn on_stream_end(id: u32) {
    guarded(Panicked::GoesOn, |worker| worker.end(id));
}

/// A stream is gone.
pub(crate) fn on_stream_gone(id: u32) {
    guarded(Panicked::GoesOn, |worker| worker.forget(id));
}

/// The timer wakes this thread.
pub(crate) fn on_wake() {
    if guarded(Panicked::Fails(NONE), Worker::wake).is_none() {
        // There may be more mail.
        let number = worker::with(Worker::number);
        number.into_iter().for_each(|number| timer::wake(Sleeper::Worker(number)));
    }
}
