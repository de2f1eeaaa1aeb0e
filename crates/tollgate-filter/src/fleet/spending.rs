//! Rules of a fleet under the policy in force: spends the leases that the workers of this process
//! hold, and builds lease requests.
//!
//! Invariant: either all keys of one request are paid or requested, or nothing is taken of any.
//! Deliberately absent: sending, waiting, and the handling of the request.

use core::num::NonZeroU64;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Failure, Node, Paid, Plan, Spending};
use tollgate_storage::table::Table;
use tollgate_storage::{DirectAnswer, LeaseKey, LeaseRule, Leased};

use crate::active_policy::ActivePolicy;
use crate::counts::commit_stats::CommitStats;
use crate::fleet::holdings::{Change, HoldingsKey, change};
use crate::host::proxy::Proxy;
use crate::observability::metrics::LeaseEvent;

/// The wait when no better time is known.
const DEFAULT_WAIT: Span = Span::from_secs(1);

/// A key in a lease request.
pub struct RequestedKey {
    /// Its number in the plan of the request that waits for the response, if one does.
    pub partition: Option<usize>,
    /// The key of its holdings.
    pub holdings_key: HoldingsKey,
    /// The content of the lease request about it.
    pub key: LeaseKey,
}

/// The units taken for a request, and the keys of its lease requests.
#[derive(Default)]
pub struct SpentLeases {
    /// The leases that paid, with the partition.
    pub paid: Vec<(usize, Paid)>,
    /// Keys to request for the request.
    pub requests: Vec<RequestedKey>,
    /// Keys to request in advance, for which no request waits.
    pub prefetches: Vec<RequestedKey>,
}

/// The progress of a request with the rules of the fleet.
pub enum SpendStatus {
    /// All of them are paid.
    Paid,
    /// A lease request is to be sent.
    Request,
    /// A lease request about this key is in flight; nothing was taken.
    Wait(HoldingsKey),
    /// A lease request is needed and may not be sent; nothing was taken.
    Blocked,
    /// It was denied so recently that it is denied again; nothing was taken.
    Denied,
}

impl<H: Proxy> ActivePolicy<H> {
    /// The authority's cluster.
    pub fn cluster(&self) -> &str {
        self.config.fleet.as_ref().map_or("", |fleet| &fleet.cluster)
    }

    /// The timeout of a lease request.
    pub fn lease_timeout(&self) -> Span {
        self.config.fleet.as_ref().map_or(Span::ZERO, |fleet| fleet.timeout)
    }

    /// Takes the request's costs under the rules of the fleet.
    pub fn spend(&self, plan: &mut Plan, may_ask: bool) -> (SpendStatus, SpentLeases) {
        let (mut spent, mut stats) = (SpentLeases::default(), CommitStats::default());
        let (mut status, mut denied_by) = (SpendStatus::Paid, None);
        for i in 0..plan.len() {
            let Some(place) = self.holdings_key(plan, i) else { continue };
            if let Some(mut partition) = plan.partition_mut(i) {
                partition.take_up();
            }
            match self.spend_one(plan, (i, place), may_ask, &mut stats) {
                Ok(Spending::Paid { paid, ahead }) => {
                    spent.paid.extend(paid.into_iter().map(|paid| (i, paid)));
                    spent.prefetches.extend(self.requested_key(plan, (i, place), ahead));
                }
                Ok(Spending::Ask { paid, rules }) => {
                    spent.paid.extend(paid.into_iter().map(|paid| (i, paid)));
                    let request = self.requested_key(plan, (i, place), rules);
                    spent
                        .requests
                        .extend(request.map(|it| RequestedKey { partition: Some(i), ..it }));
                    status = SpendStatus::Request;
                }
                Ok(Spending::Wait(_)) => {
                    status = SpendStatus::Wait(place);
                    break;
                }
                Ok(Spending::Closed) => {
                    status = SpendStatus::Blocked;
                    break;
                }
                Ok(Spending::Refused) => {
                    (status, denied_by) = (SpendStatus::Denied, Some(i));
                    break;
                }
                Err(failure) => self.fail_one(plan, i, failure, &mut stats),
            }
        }
        if let SpendStatus::Wait(_) | SpendStatus::Blocked | SpendStatus::Denied = status {
            self.return_all(plan, core::mem::take(&mut spent), &mut stats);
        }
        if let Some(denied_by) = denied_by {
            self.recall_others(plan, denied_by, &mut stats);
        }
        self.add(&stats);
        (status, spent)
    }

