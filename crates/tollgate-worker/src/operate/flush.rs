//! Brings what this isolate counted to the sums, and to Analytics Engine.
//!
//! Invariant: every count once: what did not arrive is sent again under its number. Lost is what an
//! isolate counted since its last flush when the platform ends it, and what could not be brought
//! for half an hour. Deliberately absent: what is counted, how it is summed, and when: that is
//! `background`'s.

use std::cell::{Cell, RefCell};

use tollgate_core::{Span, Timestamp};
use tollgate_service::metrics::{Delta, Family, Format};
use tollgate_service::{MetricsReply, StoreReply};
use worker::wasm_bindgen::JsValue;

use crate::active::Active;
use crate::counts::objects::Objects;
use crate::object::shard;
use crate::operate::points::points;
use crate::operate::tally::Trouble;
use crate::runtime::js;

/// How long the sums may take, which wait for others to write them together.
const TIMEOUT_MS: u32 = 5_000;
/// Between a failure and the second try of the same task.
const RETRY_AFTER_MS: u64 = 3_000;
/// Sums forget an isolate after an hour, and would count this again then.
const GIVE_UP_AFTER: Span = Span::from_secs(30 * 60);

/// Where counts are brought, and how far that is.
pub(crate) struct Flush {
    /// The objects with the sums, when somebody can read them.
    pub(crate) metrics: Option<JsValue>,
    /// Analytics Engine, when it is bound.
    pub(crate) analytics: Option<JsValue>,
    /// Between two times.
    pub(crate) interval: Span,
    pub(crate) state: State,
}

/// How far it is.
#[derive(Default)]
pub(crate) struct State {
    /// When the task was begun that will flush.
    pub(crate) begun_at: Cell<Option<Timestamp>>,
    /// This isolate's random number; 0 until it is needed.
    isolate: Cell<u64>,
    sequence: Cell<u64>,
    /// Taken and not arrived, since when. Not borrowed across an await.
    pending: RefCell<Option<(Vec<u8>, Timestamp)>>,
}

impl Flush {
    /// True when nobody will ask what was counted.
    pub(crate) const fn is_off(&self) -> bool {
        self.metrics.is_none() && self.analytics.is_none()
    }
}

/// Brings what was counted, and what did not arrive before.
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
        objects.note(Trouble::Metrics, &why);
        objects.report();
        if has_failed {
            return;
        }
        has_failed = true;
        js::wait(RETRY_AFTER_MS).await;
    }
}

/// What the store answers who wants to read what was counted: the sums, without what this isolate
/// has not brought there yet. With it two isolates that are asked in turn would tell counters that
/// go down.
pub(crate) async fn read(flush: &Flush, format: Format) -> StoreReply {
    let Some(metrics) = &flush.metrics else {
        return StoreReply::Failed("the binding METRICS is missing; see wrangler.toml".to_owned());
    };
    match js::metrics_text(metrics, format == Format::OpenMetrics, TIMEOUT_MS).await {
        Ok(text) => StoreReply::Metrics(MetricsReply::Text(text)),
        Err(why) => StoreReply::Failed(format!("the metrics cannot be read: {why}")),
    }
}

/// Takes what was counted; false when that is nothing, or nothing for the sums.
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

/// Sends what was taken; why it did not arrive, if it did not.
async fn send(flush: &Flush) -> Option<String> {
    let state = &flush.state;
    let (bytes, since) = state.pending.borrow().clone()?;
    let metrics = flush.metrics.as_ref()?;
    let failed = js::add_metrics(metrics, &bytes, TIMEOUT_MS).await;
    // Another task may have been as far meanwhile, and have taken more.
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
            objects.note(Trouble::Metrics, &why);
        }
    }
}
