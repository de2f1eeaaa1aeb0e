//! The filter's host: each call as a call of Envoy, about the current stream of this thread.
//!
//! Invariant: every failure of Envoy is a value. Not here: which stream is the current one.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_filter::host::Seed;
use tollgate_filter::host::calls::{Calls, HttpCall, NotSent};
use tollgate_filter::host::headers::HeaderLines;
use tollgate_filter::host::proxy::{Counters, Proxy, Unsupported};
use tollgate_filter::host::reply::Reply;
use tollgate_filter::host::shared_data::{BucketRead, SharedData, Stored, Table, Written};
use tollgate_filter::request::facts::{Purpose, RequestSource};
use tollgate_filter::wire::metadata::Value;

use crate::abi::{self, Attribute, HeaderKind, Level, MetricKind, Stream};
use crate::by_stream::ByStream;
use crate::calls;
use crate::clock;
use crate::context::{self, Context};
use crate::metadata;
use crate::shared_map::SHARED;
use crate::stored_policy;
use crate::tables;
use crate::timer::{self, Sleeper};

/// The host of this thread's filter.
#[derive(Clone, Copy)]
pub(crate) struct Host;

/// Why an Envoy that offers none of what calls need cannot take a configuration that makes them.
const NO_CALLS: &str = "this Envoy sends no requests for a dynamic module's configuration, which \
    Envoy's releases from 1.38 on do; use one of them, or the wasm module tollgate-envoy.wasm";

fn current() -> Option<Stream> {
    context::with(Context::stream).flatten()
}

/// The lines of a message of the current stream. Envoy lends them, so each is looked up when it is
/// asked for.
pub(crate) struct Lines(HeaderKind);

impl Lines {
    fn of(kind: HeaderKind) -> Option<Self> {
        current()?.has_lines(kind).then_some(Self(kind))
    }
}

impl HeaderLines for Lines {
    const ARE_LENT: bool = true;

    fn joined(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut joined = None;
        self.read(name, &mut |value| joined = Some(Cow::Owned(value.to_vec())));
        joined
    }

    fn read(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        if let Some(stream) = current() {
            stream.read_joined(self.0, name, read);
        }
    }
}

impl Proxy for Host {
    type Streams<T> = ByStream<T>;
    const SHARES_LEASE_WORK: bool = true;
    const DECISION_STATE: &str = "wasm.tollgate";
    const COST_STATE: &str = "wasm.tollgate_cost";

    fn unsupported(&self) -> Unsupported {
        Unsupported {
            waiting: None,
            calls: (!abi::can_call()).then_some(NO_CALLS),
            parts: Some(|policy| policy.explain().problems_in_dynamic_module()),
        }
    }

    fn fetches_policies(&self) -> bool {
        context::with(Context::is_main).unwrap_or_default()
    }

    fn policy_stored(&self) {
        stored_policy::announce();
    }

    fn monotonic(&self) -> Option<Timestamp> {
        clock::monotonic()
    }

    fn wall_clock(&self) -> Option<Timestamp> {
        clock::wall()
    }

    fn clock_offset(&self) -> Span {
        clock::offset()
    }

    fn set_clock_offset(&self, offset: Span) {
        clock::set_offset(offset);
    }

    fn random_seed(&self) -> Option<Seed> {
        clock::random_seed()
    }

    fn configuration(&self, len: usize) -> Vec<u8> {
        let text = context::with(Context::configuration).flatten();
        text.and_then(|it| Some(it.text.get(..len)?.to_vec())).unwrap_or_default()
    }

    fn plugin_scope(&self) -> Vec<u8> {
        let configuration = context::with(Context::configuration).flatten();
        let name = configuration.map(|it| it.name.clone()).unwrap_or_default();
        [name, Vec::new()].join(&0)
    }

    fn log_error(&self, text: &str) {
        abi::log(Level::Error, text);
    }

    fn log_warning(&self, text: &str) {
        abi::log(Level::Warning, text);
    }

    fn log_info(&self, text: &str) {
        abi::log(Level::Info, text);
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        if let Some(stream) = current() {
            stream.set_filter_state(name, value);
        }
    }

    fn set_request_header(&self, name: &str, value: &str) {
        if let Some(stream) = current() {
            stream.set_header(HeaderKind::Request, name, value);
        }
    }

    fn set_response_header(&self, name: &str, value: &str) {
        let is_ours = context::with(|it| it.with_reply(|reply| reply.set(name, value))).flatten();
        if let (None, Some(stream)) = (is_ours, current()) {
            stream.set_header(HeaderKind::Response, name, value);
        }
    }

    fn add_response_header(&self, name: &str, value: &str) {
        let is_ours = context::with(|it| it.with_reply(|reply| reply.add(name, value))).flatten();
        if let (None, Some(stream)) = (is_ours, current()) {
            stream.add_header(HeaderKind::Response, name, value);
        }
    }

    fn response_status(&self) -> Option<u16> {
        if let Some(status) = context::with(|it| it.with_reply(|reply| reply.status)).flatten() {
            return Some(status);
        }
        let read = |value: &[u8]| core::str::from_utf8(value).ok()?.parse().ok();
        current()?.header(HeaderKind::Response, ":status", read)?
    }

    fn response_headers(&self) -> Option<Lines> {
        Lines::of(HeaderKind::Response)
    }