    fn spend_one(
        &self,
        plan: &mut Plan,
        (i, place): (usize, HoldingsKey),
        may_ask: bool,
        stats: &mut CommitStats,
    ) -> Result<Spending, Failure> {
        let node = self.node.as_ref().ok_or(Failure::Unreachable)?;
        let at = self.table(place).ok_or(Failure::Unreachable)?;
        let policy = &self.config.policy;
        let mut number = || node.number();
        change(&self.host, at, stats, |holdings, now| {
            let patience = self.lease_timeout();
            let mut node = Node { now, patience, may_ask, number: &mut number };
            let spending = plan
                .partition_mut(i)
                .map_or(Spending::Refused, |mut it| it.spend(policy, holdings, &mut node));
            match spending {
                Spending::Wait(_) | Spending::Closed | Spending::Refused => Change::Keep(spending),
                Spending::Paid { .. } | Spending::Ask { .. } => Change::Write(spending),
            }
        })
    }

    /// Adds the known state of the other keys of a request that one key denies from memory: a
    /// client sees the same quotas whether the authority was asked or not.
    fn recall_others(&self, plan: &mut Plan, denied_by: usize, stats: &mut CommitStats) {
        let policy = &self.config.policy;
        for i in (0..plan.len()).filter(|i| *i != denied_by) {
            let Some(place) = self.holdings_key(plan, i) else { continue };
            let Some(at) = self.table(place) else { continue };
            // If the host does not respond they are not shown.
            let _ = change(&self.host, at, stats, |holdings, now| {
                if let Some(mut partition) = plan.partition_mut(i) {
                    partition.recall(policy, holdings, now);
                }
                Change::Keep(())
            });
        }
    }

    /// Gives back the units of a request that does not continue; its lease requests are withdrawn.
    pub fn put_back(&self, plan: &mut Plan, spent: SpentLeases) {
        let mut stats = CommitStats::default();
        self.return_all(plan, spent, &mut stats);
        self.add(&stats);
    }

    fn return_all(&self, plan: &mut Plan, spent: SpentLeases, stats: &mut CommitStats) {
        for i in 0..plan.len() {
            let Some(place) = self.holdings_key(plan, i) else { continue };
            let of_it = spent.paid.iter().filter(|(partition, _)| *partition == i);
            let mut of_it = of_it.map(|(_, paid)| *paid).peekable();
            if of_it.peek().is_some()
                && let Some(mut partition) = plan.partition_mut(i)
            {
                partition.set_aside();
                let paid: Vec<Paid> = of_it.collect();
                self.change_holdings(place, stats, |holdings, now| {
                    for paid in &paid {
                        // A lease that ended since loses its rest.
                        holdings.of(paid.set).put_back(now, paid.number, paid.cost);
                    }
                });
            }
        }
        for key in spent.requests.iter().chain(&spent.prefetches) {
            self.withdraw(key, stats);
        }
    }

    /// Records that a lease request was never sent. Returns when the holdings are to be checked
    /// next, if they are.
    pub fn cancel_request(&self, requested: &RequestedKey) -> Option<Timestamp> {
        let mut stats = CommitStats::default();
        let next = self.withdraw(requested, &mut stats);
        self.add(&stats);
        next
    }

    fn withdraw(&self, requested: &RequestedKey, stats: &mut CommitStats) -> Option<Timestamp> {
        let next = self.change_holdings(requested.holdings_key, stats, |holdings, now| {
            for rule in requested.key.rules.iter().filter(|rule| rule.ask.number > 0) {
                holdings.of(rule.ask.set).unasked(rule.ask.number);
            }
            next_check(holdings, requested).map(|at| at.max(now.saturating_add(DEFAULT_WAIT)))
        });
        next.flatten()
    }

