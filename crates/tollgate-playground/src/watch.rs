//! One run as a plot follows it: counts over time, and the state of one key.
//!
//! Invariant: the key is chosen before the run, so that one pass shows all of it. It is the key of
//! the client with the most requests among the first [`LOOKED_AT`] requests, in the first rule that
//! counts it by one. Its states were decided by the run itself; only the true count is counted
//! here, by the simulator's own counter.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use serde::Serialize;
use tollgate_core::{Limiter, Span, Timestamp, Verdict};
use tollgate_lab::simulator::{
    Fate, ObservedDecision, Request, Requests, RuleDecision, START, Traffic, WindowCount,
};
use tollgate_policy::{Plan, Policy};

use crate::bins::{Bins, QuotaState, RequestEvent};

/// The number of requests among which the client is chosen.
const LOOKED_AT: usize = 20_000;

/// The key whose state the series show.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WatchedKey {
    rule: String,
    tier: Option<String>,
    /// The first quota of the rule.
    quota: String,
    algorithm: &'static str,
    limit: u64,
    window_ms: u64,
    burst: u64,
    /// The address of the client; others may share its key.
    client: String,
    #[serde(skip)]
    rule_index: usize,
    #[serde(skip)]
    set_index: usize,
    #[serde(skip)]
    window: Span,
    #[serde(skip)]
    key: Vec<u8>,
}

/// The plots of a running simulation.
#[derive(Debug)]
pub(crate) struct Watch {
    policy: Arc<Policy>,
    pub(crate) bins: Bins,
    pub(crate) watched: Option<WatchedKey>,
    /// The allowed units of the watched key.
    count: WindowCount,
    /// Requests that leave later.
    later: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// The bin up to which the true count is recorded.
    reported: usize,
}

impl Watch {
    pub(crate) fn new(policy: &Arc<Policy>, traffic: &Traffic, seed: u64) -> Self {
        let watched = choose(policy, traffic, seed);
        let window = watched.as_ref().map_or(Span::ZERO, |watched| watched.window);
        Self {
            policy: Arc::clone(policy),
            bins: Bins::new(traffic.length()),
            watched,
            count: WindowCount::new(window),
            later: BinaryHeap::new(),
            reported: 0,
        }
    }

    /// Records one decision; `is_new` for a request that comes, but not for one that waited.
    pub(crate) fn see(&mut self, seen: &ObservedDecision<'_>, is_new: bool) {
        if is_new {
            self.bins.count(seen.request.at.since(START), RequestEvent::Offered);
        }
        let since = seen.at.since(START);
        let (counted, leaves_at) = ended(seen);
        if let Some(counted) = counted {
            self.bins.count(since, counted);
        }
        let Some(watched) = &self.watched else { return };
        let rule = seen.decided.rules().find(|rule| watched.is_counted_by(rule));
        let Some(rule) = rule else { return };
        let Some((quota, decision)) = rule.quotas().next() else { return };
        let burst = quota.limiter().capacity();
        // A request that is held back has no stored states. Its queue is empty when its own part
        // is.
        let kept = rule.partition.filter(|partition| !partition.value().is_empty());
        let whole_after = match (kept, decision.verdict) {
            (Some(kept), _) => Some(kept.idle_at(&self.policy).since(seen.decided.at())),
            (None, Verdict::Delay(wait)) => {
                Some(wait.saturating_add(part(quota.limiter(), rule.cost)))
            }
            (None, _) => None,
        };
        let is_admitted = matches!(counted, Some(RequestEvent::Admitted | RequestEvent::Delayed));
        let state = QuotaState {
            remaining: decision.remaining,
            estimate: burst.saturating_sub(decision.remaining),
            whole_after,
            wait: is_admitted.then(|| leaves_at.since(seen.request.at)),
        };
        self.bins.state(since, state);
        if is_admitted {
            self.later.push(Reverse((leaves_at, rule.cost)));
        }
        self.until(seen.at);
    }

    /// Records the true count to the end of the run.
    pub(crate) fn end(&mut self, length: Span) {
        self.until(START.saturating_add(length));
    }