    fn response_body(&self, from: usize, len: usize) -> Vec<u8> {
        current().map(|stream| stream.response_body(from, len)).unwrap_or_default()
    }

    fn response_trailers(&self) -> Option<Lines> {
        Lines::of(HeaderKind::ResponseTrailers)
    }

    fn request_bytes(&self) -> usize {
        current().map_or(0, |stream| stream.lines_len(HeaderKind::Request))
    }

    fn enter(&self, id: u32) -> bool {
        context::with(|it| it.enter(id)).unwrap_or_default()
    }

    fn reply(&self, reply: Reply<'_>) -> bool {
        context::with(|it| it.reply(reply)).unwrap_or_default()
    }

    fn resume(&self, id: u32) {
        context::with(|it| it.resume(id));
    }

    fn set_tick_ms(&self, ms: u32) {
        let period = (ms > 0).then(|| Duration::from_millis(ms.into()));
        context::with(|it| it.set_tick(period));
    }

    /// The memory is Envoy's, which shows it itself.
    fn memory_growth(&self) -> i64 {
        0
    }

    /// What clients can make grow has limits of its own; a process has no other.
    fn is_memory_short(&self) -> bool {
        false
    }
}

impl RequestSource for Host {
    type Lines = Lines;
    const RETURNS_ALL_METADATA: bool = false;

    fn request_headers(&self) -> Option<Lines> {
        Lines::of(HeaderKind::Request)
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        current()?.attribute(Attribute::SourceAddress, <[u8]>::to_vec)
    }

    fn source_ip(&self, parse: fn(&[u8]) -> Option<IpAddr>) -> Option<IpAddr> {
        current()?.attribute(Attribute::SourceAddress, parse)?
    }

    fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        let stream = current()?;
        let attribute = match path {
            b"xds\0route_name" => Attribute::RouteName,
            b"connection\0uri_san_peer_certificate" => Attribute::CertificateUriSan,
            b"connection\0dns_san_peer_certificate" => Attribute::CertificateDnsSan,
            b"connection\0subject_peer_certificate" => Attribute::CertificateSubject,
            b"connection\0sha256_peer_certificate_digest" => Attribute::CertificateSha256,
            b"response\0size" => {
                let size = i64::try_from(stream.number(Attribute::ResponseSize)?).ok()?;
                return Some(size.to_le_bytes().to_vec());
            }
            b"request\0duration" => {
                let age = context::with(Context::age).flatten()?;
                return Some(i64::try_from(age.as_nanos()).ok()?.to_le_bytes().to_vec());
            }
            tollgate_filter::config::routes::NAME => {
                return stream.route_metadata("tollgate", "policy");
            }
            _ => return None,
        };
        stream.attribute(attribute, <[u8]>::to_vec)
    }

    fn metadata_value(&self, filter: &str, name: &str, purpose: Purpose) -> Option<Value<'static>> {
        metadata::value(current()?, filter, name, purpose)
    }
}

impl Counters for Host {
    const IS_CHEAP: bool = true;
    const IS_FIXED: bool = true;

    fn define(&self, name: &str) -> Option<u32> {
        define(MetricKind::Counter, name)
    }

    fn define_gauge(&self, name: &str) -> Option<u32> {
        define(MetricKind::Gauge, name)
    }

    fn define_histogram(&self, name: &str) -> Option<u32> {
        define(MetricKind::Histogram, name)
    }

    fn add(&self, counter: u32, by: i64) {
        context::with(|it| it.metrics.add(counter, by, it.counted()));
    }

    fn record(&self, metric: u32, value: u64) {
        context::with(|it| it.metrics.record(metric, value, it.counted()));
    }
}

fn define(kind: MetricKind, name: &str) -> Option<u32> {
    context::with(|it| it.metrics.index(kind, name, &*it.configuration()?, it.configuring()))
        .flatten()
}

impl SharedData for Host {
    const READS_ARE_CHEAP: bool = true;

    fn get(&self, name: &[u8]) -> Stored {
        SHARED.get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        SHARED.set(name, value, cas)
    }

    fn get_bucket(&self, table: &Table, bucket: u32, bytes: &mut Vec<u8>) -> BucketRead {
        tables::with(table.identity(), |table| table.get(bucket, bytes))
    }

    fn set_bucket(&self, table: &Table, bucket: u32, bytes: &[u8], cas: u32) -> Written {
        tables::with(table.identity(), |table| table.set(bucket, bytes, cas))
    }
}

impl Calls for Host {
    /// The main thread sends it; why it could not comes as the response does.
    fn call(&self, call: &HttpCall<'_>) -> Result<u32, NotSent> {
        let asks = |it: &Context| Some((it.number.0, it.configuration()?.number));
        let (worker, configuration) = context::with(asks).flatten().ok_or(NotSent::Refused)?;
        let number = calls::ask(worker, configuration, call)?;
        timer::wake(Sleeper::Main(configuration));
        Ok(number)
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        context::with(|it| it.answer.borrow().as_ref()?.header(name)).flatten()
    }

    fn answer_body(&self, len: usize) -> Vec<u8> {
        let body = context::with(|it| Some(it.answer.borrow().as_ref()?.body(len))).flatten();
        body.unwrap_or_default()
    }
}