    /// Records the result for a key; `None` when there was no response. `direct` is the result for
    /// the request that waited for it, if one did. Returns when the holdings are to be checked
    /// next, if they are.
    pub fn record_results(
        &self,
        requested: &RequestedKey,
        leased: Option<&[Leased]>,
        direct: &[DirectAnswer],
    ) -> Option<Timestamp> {
        let mut stats = CommitStats::default();
        let rules = &requested.key.rules;
        let next = self.change_holdings(requested.holdings_key, &mut stats, |holdings, now| {
            for (i, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.ask.number > 0) {
                let holding = holdings.of(rule.ask.set);
                match leased.map(|leased| leased.get(i)) {
                    Some(Some(leased)) => {
                        holding.confirm(&rule.ask.reports);
                        holding.answer(rule.ask.number, rule.ask.within(*leased), now);
                    }
                    // The response contains nothing about leases: nothing was leased.
                    Some(None) => holding.unasked(rule.ask.number),
                    None => holding.fail(rule.ask.number),
                }
            }
            for answer in direct {
                holdings.of(answer.set).remember(now, answer);
            }
            let due = next_check(holdings, requested);
            // A repeated lease request is not sent at once: the authority may be away.
            due.map(
                |at| if leased.is_some() { at } else { at.max(now.saturating_add(DEFAULT_WAIT)) },
            )
        });
        let granted = leased.unwrap_or_default().iter().filter(|leased| leased.is_ok()).count();
        self.add(&stats);
        self.count_lease_event(LeaseEvent::Granted, granted);
        let refused = direct.iter().filter(|answer| answer.is_denial()).count();
        self.count_lease_event(LeaseEvent::Denied, refused);
        next.flatten()
    }

    /// Uses the authority's reply for the decision about a key, where the rules of `paid` are paid
    /// already. Returns the reply's results for the others, or `None` if it is malformed.
    pub fn take_reply(
        &self,
        plan: &mut Plan,
        requested: &RequestedKey,
        reply: &[u8],
        paid: &[(usize, Paid)],
    ) -> Option<Vec<DirectAnswer>> {
        let i = requested.partition?;
        let mut partition = plan.partition_mut(i)?;
        partition.accept(&self.config.policy, reply).ok()?;
        let of_it = paid.iter().filter(|(partition, _)| *partition == i);
        let of_it: Vec<Paid> = of_it.map(|(_, paid)| *paid).collect();
        let direct = partition.direct_answers(&self.config.policy, &of_it);
        let at = partition.view().decided_at();
        partition.pay(&self.config.policy, &of_it, at);
        Some(direct)
    }

    /// The lease request for the key of `requested` when no request spends: the remaining units go
    /// back before they end. Otherwise when to check again, if ever.
    pub fn check_key(&self, requested: &RequestedKey) -> Result<RequestedKey, Option<Timestamp>> {
        let mut stats = CommitStats::default();
        let Some(node) = self.node.as_ref() else { return Err(None) };
        let looked = self.change_holdings(requested.holdings_key, &mut stats, |holdings, now| {
            let mut rules = Vec::new();
            let mut is_due = false;
            for rule in &requested.key.rules {
                let mut rule = LeaseRule { cost: 0, ..rule.clone() };
                let holding = holdings.of(rule.ask.set);
                let LeaseRule { ask, .. } = &mut rule;
                if holding.is_due(now) {
                    let times = (ask.life, self.lease_timeout());
                    *ask = holding.ask(ask.set, node.number(), ask.least, now, times);
                    is_due = true;
                } else {
                    (ask.number, ask.want, ask.reports) = (0, 0, Vec::new());
                }
                rules.push(rule);
            }
            let next = next_check(holdings, requested);
            if is_due { Ok(rules) } else { Err(next) }
        });
        self.add(&stats);
        let rules = looked.unwrap_or(Err(None))?;
        let LeaseKey { group, hash, .. } = requested.key;
        let key = LeaseKey { group, hash, rules };
        Ok(RequestedKey { partition: None, holdings_key: requested.holdings_key, key })
    }

