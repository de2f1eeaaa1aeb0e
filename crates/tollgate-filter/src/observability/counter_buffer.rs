//! Counters of one root, buffered and handed over to the host ten times a second: a call for each
//! of them would cost more than a request's decision.
//!
//! Invariant: every count is handed over once, at the latest [`FLUSH_AFTER`] later or when the root
//! ends; after that at once. While a count is pending the gauge `tollgate.uncounted` is one higher,
//! so readers of the counters know whether they are complete. A virtual machine that traps loses
//! the counts that it had not handed over. Deliberately absent: names.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::Span;
use tollgate_policy::SlabMap;

use crate::cell::with;
use crate::host::proxy::Proxy;
use crate::host::timer::{Timer, TimerUser};
use crate::observability::metric_names::MAX_NAMES;

/// The longest delay of counters.
const FLUSH_AFTER: Span = Span::from_millis(100);

const UNCOUNTED: &str = metric!(Uncounted);

/// A counter of one buffer: its place there, or the host's number where the host adds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(usize);

/// Counts that are not handed over yet.
#[derive(Default)]
struct Counts {
    /// For each counter the host's number, and the count that is pending.
    pending: Vec<(u32, i64)>,
    /// Indexes by the host's numbers: both as wide as those of other maps, so that it is one code.
    indexes: SlabMap<u64, u64>,
    /// The counters with a pending count.
    changed: Vec<usize>,
}

/// The counters of one root.
pub struct CounterBuffer<H> {
    host: H,
    pub timer: Rc<Timer<H>>,
    counts: Cell<Counts>,
    gauge: Cell<Option<u32>>,
    has_ended: Cell<bool>,
}

impl<H: Proxy> CounterBuffer<H> {
    /// Nothing is counted.
    pub fn new(host: H, timer: Rc<Timer<H>>) -> Self {
        let (counts, gauge, has_ended) = Default::default();
        Self { host, timer, counts, gauge, has_ended }
    }

    /// The counter `name`, the same for the same name; `None` if the host has none.
    pub fn define(&self, name: &str) -> Option<Counter> {
        if self.gauge.get().is_none() {
            self.gauge.set(self.host.define_gauge(UNCOUNTED));
        }
        let number = self.host.define(name)?;
        if H::IS_CHEAP {
            return usize::try_from(number).ok().map(Counter);
        }
        self.with(|counts| {
            if let Some(index) = counts.indexes.get(&number.into()) {
                return usize::try_from(*index).ok().map(Counter);
            }
            let index = counts.pending.len();
            (index < MAX_NAMES).then(|| {
                counts.pending.push((number, 0));
                counts.indexes.insert(number.into(), index.try_into().unwrap_or(u64::MAX));
                Counter(index)
            })
        })
    }

    /// Adds to a counter; nothing to none.
    pub fn add(&self, counter: Option<Counter>, by: i64) {
        let Some(Counter(index)) = counter.filter(|_| by > 0) else { return };
        if H::IS_CHEAP {
            let number = u32::try_from(index).ok();
            return number.into_iter().for_each(|number| self.host.add(number, by));
        }
        let is_first = self.with(|counts| {
            let (_, pending) = counts.pending.get_mut(index)?;
            let was_empty = *pending == 0;
            *pending = pending.saturating_add(by);
            if was_empty {
                counts.changed.push(index);
            }
            Some(was_empty && counts.changed.len() == 1)
        });
        if is_first == Some(true) {
            self.begin();
        }
    }

    /// Notes that a count is pending now.
    fn begin(&self) {
        self.change_gauge(1);
        match self.host.now().filter(|_| !self.has_ended.get()) {
            Some(now) => {
                self.timer.set(TimerUser::Counters, Some(now.saturating_add(FLUSH_AFTER)), now);
            }
            None => self.flush(),
        }
    }

    /// Hands the counts over.
    pub fn flush(&self) {
        let taken = self.with(|counts| {
            let changed = core::mem::take(&mut counts.changed);
            let take = |index: usize| {
                let (number, pending) = counts.pending.get_mut(index)?;
                Some((*number, core::mem::take(pending)))
            };
            changed.into_iter().filter_map(take).collect::<Vec<_>>()
        });
        for (number, count) in &taken {
            self.host.add(*number, *count);
        }
        if !taken.is_empty() {
            self.change_gauge(-1);
        }
        if !self.has_ended.get() {
            self.timer.set(TimerUser::Counters, None, self.host.now().unwrap_or_default());
        }
    }

    /// The root ends: no count is kept from now on, because no timer will come.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.flush();
    }

    fn change_gauge(&self, by: i64) {
        if let Some(gauge) = self.gauge.get() {
            self.host.add(gauge, by);
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Counts) -> R) -> R {
        with(&self.counts, act)
    }
}
