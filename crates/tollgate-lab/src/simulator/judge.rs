//! The exact twin of a policy, which decides the same requests.
//!
//! Invariant: the twin has the same binding rules, keys and quotas. Each of its quotas is an
//! [`ExactLog`] of the same limit and window, all or nothing, and logs the requests that the twin
//! itself allowed. A request that the policy allows and the twin denies is a false allow, the
//! reverse a false deny. A request is reported when it is sent on or denied, so a delayed one
//! counts at its departure. Requests are reported in that order.
//!
//! Deliberately absent: bursts. The twin holds `limit` in any true `window`, whatever burst a quota
//! has.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;
use tollgate_core::Timestamp;
use tollgate_policy::{CompiledQuota, Policy, QuotaSet};

use crate::simulator::exact_log::{ExactLog, WindowCount};
use crate::simulator::node_decision::{NodeDecision, RuleDecision};
use crate::simulator::tenants::SetNumbers;

/// The number of keys from which idle ones are removed, each time that the number has doubled.
const FEW: usize = 4_096;

/// The twin and its results.
#[derive(Debug)]
pub(crate) struct Judge {
    keys: HashTable<Key>,
    /// How many keys there may be before idle ones are removed.
    room: usize,
    later: BinaryHeap<Reverse<LaterReport>>,
    later_count: u64,
    charges: Vec<SetCharge>,
    /// The numbers by which quota sets are known here.
    pub(crate) sets: SetNumbers,
    /// For each quota of each set: the greatest count in a window, and at one instant.
    pub(crate) most: Vec<Vec<(u64, u64)>>,
    pub(crate) false_allow: u64,
    pub(crate) false_deny: u64,
}

/// The state of one key in one quota set.
#[derive(Debug)]
struct Key {
    set: usize,
    hash: u64,
    quotas: Vec<Pair>,
}

/// One quota: the twin's log, and the units that the policy allowed.
#[derive(Debug)]
struct Pair {
    twin: ExactLog,
    admitted: WindowCount,
}

/// How one quota set counts a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SetCharge {
    set: usize,
    /// `None` when the request has no such key and is therefore denied.
    hash: Option<u64>,
    cost: u64,
    /// The limits of the request, one per quota; empty where it has those of the quotas.
    limits: Vec<u64>,
    /// The units of it that its response finally used.
    used: u64,
}

/// A request that is reported later: by time, and by order of arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LaterReport {
    at: Timestamp,
    order: u64,
    is_admitted: bool,
    charges: Vec<SetCharge>,
}

/// The result of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// The exact twin allows it.
    pub admits: bool,
    /// The units of its key that the policy allowed within the window that ends now, for the first
    /// quota of the first binding rule; `None` when there is none.
    pub count: Option<u128>,
}

impl Judge {
    pub(crate) fn new(policy: &Policy) -> Self {
        let most = policy.quota_sets().iter().map(|set| vec![(0, 0); set.quotas().len()]).collect();
        Self {
            keys: HashTable::new(),
            room: FEW,
            later: BinaryHeap::new(),
            later_count: 0,
            charges: Vec::new(),
            sets: SetNumbers::new(policy),
            most,
            false_allow: 0,
            false_deny: 0,
        }
    }