    /// The authority does not respond: rules that configure it count in a partition of this node
    /// alone, the others fail. True when all of them could count. Only the partitions that are
    /// `unanswered`, where some are: a denial of the authority about another one remains.
    pub fn count_locally(
        &self,
        plan: &mut Plan,
        unanswered: Option<&[usize]>,
        now: Timestamp,
    ) -> bool {
        let mut stats = CommitStats::default();
        let mut is_whole = true;
        for i in 0..plan.len() {
            let is_answered = unanswered.is_some_and(|unanswered| !unanswered.contains(&i));
            if is_answered || self.holdings_key(plan, i).is_none() {
                continue;
            }
            is_whole &= self.count_one_locally(plan, i, now, &mut stats);
        }
        self.add(&stats);
        is_whole
    }

    fn count_one_locally(
        &self,
        plan: &mut Plan,
        i: usize,
        now: Timestamp,
        stats: &mut CommitStats,
    ) -> bool {
        let Some(own) = plan.fall_back(&self.config.policy, i) else { return false };
        let counted = self.enforce(plan, now, |enforcement| enforcement.run_one(own));
        *stats = stats.with(&counted);
        // Where only some of its rules have a count of their own, the others have failed.
        plan.partition(i).is_none_or(|partition| !partition.applies())
    }

    /// Nothing can be taken or requested: as if the authority did not respond.
    fn fail_one(&self, plan: &mut Plan, i: usize, failure: Failure, stats: &mut CommitStats) {
        stats.failures = stats.failures.saturating_add(1);
        if let Some(now) = self.host.now() {
            self.count_one_locally(plan, i, now, stats);
        } else if let Some(mut partition) = plan.partition_mut(i) {
            partition.fail(failure);
        }
    }

    /// Changes the holdings at `place`; `None` when they cannot be changed: the leases in hand
    /// there expire.
    fn change_holdings<T>(
        &self,
        place: HoldingsKey,
        stats: &mut CommitStats,
        mut act: impl FnMut(&mut tollgate_storage::Holdings, Timestamp) -> T,
    ) -> Option<T> {
        let at = self.table(place)?;
        let done = change(&self.host, at, stats, |holdings, now| Change::Write(act(holdings, now)));
        if done.is_err() {
            stats.failures = stats.failures.saturating_add(1);
        }
        done.ok()
    }

    /// The place of the holdings of partition `i`, if it is one of the fleet that has not failed.
    fn holdings_key(&self, plan: &Plan, i: usize) -> Option<HoldingsKey> {
        let partition = plan.partition(i)?;
        let is_leased = partition.is_fleet(&self.config.policy)
            && partition.applies()
            && !partition.has_failed();
        let place = || HoldingsKey {
            policy: self.fleet_fingerprint,
            group: partition.group(),
            fingerprint: Table::fingerprint(&self.seed, partition.key()),
        };
        is_leased.then(place)
    }

    fn requested_key(
        &self,
        plan: &Plan,
        (i, place): (usize, HoldingsKey),
        rules: Vec<LeaseRule>,
    ) -> Option<RequestedKey> {
        let (fleet, partition) = (self.config.fleet.as_ref()?, plan.partition(i)?);
        if rules.is_empty() {
            return None;
        }
        let key = partition.lease_key(&self.config.policy, fleet.secret);
        Some(RequestedKey { partition: None, holdings_key: place, key: LeaseKey { rules, ..key } })
    }

    fn table(&self, place: HoldingsKey) -> Option<(&Table, NonZeroU64)> {
        Some((self.config.tables.get(place.group)?, place.fingerprint))
    }
}

/// When the holdings of the key are to be checked next, if ever.
fn next_check(
    holdings: &mut tollgate_storage::Holdings,
    requested: &RequestedKey,
) -> Option<Timestamp> {
    let sets = requested.key.rules.iter().map(|rule| rule.ask.set);
    sets.filter_map(|set| holdings.of(set).due_at()).min()
}
