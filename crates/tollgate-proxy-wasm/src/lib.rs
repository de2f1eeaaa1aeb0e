//! Tollgate inside a filter of your own that is written with the proxy-wasm SDK (the crate
//! `proxy-wasm`): one module limits and does your work, with one virtual machine and one pair of
//! calls per request.
//!
//! Each `RootContext` has a `Limiter`, each `HttpContext` a `Request`. They are called from the
//! SDK's callbacks of the same names; `examples/proxy-wasm-filter` is a whole filter. Decisions,
//! response fields, metrics and access-log fields are those of `tollgate-envoy.wasm`, and counts
//! are exact over all workers of an Envoy.
//!
//! ```ignore
//! let limiter = Limiter::new(context_id);     // the constructor of the RootContext
//! limiter.configure(&bytes)                   // on_configure: Ok, or lines for the log
//! limiter.on_tick();                          // on_tick
//! let request = limiter.request(context_id);  // create_http_context
//! request.on_request_headers()                // on_http_request_headers: Pass or Answered
//! request.on_response_headers();              // on_http_response_headers
//! drop(request);                              // with its HttpContext: settles or refunds
//! ```
//!
//! All host calls of the limiter are imports of the proxy-wasm ABI and not the SDK's functions,
//! which panic on a header that is not UTF-8. So no call of the limiter traps; the SDK's
//! dispatcher, which calls your filter, does for a context that it does not know: set
//! `failure_policy: FAIL_RELOAD`. No version of the SDK is required: 0.2.1 and later have this ABI.
//!
//! Three things are refused by `Limiter::configure`, with the reason: policies in which requests
//! wait, calls to clusters (`"scope": "fleet"`, `policy_from`), and costs in the bodies of
//! responses. The module `tollgate-envoy.wasm`, or `tollgate-envoy-full.wasm`, does all of it.
//!
//! Invariant: no call of the limiter traps, and a root or a stream is forgotten with the last value
//! of its number. Deliberately absent: exports. The SDK's would clash with them.
#![forbid(unsafe_code)]
#![cfg(target_arch = "wasm32")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::Span;
use tollgate_filter::filter::{Filter, Flow};
use tollgate_filter::host::proxy::Unsupported;
use tollgate_wasm_host::host::{Host, Module};
pub use tollgate_wasm_host::memory::Counted as CountingAllocator;

/// A filter with the SDK.
#[derive(Clone)]
struct WithSdk;

impl Module for WithSdk {
    const READS_DOCUMENTS: bool = true;
    const READS_BODIES: bool = false;
    const UNSUPPORTED: Unsupported = Unsupported {
        waiting: Some(
            "a filter with the proxy-wasm SDK cannot hold the body of a request that waits; use the \
             module tollgate-envoy.wasm",
        ),
        calls: Some(
            "the proxy-wasm SDK traps on the response to a call that it has not made; use the \
             module tollgate-envoy.wasm",
        ),
        parts: None,
    };
}

thread_local! {
    /// The filter of this virtual machine, which has one thread, for all of its roots.
    static FILTER: Filter<Host<WithSdk>> = const { Filter::new(Host::new()) };
    /// How many values there are of each root and stream.
    static OWNERS: RefCell<BTreeMap<u32, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// A value of a root's or a stream's number.
#[derive(Debug)]
struct Owner(u32);

impl Owner {
    /// Announces the number to the filter. A program may make the next value before it drops the
    /// one before.
    fn new(id: u32, parent: u32) -> Self {
        let _ = OWNERS.try_with(|owners| {
            let mut owners = owners.borrow_mut();
            let count = owners.entry(id).or_default();
            *count = count.saturating_add(1);
        });
        filter((), |filter| filter.on_context_create(id, parent));
        Self(id)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let is_last = OWNERS.try_with(|owners| {
            let mut owners = owners.borrow_mut();
            let count = owners.get_mut(&self.0).map_or(0, |count| {
                *count = count.saturating_sub(1);
                *count
            });
            if count == 0 {
                owners.remove(&self.0);
            }
            count == 0
        });
        if is_last.unwrap_or(true) {
            filter((), |filter| filter.on_delete(self.0));
        }
    }
}

/// Hands a call over. `otherwise` is the result when there is no filter, which never happens.
fn filter<T>(otherwise: T, call: impl FnOnce(&Filter<Host<WithSdk>>) -> T) -> T {
    FILTER.try_with(call).unwrap_or(otherwise)
}

/// The limits of one plugin configuration, for its `RootContext`. The counts outlive it. Another
/// value for the same root is the same limiter: a root has one policy.
#[derive(Debug)]
pub struct Limiter {
    root: Owner,
    period: Cell<Option<Span>>,
}

impl Limiter {
    /// A limiter without a policy, which lets every request pass.
    #[must_use]
    pub fn new(root_context_id: u32) -> Self {
        Self { root: Owner::new(root_context_id, 0), period: Cell::new(None) }
    }

    /// Puts the policy of a plugin configuration in force, in any of the forms that
    /// `tollgate-envoy.wasm` takes: a document as text or as a `Struct`, or a compiled policy.
    /// Requests in progress keep the policy before. Called in `on_configure`, which returns false
    /// for an error.
    ///
    /// # Errors
    /// Every problem of the configuration, one line each; then the policy before stays in force.
    pub fn configure(&self, configuration: &[u8]) -> Result<(), Vec<String>> {
        filter(Ok(()), |filter| filter.configure(self.root.0, configuration))
    }

    /// Does what is due, such as handing counts over to the metrics. Called in `on_tick`.
    pub fn on_tick(&self) {
        filter((), |filter| {
            filter.on_tick(self.root.0);
            filter.wake_after(self.root.0, self.period.get());
        });
    }

    /// Lets the host call `on_tick` at least this often for work of your own; zero ends that. It
    /// replaces the SDK's `set_tick_period`: a root has one timer, and the limiter sets it to the
    /// earliest time that is wanted, so ticks also come more often.
    pub fn set_tick_period(&self, period: Duration) {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let period = (nanos > 0).then(|| Span::from_nanos(nanos));
        self.period.set(period);
        filter((), |filter| filter.wake_after(self.root.0, period));
    }

    /// The request of a stream, for its `HttpContext`. Called in `create_http_context`.
    #[must_use]
    pub fn request(&self, context_id: u32) -> Request {
        Request { stream: Owner::new(context_id, self.root.0) }
    }
}

/// One request. Dropped with its `HttpContext`, it settles a cost by its response, or refunds it.
#[derive(Debug)]
pub struct Request {
    stream: Owner,
}

impl Request {
    /// Decides the request by its headers as they are now, with every change that was made to them
    /// before. Called in `on_http_request_headers`, once.
    #[must_use = "the request continues only if it passes"]
    pub fn on_request_headers(&self) -> Verdict {
        match filter(Flow::Continue, |filter| filter.on_request_headers(self.stream.0)) {
            Flow::Continue => Verdict::Pass,
            Flow::Stop => Verdict::Answered,
        }
    }

    /// Writes the fields of the limits on the response, and settles a cost that its head shows.
    /// Called in `on_http_response_headers`, which the host also calls for a denial.
    pub fn on_response_headers(&self) {
        filter((), |filter| filter.on_response_headers(self.stream.0));
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It continues: `Action::Continue`.
    Pass,
    /// The limiter has answered it, as a rule with 429: `Action::Pause`, and no response of your
    /// own.
    Answered,
}
