//! The reports on a policy in force for the operator: its metrics, the access log, and a line in
//! the log about the keys that are denied most.
//!
//! Invariant: bounded, whatever clients send; a request that all rules allow costs a few additions.
//! Deliberately absent: decisions.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Outcome, Settlement};

use crate::config::Config;
use crate::counts::commit_stats::CommitStats;
use crate::host::proxy::Proxy;
use crate::host::timer::TimerUser;
use crate::observability::access_log::{self, Decided};
use crate::observability::address_check::AddressCheck;
use crate::observability::counter_buffer::CounterBuffer;
use crate::observability::denied_keys::DeniedKeys;
use crate::observability::labels::Labels;
use crate::observability::metrics::{LeaseEvent, Metrics, Wait};
use crate::request::facts::RequestFacts;

/// How often the log reports the keys that are denied most.
const LOG_INTERVAL: Span = Span::from_secs(60);

/// The reports on one policy.
pub struct Observer<H> {
    host: H,
    plugin: String,
    version: u64,
    pub labels: Labels,
    pub metrics: Metrics,
    counters: Rc<CounterBuffer<H>>,
    addresses: AddressCheck<H>,
    denied_keys: Cell<DeniedKeys>,
    /// Of the access log's fields, for its memory.
    text: Cell<String>,
    /// When the log reports the keys that are denied most.
    log_at: Cell<Option<Timestamp>>,
    has_ended: Cell<bool>,
}

impl<H: Proxy> Observer<H> {
    /// The observer of the policy of `config`; its tables contain nothing yet if they are `new`.
    pub fn new(host: H, config: &Config, is_new: bool, counters: &Rc<CounterBuffer<H>>) -> Self {
        let labels = Labels::new(&config.policy);
        let define = &mut |name: &str| counters.define(name);
        let mut metrics = Metrics::define(&config.policy, &labels, &config.plugin, &host, define);
        if H::IS_FIXED && config.follows {
            metrics.define_rest(&host, define);
        }
        metrics.set_room(&config.tables, is_new, &host);
        let addresses = AddressCheck::new(host.clone(), config);
        Self {
            host,
            addresses,
            plugin: config.plugin.clone(),
            version: config.policy.version(),
            labels,
            metrics,
            counters: Rc::clone(counters),
            denied_keys: Cell::default(),
            text: Cell::default(),
            log_at: Cell::default(),
            has_ended: Cell::default(),
        }
    }

    /// The final decision on the request of the current context, which came this long after it.
    pub fn count(&self, outcome: &Outcome<'_>, waited: Span) {
        let plan = outcome.plan();
        let denied_by = outcome.refused_key();
        if self.metrics.count(outcome, waited, plan.has_failed(), &self.counters) {
            let (labels, version) = (&self.labels, self.version);
            let mut text = self.text.take();
            let decided = Decided { outcome, waited, denied_by, labels, version };
            access_log::push_fields(&decided, &mut text);
            self.host.set_filter_state(H::DECISION_STATE, &text);
            text.clear();
            self.text.set(text);
        }
        if let Some(rule) = outcome.refused_by() {
            self.record_denial(denied_by.map(|(_, pk)| (rule, pk)));
        } else if plan.is_denied() {
            self.record_denial(None);
        }
    }

    /// Checks a request whose rules have already read the facts they need.
    pub fn check_address(&self, facts: &RequestFacts<H>) {
        self.addresses.check(facts);
    }

    /// Counts requests in flight that were confirmed too late.
    pub fn count_late(&self, count: usize) {
        self.metrics.count_late(count, &self.counters);
    }

    /// The costs of `plan` that the response to the request of the current context just settled; at
    /// its end the host has written its log. The log has the earlier ones, too: of several rules
    /// one may be settled by the head and another by the body.
    pub fn count_costs(&self, settlement: &Settlement<'_>, has_ended: bool) {
        let costs = settlement.costs();
        if costs.is_empty() {
            return;
        }
        self.metrics.count_costs(costs, &self.counters);
        if !has_ended {
            let fields = access_log::costs(settlement.all_costs(), &self.labels);
            self.host.set_filter_state(H::COST_STATE, &fields);
        }
    }

    /// A request that no rule applied to.
    pub fn count_unlimited(&self) {
        self.metrics.count_unlimited(&self.counters);
    }

    /// A request that is denied because nothing can be known about it.
    pub fn count_undecided(&self) {
        self.add(&CommitStats { failures: 1, ..CommitStats::default() });
        self.metrics.count_undecided(&self.counters);
        self.host.set_filter_state(H::DECISION_STATE, access_log::UNDECIDED);
    }

    /// Counts the other events of a commit.
    pub fn add(&self, stats: &CommitStats) {
        self.metrics.add(stats, &self.host, &self.counters);
    }

    /// A request that continues has waited this long.
    pub fn count_waited(&self, waited: Span) {
        self.metrics.wait(waited, &self.host);
    }

    /// An event of a request that waits, or would wait.
    pub fn count_wait(&self, wait: Wait) {
        self.metrics.count_wait(wait, &self.counters);
    }

    /// The outcome of this many lease requests.
    pub fn count_lease_event(&self, event: LeaseEvent, count: usize) {
        self.metrics.count_lease_event(event, count, &self.counters);
    }

    /// Logs the keys that were denied most, when that is due. Returns when it is due next.
    pub fn tick(&self, now: Timestamp) -> Option<Timestamp> {
        if self.log_at.get().is_some_and(|at| at <= now) {
            self.log_denied_keys(LOG_INTERVAL);
        }
        self.log_at.get()
    }

    /// The root is then called for this policy and its others.
    pub fn wake_at(&self, at: Option<Timestamp>, now: Timestamp) {
        self.counters.timer.set(TimerUser::Logs, at, now);
    }

    /// The policy decides no new requests: its pending log lines are written now. Later denials of
    /// its waiting requests are in the metrics alone.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.addresses.end();
        if let Some(at) = self.log_at.get() {
            let now = self.host.now().unwrap_or_default();
            self.log_denied_keys(LOG_INTERVAL.saturating_sub(at.since(now)));
            self.counters.timer.set(TimerUser::Logs, None, now);
        }
    }

    fn record_denial(&self, key: Option<(usize, u64)>) {
        if self.has_ended.get() {
            return;
        }
        let mut denied_keys = self.denied_keys.take();
        denied_keys.add(key);
        self.denied_keys.set(denied_keys);
        if self.log_at.get().is_none()
            && let Some(now) = self.host.now()
        {
            let at = now.saturating_add(LOG_INTERVAL);
            self.log_at.set(Some(at));
            // Another policy of this root may have a line to log before.
            let first =
                self.counters.timer.wanted(TimerUser::Logs).map_or(at, |other| other.min(at));
            self.counters.timer.set(TimerUser::Logs, Some(first), now);
        }
    }

    fn log_denied_keys(&self, since: Span) {
        self.log_at.set(None);
        let denied_keys = self.denied_keys.take();
        if !denied_keys.is_empty() {
            let line = denied_keys.line(&self.labels, since.as_millis_ceil().div_ceil(1000));
            self.host.log_info(&format!("tollgate: plugin {}: {line}", self.plugin));
        }
    }
}
