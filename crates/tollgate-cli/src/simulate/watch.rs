//! Data recorded during a run: the time line of its plots, and its last requests.
//!
//! Invariant: the size is bounded, however long a run is. The time line has at most 600 bins, which
//! grow wider by round steps, and the number of listed requests is limited.

use std::collections::VecDeque;

use serde::Serialize;
use tollgate_core::Span;
use tollgate_lab::simulator::{Fate, ObservedDecision, START};

/// Bins of the time line.
const MOST_BINS: usize = 600;
/// The most bins that are shown.
const SHOWN_BINS: usize = 60;
/// Widths of bins in nanoseconds, each a multiple of the one before.
const WIDTHS: [u64; 15] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    60_000_000_000,
    600_000_000_000,
    3_600_000_000_000,
    21_600_000_000_000,
    86_400_000_000_000,
    864_000_000_000_000,
    8_640_000_000_000_000,
];

/// The recorded data.
#[derive(Debug)]
pub(super) struct Watch {
    /// The most requests that are listed.
    listed: usize,
    pub(super) trace: VecDeque<Step>,
    /// True when there were more.
    pub(super) left_out: bool,
    pub(super) bins: Vec<Bin>,
    /// The index in `WIDTHS`.
    width: usize,
    pub(super) has_clients: bool,
}

/// One decision. Documented in docs/simulate.md.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    /// Microseconds after the beginning, rounded down.
    pub(super) at_us: u64,
    pub(super) client: u64,
    pub(super) node: usize,
    pub(super) decision: &'static str,
    pub(super) status: Option<u16>,
    /// Its wait, still to come or over; rounded up.
    pub(super) wait_us: u64,
    /// The smallest remainder of any quota.
    pub(super) remaining: Option<u64>,
    pub(super) retry_after_us: Option<u64>,
    /// The decision of an exact log: `allow` or `deny`.
    pub(super) exact: Option<&'static str>,
    /// Units of the key in the window that ends now, including those of this request.
    pub(super) in_window: Option<u64>,
}

/// A piece of the time line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bin {
    pub(super) admitted: u64,
    pub(super) delayed: u64,
    pub(super) denied: u64,
    /// The most units of one key in a window that ended here; `None` without requests.
    pub(super) most: Option<u64>,
}

impl Watch {
    /// An empty watch; the last `listed` requests will be listed.
    pub(super) fn new(listed: Option<u32>) -> Self {
        let listed = listed.map_or(0, |listed| usize::try_from(listed).unwrap_or(usize::MAX));
        let (trace, bins) = (VecDeque::new(), Vec::new());
        Self { listed, trace, left_out: false, bins, width: 0, has_clients: false }
    }

    /// Records a decision.
    pub(super) fn see(&mut self, seen: &ObservedDecision<'_>) {
        let count = seen.exact.and_then(|exact| exact.count);
        let count = count.map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        self.has_clients |= seen.request.client > 0;
        if self.listed > 0 {
            if self.trace.len() >= self.listed {
                self.left_out |= self.trace.pop_front().is_some();
            }
            self.trace.push_back(step(seen, count));
        }
        let at = seen.at.since(START).as_nanos();
        let waited = seen.decided.waited();
        let bin = self.bin(at);
        match seen.decided.fate() {
            Fate::Admitted if waited == Span::ZERO => add(&mut bin.admitted),
            Fate::Admitted | Fate::Delayed(_) => add(&mut bin.delayed),
            Fate::Denied { .. } => add(&mut bin.denied),
            Fate::Waiting => {}
        }
        bin.most = bin.most.max(count);
    }

    /// At most [`SHOWN_BINS`] bins, and the nanoseconds per bin.
    pub(super) fn time_line(&self) -> (Vec<Bin>, u64) {
        let is_enough = |by: &usize| self.bins.len().div_ceil(*by) <= SHOWN_BINS;
        let by = [1, 2, 5, 10].into_iter().find(is_enough).unwrap_or(10);
        let width = self.width_ns().saturating_mul(u64::try_from(by).unwrap_or(1));
        (together(&self.bins, by), width)
    }

    /// Nanoseconds per bin.
    fn width_ns(&self) -> u64 {
        WIDTHS.get(self.width).copied().unwrap_or(u64::MAX)
    }

    fn bin(&mut self, at_ns: u64) -> &mut Bin {
        loop {
            let index = at_ns.checked_div(self.width_ns()).unwrap_or(0);
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let is_widest = self.width.saturating_add(1) >= WIDTHS.len();
            if index < MOST_BINS || is_widest {
                let index = index.min(MOST_BINS.saturating_sub(1));
                if self.bins.len() <= index {
                    self.bins.resize(index.saturating_add(1), Bin::default());
                }
                #[expect(clippy::indexing_slicing, reason = "it was made long enough above")]
                return &mut self.bins[index];
            }
            self.widen();
        }
    }

    /// The next width: some bins become one.
    fn widen(&mut self) {
        let before = self.width_ns();
        self.width = self.width.saturating_add(1);
        let by = self.width_ns().checked_div(before).unwrap_or(1);
        self.bins = together(&self.bins, usize::try_from(by).unwrap_or(1));
    }
}

/// Merges bins into ones that are `by` times as wide.
fn together(bins: &[Bin], by: usize) -> Vec<Bin> {
    bins.chunks(by.max(1)).map(|bins| bins.iter().fold(Bin::default(), sum)).collect()
}

fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

fn sum(all: Bin, one: &Bin) -> Bin {
    Bin {
        admitted: all.admitted.saturating_add(one.admitted),
        delayed: all.delayed.saturating_add(one.delayed),
        denied: all.denied.saturating_add(one.denied),
        most: all.most.max(one.most),
    }
}

fn step(seen: &ObservedDecision<'_>, count: Option<u64>) -> Step {
    let decided = seen.decided;
    let waited = decided.waited();
    let (decision, status, wait, retry_after) = match decided.fate() {
        Fate::Admitted if waited == Span::ZERO => ("allow", None, waited, None),
        Fate::Admitted => ("allow after wait", None, waited, None),
        Fate::Delayed(wait) => ("delay", None, wait, None),
        Fate::Waiting => ("wait", None, Span::ZERO, None),
        Fate::Denied { status, retry_after } => ("deny", Some(status), waited, retry_after),
    };
    let quotas = decided.rules().filter(|rule| rule.is_binding);
    let remaining =
        quotas.flat_map(|rule| rule.quotas().map(|(_, decision)| decision.remaining)).min();
    Step {
        at_us: micros(seen.at.since(START)),
        client: seen.request.client,
        node: seen.node,
        decision,
        status,
        wait_us: wait.as_nanos().div_ceil(1_000),
        remaining,
        retry_after_us: retry_after.map(|wait| wait.as_nanos().div_ceil(1_000)),
        exact: seen.exact.map(|exact| if exact.admits { "allow" } else { "deny" }),
        in_window: count,
    }
}

fn micros(span: Span) -> u64 {
    span.as_nanos().div_euclid(1_000)
}
