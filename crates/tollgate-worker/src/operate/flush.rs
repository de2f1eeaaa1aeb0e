//! Sends the counts of this isolate to the sums, and to Analytics Engine.
//!
//! Invariant: every count is summed once: counts that did not arrive are sent again under their
//! number. Two things are lost: the counts since the last flush when the platform ends the isolate,
//! and counts that could not be delivered for half an hour. Deliberately absent: what is counted,
//! how it is summed, and when; `background` decides when.

use std::cell::{Cell, RefCell};

use tollgate_core::{Span, Timestamp};
use tollgate_service::metrics::{Delta, Family, Format};
use tollgate_service::{MetricsReply, StoreReply};
use worker::wasm_bindgen::JsValue;

use crate::active::Active;
use crate::counts::objects::Objects;
use crate::object::shard;
use crate::operate::points::points;
use crate::operate::tally::FailureKind;
use crate::runtime::js;

/// How long the sums may take, which wait for others to write them together.
const TIMEOUT_MS: u32 = 5_000;
/// The time between a failure and the second try of the same task.
const RETRY_AFTER_MS: u64 = 3_000;
/// The sums forget an isolate after an hour, and would count this again then.
const GIVE_UP_AFTER: Span = Span::from_secs(30 * 60);

/// Where counts are sent, and the state of that.
pub(crate) struct Flush {
    /// The objects with the sums, when a token allows reading them.
    pub(crate) metrics: Option<JsValue>,
    /// Analytics Engine, when it is bound.
    pub(crate) analytics: Option<JsValue>,
    /// The time between two flushes.
    pub(crate) interval: Span,
    pub(crate) state: FlushState,
}

/// The state of the flushes.
#[derive(Default)]
pub(crate) struct FlushState {
    /// When the task that will flush was begun.
    pub(crate) begun_at: Cell<Option<Timestamp>>,
    /// This isolate's random number; 0 until it is needed.
    isolate: Cell<u64>,
    sequence: Cell<u64>,
    /// Counts that were taken and have not arrived, and since when. Not borrowed across an await.
    pending: RefCell<Option<(Vec<u8>, Timestamp)>>,
}

impl Flush {
    /// True when the counts have no destination.
    pub(crate) const fn is_off(&self) -> bool {
        self.metrics.is_none() && self.analytics.is_none()
    }
}

/// Sends the new counts, and those that did not arrive before.
pub(crate) async fn flush(flush: &Flush, objects: &Objects, active: &Active) {
    let state = &flush.state;
    let (mut has_taken, mut has_failed) = (false, false);
    loop {
        if state.pending.borrow().is_none() {
            if has_taken || !take(flush, objects, active) {
                return;
            }
            has_taken = true;
        }
        let Some(why) = send(flush).await else { continue };
        objects.note(FailureKind::Metrics, &why);
        objects.report();
        if has_failed {
            return;
        }
        has_failed = true;
        js::wait(RETRY_AFTER_MS).await;
    }
}

/// The store's response to a request for metrics: the sums, without the counts that this isolate
/// has not sent yet. With those, two isolates that are asked in turn would report counters that go
/// down.
pub(crate) async fn read(flush: &Flush, format: Format) -> StoreReply {
    let Some(metrics) = &flush.metrics else {
        return StoreReply::Failed("the binding METRICS is missing; see wrangler.toml".to_owned());
    };
    match js::metrics_text(metrics, format == Format::OpenMetrics, TIMEOUT_MS).await {
        Ok(text) => StoreReply::Metrics(MetricsReply::Text(text)),
        Err(why) => StoreReply::Failed(format!("the metrics cannot be read: {why}")),
    }
}

/// Takes the counts; false when there are none, or none for the sums.
fn take(flush: &Flush, objects: &Objects, active: &Active) -> bool {
    let state = &flush.state;
    if state.isolate.get() == 0 {
        state.isolate.set(js::random().max(1));
    }
    let sequence = state.sequence.get().saturating_add(1);
    state.sequence.set(sequence);
    shard::count(&objects.counters);
    let delta = objects.counters.take(state.isolate.get(), sequence, active.in_force());
    let Some(delta) = delta else { return false };
    if let Some(analytics) = &flush.analytics {
        write_points(analytics, &delta, objects);
    }
    if flush.metrics.is_none() {
        return false;
    }
    *state.pending.borrow_mut() = Some((delta.encode(), js::now()));
    true
}

/// Sends the taken counts; returns why they did not arrive, if they did not.
async fn send(flush: &Flush) -> Option<String> {
    let state = &flush.state;
    let (bytes, since) = state.pending.borrow().clone()?;
    let metrics = flush.metrics.as_ref()?;
    let failed = js::add_metrics(metrics, &bytes, TIMEOUT_MS).await;
    // Another task may have got this far meanwhile, and have taken more.
    let is_same = |pending: &(Vec<u8>, Timestamp)| pending.0 == bytes;
    let is_over = failed.is_none() || js::now() > since.saturating_add(GIVE_UP_AFTER);
    if is_over && state.pending.borrow().as_ref().is_some_and(is_same) {
        *state.pending.borrow_mut() = None;
    }
    failed
}

/// One point for each series of decisions that grew.
fn write_points(analytics: &JsValue, delta: &Delta, objects: &Objects) {
    let decisions =
        delta.counts.iter().filter(|(series, _)| series.family() == Some(Family::Decisions));
    for (series, count) in points(decisions) {
        let values: Vec<&str> = series.values().collect();
        if let Some(why) = js::write_point(analytics, &values, count) {
            objects.note(FailureKind::Metrics, &why);
        }
    }
}
