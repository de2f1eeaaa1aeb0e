//! The host calls of the filter, as a trait: the proxy-wasm ABI.
//!
//! Invariant: every failure of the host is a value. The shipped filter runs on `host`, which makes
//! the calls; tests run the same filter on hosts that fail, return nonsense and call back during a
//! call. Deliberately absent: decisions on the results.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, Problems};
use tollgate_storage::table::Seed;

use crate::host::calls::Calls;
use crate::host::reply::Reply;
use crate::host::shared_data::SharedData;
use crate::host::streams::StreamMap;
use crate::request::facts::RequestSource;

/// The host of this filter, cheap to copy.
pub trait Proxy: RequestSource + SharedData + Counters + Calls + Clone {
    /// False in a module that takes compiled policies alone, and so follows no server: the compiler
    /// then leaves out what reads documents.
    const READS_DOCUMENTS: bool = true;
    /// False in a module that is not called with the bodies and trailers of responses: it refuses
    /// policies that read them.
    const READS_BODIES: bool = true;
    /// True where threads hand lease work over to others (`Filter::take_lease_work`).
    const SHARES_LEASE_WORK: bool = false;
    /// The filter's values of streams.
    type Streams<T>: StreamMap<T>;
    /// What policies may not use, whatever the host. The compiler leaves out the code for waiting,
    /// and that for leases and for following a server, where these are refused.
    const UNSUPPORTED: Unsupported = Unsupported::NOTHING;
    /// False where policies for which requests wait are refused.
    const WAITS: bool = Self::UNSUPPORTED.waiting.is_none();
    /// False where policies that need requests of the filter's own are refused.
    const CALLS: bool = Self::UNSUPPORTED.calls.is_none();
    /// False where no request is held: neither for its turn nor for an authority.
    const HOLDS: bool = Self::WAITS || Self::CALLS;
    /// False where no policy comes from a server.
    const FOLLOWS: bool = Self::READS_DOCUMENTS && Self::CALLS;
    /// What policies may not use on this host.
    fn unsupported(&self) -> Unsupported {
        Self::UNSUPPORTED
    }
    /// False on a thread that requests no policies from servers, because another thread of the
    /// process does. It takes up what that one stores (`Filter::take_stored_policy`).
    fn fetches_policies(&self) -> bool {
        true
    }
    /// This thread has stored a policy from a server, which the others are to take up.
    fn policy_stored(&self) {}
    /// The clock that decides, except by a calendar: the monotonic one and the offset of `clock`.
    fn now(&self) -> Option<Timestamp> {
        Some(self.monotonic()?.saturating_add(self.clock_offset()))
    }
    /// The monotonic clock, which no step of the wall clock moves.
    fn monotonic(&self) -> Option<Timestamp>;
    /// The wall clock, from 1970. It is read when a worker first uses a map, and for each step of a
    /// request that is counted by a calendar.
    fn wall_clock(&self) -> Option<Timestamp>;
    /// The offset of this virtual machine; zero before one is set.
    fn clock_offset(&self) -> Span;
    /// Sets it.
    fn set_clock_offset(&self, offset: Span);
    /// Random bytes that no client can guess.
    fn random_seed(&self) -> Option<Seed>;
    /// The plugin's configuration; empty when there is none.
    fn configuration(&self, len: usize) -> Vec<u8>;
    /// The operator's names for this plugin: its `name` and its `root_id`.
    fn plugin_scope(&self) -> Vec<u8>;
    /// One line in the host's log, at error level.
    fn log_error(&self, text: &str);
    /// One line in the host's log, at warning level.
    fn log_warning(&self, text: &str);
    /// One line in the host's log, at its usual level.
    fn log_info(&self, text: &str);
    /// The name of the filter state with the access log's fields of a request, which formats read
    /// as `wasm.tollgate`: a host of wasm modules adds the prefix.
    const DECISION_STATE: &str = "tollgate";
    /// The same with the costs that a response settled:
    /// `rule=tokens estimate=500 actual=350 difference=-150`, or `actual=unreadable` with the
    /// reason why it is unknown.
    const COST_STATE: &str = "tollgate_cost";
    /// Sets a value of the request of the current context that the host's access log can read.
    fn set_filter_state(&self, name: &str, value: &str);
    /// Sets a header of the request to the origin; a client's value under that name is replaced.
    fn set_request_header(&self, name: &str, value: &str);
    /// Sets a header of the response; an earlier value under that name is replaced.
    fn set_response_header(&self, name: &str, value: &str);
    /// Appends a line to the response's headers; the origin's lines stay.
    fn add_response_header(&self, name: &str, value: &str);
    /// The status of the response.
    fn response_status(&self) -> Option<u16>;
    /// Its headers.
    fn response_headers(&self) -> Option<Self::Lines>;
    /// At most `len` bytes of the piece of its body that passes, from its byte `from` on; empty
    /// when the host does not give them. Called while that piece is announced.
    fn response_body(&self, from: usize, len: usize) -> Vec<u8> {
        let _ = (from, len);
        Vec::new()
    }
    /// Its trailers. Called while they pass.
    fn response_trailers(&self) -> Option<Self::Lines> {
        None
    }
    /// Bytes of the request's headers, which the host holds for as long as the request waits.
    fn request_bytes(&self) -> usize;
    /// Makes the stream `id` the current context; false when its client has left.
    fn enter(&self, id: u32) -> bool;
    /// Responds to the request of the current context; false when the host does not.
    fn reply(&self, reply: Reply<'_>) -> bool;
    /// Lets the paused request of the stream `id` continue; nothing happens when its client has
    /// left.
    fn resume(&self, id: u32);
    /// Calls the root context of the current context every `ms` milliseconds; 0 stops it.
    fn set_tick_ms(&self, ms: u32);
    /// By how many bytes this virtual machine's memory has grown since the last call.
    fn memory_growth(&self) -> i64;
    /// True when so much memory is allocated that a request must not allocate more.
    fn is_memory_short(&self) -> bool;
}

/// What a filter cannot do on a host, with the reason for the operator; `None`: it can.
#[derive(Clone, Copy, Debug)]
pub struct Unsupported {
    /// Requests that wait.
    pub waiting: Option<&'static str>,
    /// Requests of its own to clusters.
    pub calls: Option<&'static str>,
    /// Parts of a policy, with a list of those that a policy has.
    pub parts: Option<fn(&Policy) -> Problems>,
}

impl Unsupported {
    /// The filter can do everything.
    pub const NOTHING: Self = Self { waiting: None, calls: None, parts: None };
}

/// The host's metrics. A metric that the host does not have is `None`, which has no other effect.
pub trait Counters {
    /// True where adding costs so little that counts are not buffered.
    const IS_CHEAP: bool = false;
    /// True where a metric can only be defined while the host configures, so that a policy that
    /// comes later has no metrics of its own.
    const IS_FIXED: bool = false;
    /// The number of the counter `name`, the same for the same name; `None` if the host has none.
    fn define(&self, name: &str) -> Option<u32>;
    /// The same for a gauge, which may go down again.
    fn define_gauge(&self, name: &str) -> Option<u32>;
    /// The same for a histogram.
    fn define_histogram(&self, name: &str) -> Option<u32>;
    /// Adds to a counter or a gauge.
    fn add(&self, counter: u32, by: i64);
    /// Sets a gauge, or records a value in a histogram.
    fn record(&self, metric: u32, value: u64);
}

/// Whether the host continues or stops a request. The number that is returned to the host stops a
/// body, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The request continues.
    Continue,
    /// The request stops, its body and trailers too.
    Stop,
}

impl Flow {
    /// The ABI's number for it. Not 1, which stops the headers alone under
    /// `allow_on_headers_stop_iteration`: the body would then send the request on. 4 stops
    /// everything, whatever the operator has set.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Continue => 0,
            Self::Stop => 4,
        }
    }
}