    /// Reports a request that is sent on or denied at the true time `at`. `now` is the true time up
    /// to which everything is reported. `None` when `at` is later: then it is reported at that
    /// time.
    pub(crate) fn record(
        &mut self,
        decided: &NodeDecision<'_>,
        is_admitted: bool,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Exact> {
        self.release(decided.policy, now);
        if decided.is_denied_without_count() {
            return Some(Exact { admits: false, count: None }); // the twin has the same deny rules
        }
        if self.is_over_in_flight(decided) {
            return Some(Exact { admits: false, count: None }); // and the same of these
        }
        let response = decided.arrival.response;
        let mut charges = std::mem::take(&mut self.charges);
        charges.clear();
        let (sets, most) = (&mut self.sets, &mut self.most);
        let counts = |rule: &RuleDecision<'_>| rule.is_binding && !rule.is_in_flight();
        charges.extend(decided.rules().filter(counts).map(|rule| {
            let set = sets.number(rule.quota_set, rule.set);
            if set >= most.len() {
                most.push(vec![(0, 0); rule.set.quotas().len()]);
            }
            SetCharge {
                set,
                hash: rule.key_hash,
                cost: rule.cost,
                limits: if rule.set.varies() {
                    rule.set.quotas().iter().map(|quota| quota.limiter().capacity()).collect()
                } else {
                    Vec::new()
                },
                used: decided
                    .policy
                    .rules()
                    .get(rule.rule)
                    .map_or(rule.cost, |it| it.used(rule.cost, response.ending(), &response)),
            }
        }));
        if at > now {
            self.later_count = self.later_count.saturating_add(1);
            self.later.push(Reverse(LaterReport {
                at,
                order: self.later_count,
                is_admitted,
                charges,
            }));
            return None;
        }
        let exact = self.judge(decided.policy, &charges, is_admitted, at);
        self.charges = charges;
        Some(exact)
    }

    /// True when a limit on requests in flight denies the request. The twin has no such limits:
    /// what is counted is exact. The most requests at the same time are recorded.
    fn is_over_in_flight(&mut self, decided: &NodeDecision<'_>) -> bool {
        let mut is_denied = false;
        for rule in decided.rules().filter(|rule| rule.is_binding && rule.is_in_flight()) {
            let set = self.sets.number(rule.quota_set, rule.set);
            is_denied |= rule.denied_by().is_some();
            let most = self.most.get_mut(set).map(Vec::as_mut_slice).unwrap_or_default();
            for ((_, decision), most) in rule.quotas().zip(most) {
                most.0 = most.0.max(decision.limit.saturating_sub(decision.remaining));
            }
        }
        is_denied
    }

    /// Reports every request that is sent on until `now`.
    pub(crate) fn release(&mut self, policy: &Policy, now: Timestamp) {
        while self.later.peek().is_some_and(|Reverse(report)| report.at <= now) {
            if let Some(Reverse(report)) = self.later.pop() {
                self.judge(policy, &report.charges, report.is_admitted, report.at);
            }
        }
    }

    fn judge(
        &mut self,
        policy: &Policy,
        charges: &[SetCharge],
        is_admitted: bool,
        at: Timestamp,
    ) -> Exact {
        self.forget_idle(at);
        let mut admits = true;
        for one in charges {
            let pairs = pairs(&mut self.keys, &self.sets, policy, one);
            let fits = |(i, pair): (usize, &mut Pair)| match one.limits.get(i) {
                Some(limit) => pair.twin.admits_within(at, one.cost, *limit),
                None => pair.twin.admits(at, one.cost),
            };
            admits &= pairs.is_some_and(|pairs| pairs.enumerate().all(fits));
        }
        let mut count = None;
        for one in charges {
            let Some(pairs) = pairs(&mut self.keys, &self.sets, policy, one) else { continue };
            let most = self.most.get_mut(one.set).map(Vec::as_mut_slice).unwrap_or_default();
            for (pair, most) in pairs.zip(most) {
                if admits && one.used > 0 {
                    pair.twin.record(at, one.used);
                }
                if is_admitted && one.used > 0 {
                    pair.admitted.record(at, one.used);
                    most.0 = most.0.max(pair.admitted.most());
                    most.1 = most.1.max(pair.admitted.most_at_once());
                }
                count = count.or_else(|| Some(pair.admitted.at(at)));
            }
        }
        match (is_admitted, admits) {
            (true, false) => self.false_allow = self.false_allow.saturating_add(1),
            (false, true) => self.false_deny = self.false_deny.saturating_add(1),
            (true, true) | (false, false) => {}
        }
        Exact { admits, count }
    }

    /// Removes idle keys each time that the number of keys has doubled.
    fn forget_idle(&mut self, at: Timestamp) {
        if self.keys.len() < self.room {
            return;
        }
        self.keys.retain(|key| {
            let is_idle = |pair: &mut Pair| pair.twin.is_idle(at) && pair.admitted.at(at) == 0;
            !key.quotas.iter_mut().all(is_idle)
        });
        self.room = self.keys.len().saturating_mul(2).max(FEW);
    }
}

/// The state of a request's key in one quota set; `None` when it has no such key.
fn pairs<'k>(
    keys: &'k mut HashTable<Key>,
    sets: &SetNumbers,
    policy: &Policy,
    charge: &SetCharge,
) -> Option<impl Iterator<Item = &'k mut Pair>> {
    let (set, hash) = (charge.set, charge.hash?);
    let of_key = |key: &Key| key.hash; // it is a keyed hash already
    let known = keys.entry(hash, |key| key.hash == hash && key.set == set, of_key);
    let key = known.or_insert_with(|| {
        let quotas = sets.set(policy, set).map(QuotaSet::quotas).unwrap_or_default();
        let pair = |quota: &CompiledQuota| Pair {
            twin: ExactLog::new(quota.limiter().limit(), quota.window()),
            admitted: WindowCount::new(quota.window()),
        };
        Key { set, hash, quotas: quotas.iter().map(pair).collect() }
    });
    Some(key.into_mut().quotas.iter_mut())
}
