//! Envoy's metrics, for the filter of one thread.
//!
//! Invariant: each count reaches Envoy once. What is counted while no stream of its configuration
//! is at hand is kept, and handed over by the next stream of it on this thread; on the main thread
//! by the configuration. Not here: names.

use std::cell::{Cell, RefCell};

use crate::abi::{self, MetricKind, Stream};
use crate::configuration::Configuration;

/// By what a count reaches Envoy.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A stream of the configuration.
    Stream(Stream),
    /// The configuration, on the main thread.
    Configuration(abi::Configuration),
}

impl Target {
    /// Adds to a counter or a gauge, or records a value in a histogram; false when this Envoy
    /// cannot: 1.38 counts by streams alone.
    fn count(self, kind: MetricKind, number: usize, by: i64) -> bool {
        match self {
            Self::Stream(stream) => stream.count(kind, number, by),
            Self::Configuration(envoy) => return envoy.count(kind, number, by),
        }
        true
    }

    fn set(self, kind: MetricKind, number: usize, value: u64) -> bool {
        let is_gauge = kind == MetricKind::Gauge;
        match self {
            Self::Stream(stream) if is_gauge => stream.set_gauge(number, value),
            Self::Configuration(envoy) if is_gauge => return envoy.set_gauge(number, value),
            Self::Stream(_) | Self::Configuration(_) => {
                return self.count(kind, number, i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
        true
    }
}

/// A metric, as one configuration has it.
struct Metric {
    name: Box<str>,
    kind: MetricKind,
    /// 0 for none: the place is free.
    configuration: usize,
    /// Envoy's number.
    number: usize,
    /// The count that is not handed over.
    kept: i64,
    /// The same of values: the last one of a gauge, at most [`MOST_VALUES`] of a histogram.
    values: Vec<u64>,
}

/// As many values of a histogram are kept for a stream of its configuration; later ones are lost.
const MOST_VALUES: usize = 256;

impl Metric {
    const fn is_kept(&self) -> bool {
        self.kept != 0 || !self.values.is_empty()
    }

    fn keep_value(&mut self, value: u64) {
        if self.kind == MetricKind::Gauge {
            self.values.clear();
        }
        if self.values.len() < MOST_VALUES {
            self.values.push(value);
        }
    }
}

/// Those that the filter of this thread has asked for; their indexes are the filter's numbers.
#[derive(Default)]
pub(crate) struct Metrics {
    all: RefCell<Vec<Metric>>,
    /// True when something may be kept.
    has_kept: Cell<bool>,
}

impl Metrics {
    /// The index of a metric; `None` when Envoy has none of this name.
    pub(crate) fn index(
        &self,
        kind: MetricKind,
        name: &str,
        configuration: &Configuration,
        configuring: Option<abi::Configuration>,
    ) -> Option<u32> {
        let number = configuration.metric(kind, name, configuring)?;
        let configuration = configuration.number;
        let mut all = self.all.borrow_mut();
        let is_it = |it: &Metric| {
            it.configuration == configuration && it.kind == kind && it.number == number
        };
        let known = all.iter().position(is_it);
        let index = known.unwrap_or_else(|| {
            let (kept, values) = (0, Vec::new());
            let metric = Metric { name: name.into(), kind, configuration, number, kept, values };
            let free = all.iter().position(|it| it.configuration == 0).unwrap_or(all.len());
            match all.get_mut(free) {
                Some(place) => *place = metric,
                None => all.push(metric),
            }
            free
        });
        u32::try_from(index).ok()
    }

    /// Adds to a counter or a gauge, by `target` if that is of the same configuration.
    pub(crate) fn add(&self, index: u32, by: i64, target: Option<(Target, usize)>) {
        let is_counted = |kind, number, target: Target| target.count(kind, number, by);
        self.count_or_keep(index, target, is_counted, |metric| {
            metric.kept = metric.kept.saturating_add(by);
        });
    }

    /// Sets a gauge or records in a histogram; see [`MOST_VALUES`].
    pub(crate) fn record(&self, index: u32, value: u64, target: Option<(Target, usize)>) {
        let is_set = |kind, number, target: Target| target.set(kind, number, value);
        self.count_or_keep(index, target, is_set, |metric| metric.keep_value(value));
    }

    fn count_or_keep(
        &self,
        index: u32,
        target: Option<(Target, usize)>,
        is_counted: impl FnOnce(MetricKind, usize, Target) -> bool,
        keep: impl FnOnce(&mut Metric),
    ) {
        let of = |metric: &mut Metric| (metric.kind, metric.number, metric.configuration);
        let known = get(&mut self.all.borrow_mut(), index).map(of);
        let Some((kind, number, configuration)) = known else { return };
        let target = target.filter(|(_, it)| *it == configuration);
        if target.is_none_or(|(target, _)| !is_counted(kind, number, target)) {
            self.has_kept.set(true);
            get(&mut self.all.borrow_mut(), index).map(keep).unwrap_or_default();
        }
    }

    /// Hands over what was kept, also for a configuration that has ended: Envoy has one metric for
    /// all configurations that define a name.
    pub(crate) fn hand_over(&self, target: Target, configuration: usize) {
        if !self.has_kept.get() {
            return;
        }
        let Some(configuration) = Configuration::find(configuration) else { return };
        let mut due = Vec::new();
        for metric in self.all.borrow_mut().iter_mut().filter(|metric| metric.is_kept()) {
            let (kept, values) = (&mut metric.kept, &mut metric.values);
            match configuration.metric(metric.kind, &metric.name, None) {
                Some(number) => {
                    due.push((metric.kind, number, core::mem::take(kept), core::mem::take(values)));
                }
                // No configuration has it any more.
                None if Configuration::find(metric.configuration).is_none() => {
                    (*kept, metric.configuration) = (0, 0);
                    values.clear();
                }
                None => {}
            }
        }
        self.has_kept.set(self.all.borrow().iter().any(Metric::is_kept));
        // An Envoy that takes none of the main thread's counts loses them.
        for (kind, number, kept, values) in due {
            if kept != 0 {
                target.count(kind, number, kept);
            }
            values.into_iter().for_each(|value| _ = target.set(kind, number, value));
        }
    }

    /// Frees those of a configuration that has ended and left nothing.
    pub(crate) fn forget(&self, configuration: usize) {
        for metric in self.all.borrow_mut().iter_mut() {
            if metric.configuration == configuration && !metric.is_kept() {
                metric.configuration = 0;
            }
        }
    }
}

fn get(all: &mut [Metric], index: u32) -> Option<&mut Metric> {
    all.get_mut(usize::try_from(index).ok()?)
}