    /// Counts the requests that leave until `now`, and records each bin's true count.
    fn until(&mut self, now: Timestamp) {
        while let Some(Reverse((at, cost))) =
            self.later.peek().copied().filter(|one| one.0.0 <= now)
        {
            self.later.pop();
            self.bins_until(at);
            self.count.record(at, cost);
            let units = u64::try_from(self.count.at(at)).unwrap_or(u64::MAX);
            self.bins.true_count(self.bins.index(at.since(START)), units);
        }
        self.bins_until(now);
    }

    /// Records the count at the beginning of each bin up to that of `now`.
    fn bins_until(&mut self, now: Timestamp) {
        let last = self.bins.index(now.since(START));
        while self.watched.is_some() && self.reported < last {
            self.reported = self.reported.saturating_add(1);
            let begins = START.saturating_add(self.bins.begins(self.reported));
            let units = u64::try_from(self.count.at(begins)).unwrap_or(u64::MAX);
            self.bins.true_count(self.reported, units);
        }
    }
}

impl WatchedKey {
    fn is_counted_by(&self, rule: &RuleDecision<'_>) -> bool {
        rule.rule == self.rule_index
            && rule.quota_set == self.set_index
            && rule.partition.is_some_and(|partition| partition.key() == self.key)
    }
}

/// How long a queue takes to serve this many units, rounded up to a nanosecond.
fn part(limiter: &Limiter, units: u64) -> Span {
    let window = u128::from(limiter.window().as_nanos());
    let nanos = window.saturating_mul(units.into()).div_ceil(u128::from(limiter.limit().max(1)));
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The result of a request, and when it leaves; no result yet for one that waits in a line.
pub(crate) fn ended(seen: &ObservedDecision<'_>) -> (Option<RequestEvent>, Timestamp) {
    let more = match seen.decided.fate() {
        Fate::Waiting => return (None, seen.at),
        Fate::Denied { .. } => return (Some(RequestEvent::Denied), seen.at),
        Fate::Admitted => Span::ZERO,
        Fate::Delayed(wait) => wait.saturating_sub(seen.decided.waited()),
    };
    let leaves_at = seen.at.saturating_add(more);
    let is_late = leaves_at > seen.request.at;
    (Some(if is_late { RequestEvent::Delayed } else { RequestEvent::Admitted }), leaves_at)
}

/// The key to watch; `None` when no rule counts the traffic.
fn choose(policy: &Arc<Policy>, traffic: &Traffic, seed: u64) -> Option<WatchedKey> {
    let mut requests = Requests::new(traffic, seed);
    let mut counts: BTreeMap<u64, (usize, Reverse<usize>, Request)> = BTreeMap::new();
    for number in 0..LOOKED_AT {
        let Some(request) = requests.next_request() else { break };
        let one = counts.entry(request.client).or_insert((0, Reverse(number), request));
        one.0 = one.0.saturating_add(1);
    }
    // Of clients with equally many requests, the one that came first.
    let (.., request) = counts.into_values().max_by_key(|(count, first, _)| (*count, *first))?;
    let facts = requests.facts(request)?;
    let mut plan = Plan::new();
    policy.plan(&facts, &mut plan);
    plan.each_partition(|partition| partition.load(policy, None));
    plan.decide(policy, request.at);
    let outcome = plan.outcome(policy);
    let counted = outcome.decisions().find_map(|rule| {
        let partition = plan.partition(rule.partition?)?;
        let set = policy.quota_sets().get(rule.quota_set)?;
        Some((rule.rule, rule.quota_set, set, set.quotas().first()?, partition.key().to_vec()))
    });
    let (rule_index, set_index, set, quota, key) = counted?;
    let limiter = quota.limiter();
    Some(WatchedKey {
        rule: policy.rules().get(rule_index)?.name().to_owned(),
        tier: set.tier().map(str::to_owned),
        quota: quota.name().to_owned(),
        algorithm: limiter.counts_by(),
        limit: limiter.limit(),
        window_ms: limiter.window().as_millis_ceil(),
        burst: limiter.capacity(),
        client: request.address().to_string(),
        rule_index,
        set_index,
        window: limiter.window(),
        key,
    })
}
