//! Traces, if they are configured: the handling of a request, as OpenTelemetry spans.
//!
//! Invariant: no request waits for a trace: a span goes into a bounded queue when it ends, and
//! spans without room are counted. Spans contain names of rules and results, and nothing that a
//! client sent. A caller that is not allowed creates none. Without traces in the configuration
//! nothing of it is done.
//!
//! Not the crates `opentelemetry*`: docs/decisions.md has the reasons (OTLP is written by hand).
//!
//! The modules are in the order in which they import: each imports only modules declared below it.

mod export;
mod message;
mod options;
mod parent;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyper::HeaderMap;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use tokio::sync::mpsc;
use tollgate_redis::{Observer, RoundTrip, Tag};
use tollgate_service::log::Share;

pub(crate) use self::export::Exporter;
pub(crate) use self::message::{Attribute, Kind, Value};
pub(crate) use self::options::pairs;
pub use self::options::{Collector, Options};

use self::export::Tally;
use self::message::Record;
use self::parent::Parent;
use crate::clock::Clock;

/// Spans that may wait to be sent: about 2 MiB of them.
const MAX_QUEUED: usize = 2048;
/// The most requests that a round trip is linked to.
const MAX_LINKS: usize = 64;

tokio::task_local! {
    /// The current span of this task.
    static HERE: SpanContext;
}

/// The sender of spans.
#[derive(Clone, Debug)]
pub struct Traces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    share: Share,
    seed: [u8; 16],
    number: AtomicU64,
    queue: mpsc::Sender<Record>,
    tally: Arc<Tally>,
}

/// A place in a trace.
#[derive(Clone, Debug)]
struct SpanContext {
    traces: Traces,
    at: Parent,
    /// The caller is allowed.
    is_admitted: Arc<AtomicBool>,
}

impl Traces {
    /// Traces, and their exporter.
    #[must_use]
    pub(crate) fn new(options: Options, clock: Clock, seed: [u8; 16]) -> (Self, Exporter) {
        let (queue, records) = mpsc::channel(MAX_QUEUED);
        let tally = Arc::new(Tally::default());
        let inner = Inner {
            clock,
            share: options.share,
            seed,
            number: AtomicU64::new(0),
            queue,
            tally: Arc::clone(&tally),
        };
        (Self(Arc::new(inner)), Exporter::new(records, options, tally))
    }

    /// The number of spans that were sent, and of those that were dropped because there was no room
    /// or the collector did not take them.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        self.0.tally.counts()
    }

    /// The span of a request with these header fields, if it is traced: when its caller traces it,
    /// and of callers without trace information the configured share.
    pub(crate) fn request(&self, name: &'static str, headers: &HeaderMap) -> Option<ActiveSpan> {
        let parent = Parent::of(headers);
        let number = self.number();
        let (is_traced, trace) = match &parent {
            Some((parent, is_sampled)) => (*is_sampled, parent.trace),
            None => (self.0.share.takes(number), self.id(number)),
        };
        is_traced.then(|| {
            let is_admitted = Arc::new(AtomicBool::new(false));
            let above = parent.map(|(parent, _)| parent.span);
            let at = Parent { trace, span: self.span_id() };
            ActiveSpan::new(
                SpanContext { traces: self.clone(), at, is_admitted },
                above,
                name,
                Kind::Server,
            )
        })
    }

    /// A number that cannot be guessed; another one each time.
    fn number(&self) -> u64 {
        let number = self.0.number.fetch_add(1, Ordering::Relaxed);
        self.hash(number).h1
    }

    fn hash(&self, number: u64) -> siphasher::sip128::Hash128 {
        let mut hasher = SipHasher13::new_with_key(&self.0.seed);
        hasher.write_u64(number);
        hasher.finish128()
    }

    /// The id of a trace that begins here. Zero would be invalid.
    fn id(&self, number: u64) -> [u8; 16] {
        (self.hash(number).as_u128() | 1).to_be_bytes()
    }

    fn span_id(&self) -> [u8; 8] {
        (self.number() | 1).to_be_bytes()
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.now().as_nanos()
    }

    fn record(&self, record: Record) {
        if self.0.queue.try_send(record).is_err() {
            self.0.tally.add_dropped(1);
        }
    }
}

/// The caller is allowed: its spans are recorded.
pub(crate) fn admitted() {
    let _ = HERE.try_with(|here| here.is_admitted.store(true, Ordering::Relaxed));
}

/// A child of this task's current span, if there is one.
pub(crate) fn child(name: &'static str, kind: Kind) -> Option<ActiveSpan> {
    HERE.try_with(|above| {
        let at = Parent { trace: above.at.trace, span: above.traces.span_id() };
        ActiveSpan::new(SpanContext { at, ..above.clone() }, Some(above.at.span), name, kind)
    })
    .ok()
}

/// A current span; it ends, and is recorded, when this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveSpan {
    here: SpanContext,
    record: Record,
}

impl ActiveSpan {
    fn new(here: SpanContext, above: Option<[u8; 8]>, name: &'static str, kind: Kind) -> Self {
        let began_ns = here.traces.now_ns();
        let record = Record {
            at: here.at,
            above,
            name,
            kind,
            began_ns,
            ended_ns: began_ns,
            attributes: Vec::new(),
            links: Vec::new(),
            is_failed: false,
        };
        Self { here, record }
    }

    /// Runs `work` within it: spans of `work` are children of this span.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = T>) -> T {
        HERE.scope(self.here.clone(), work).await
    }

    /// Adds an attribute.
    pub(crate) fn set_attribute(&mut self, name: &'static str, value: impl Into<Value>) {
        self.record.attributes.push(Attribute { name, value: value.into() });
    }

    /// Marks it as failed.
    pub(crate) const fn fail(&mut self) {
        self.record.is_failed = true;
    }

    /// The tag that the store reports with the round trip of this request.
    pub(crate) fn tag(&self) -> Tag {
        self.record.at.tag()
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        if !self.here.is_admitted.load(Ordering::Relaxed) {
            return;
        }
        self.record.ended_ns = self.here.traces.now_ns();
        let record = std::mem::take(&mut self.record);
        self.here.traces.record(record);
    }
}

impl Observer for Traces {
    /// A round trip is a child of the first request that it answered and is linked to the others. A
    /// round trip without a traced request is not a span.
    fn observe(&self, trip: RoundTrip) {
        let mut requests = trip.tags.iter().map(Parent::of_tag);
        let Some(first) = requests.next() else { return };
        let ended_ns = self.now_ns();
        let took_ns = u64::try_from(trip.took.as_nanos()).unwrap_or(u64::MAX);
        let attribute = |name, value| Attribute { name, value };
        self.record(Record {
            at: Parent { trace: first.trace, span: self.span_id() },
            above: Some(first.span),
            name: "store round trip",
            kind: Kind::Client,
            began_ns: ended_ns.saturating_sub(took_ns),
            ended_ns,
            attributes: vec![
                attribute("db.system.name", Value::Text("redis".into())),
                attribute("tollgate.store.result", Value::Text(trip.result.into())),
                attribute("tollgate.store.answered", trip.answered.into()),
            ],
            links: requests.take(MAX_LINKS).collect(),
            is_failed: false,
        });
    }
}
