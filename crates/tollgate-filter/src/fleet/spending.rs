//! Rules of a fleet under the policy in force: spends the leases that the workers of this process
//! hold, and builds lease requests.
//!
//! Invariant: either all keys of one request are paid or requested, or nothing is taken of any.
//! Deliberately absent: sending, waiting, and the handling of the request.

use core::num::NonZeroU64;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Failure, Node, Paid, Plan, Spending};
use tollgate_storage::{DirectAnswer, LeaseKey, LeaseQuestion, LeaseRule, Leased};
use tollgate_table::Table;

use crate::active_policy::ActivePolicy;
use crate::counts::commit_stats::CommitStats;
use crate::fleet::holdings::{Change, Place, change};
use crate::host::proxy::Proxy;
use crate::watch::metrics::Asked;

/// The wait when no better time is known.
const SOON: Span = Span::from_secs(1);

/// A key in a lease request.
pub struct AskedKey {
    /// Its number in the plan of the request that waits for the response, if one does.
    pub partition: Option<usize>,
    /// The place of its holdings.
    pub place: Place,
    /// The content of the lease request about it.
    pub key: LeaseKey,
}

/// The units taken for a request, and the keys of its lease requests.
#[derive(Default)]
pub struct Purse {
    /// The leases that paid, with the partition.
    pub paid: Vec<(usize, Paid)>,
    /// Keys to request for the request.
    pub asked: Vec<AskedKey>,
    /// Keys to request in advance, for which no request waits.
    pub ahead: Vec<AskedKey>,
}

/// The progress of a request with the rules of the fleet.
pub enum Leasing {
    /// All of them are paid.
    Paid,
    /// A lease request is to be sent.
    Ask,
    /// A lease request about this key is in flight; nothing was taken.
    Wait(Place),
    /// A lease request is needed and may not be sent; nothing was taken.
    Closed,
    /// It was denied so recently that it is denied again; nothing was taken.
    Refused,
}

impl<H: Proxy> ActivePolicy<H> {
    /// The authority's cluster.
    pub fn cluster(&self) -> &str {
        self.config.fleet.as_ref().map_or("", |fleet| &fleet.cluster)
    }

    /// The timeout of a lease request.
    pub fn patience(&self) -> Span {
        self.config.fleet.as_ref().map_or(Span::ZERO, |fleet| fleet.timeout)
    }

    /// Takes the request's costs under the rules of the fleet.
    pub fn spend(&self, plan: &mut Plan, may_ask: bool) -> (Leasing, Purse) {
        let (mut purse, mut stats) = (Purse::default(), CommitStats::default());
        let (mut leasing, mut denied_by) = (Leasing::Paid, None);
        for i in 0..plan.len() {
            let Some(place) = self.place_of(plan, i) else { continue };
            if let Some(mut partition) = plan.partition_mut(i) {
                partition.take_up();
            }
            match self.spend_one(plan, (i, place), may_ask, &mut stats) {
                Ok(Spending::Paid { paid, ahead }) => {
                    purse.paid.extend(paid.into_iter().map(|paid| (i, paid)));
                    purse.ahead.extend(self.asked_key(plan, (i, place), ahead));
                }
                Ok(Spending::Ask { paid, rules }) => {
                    purse.paid.extend(paid.into_iter().map(|paid| (i, paid)));
                    let asked = self.asked_key(plan, (i, place), rules);
                    purse.asked.extend(asked.map(|it| AskedKey { partition: Some(i), ..it }));
                    leasing = Leasing::Ask;
                }
                Ok(Spending::Wait(_)) => {
                    leasing = Leasing::Wait(place);
                    break;
                }
                Ok(Spending::Closed) => {
                    leasing = Leasing::Closed;
                    break;
                }
                Ok(Spending::Refused) => {
                    (leasing, denied_by) = (Leasing::Refused, Some(i));
                    break;
                }
                Err(failure) => self.fail_one(plan, i, failure, &mut stats),
            }
        }
        if let Leasing::Wait(_) | Leasing::Closed | Leasing::Refused = leasing {
            self.unwind(plan, core::mem::take(&mut purse), &mut stats);
        }
        if let Some(denied_by) = denied_by {
            self.recall_others(plan, denied_by, &mut stats);
        }
        self.add(&stats);
        (leasing, purse)
    }

    fn spend_one(
        &self,
        plan: &mut Plan,
        (i, place): (usize, Place),
        may_ask: bool,
        stats: &mut CommitStats,
    ) -> Result<Spending, Failure> {
        let node = self.node.as_ref().ok_or(Failure::Unreachable)?;
        let at = self.table(place).ok_or(Failure::Unreachable)?;
        let policy = &self.config.policy;
        let mut number = || node.number();
        change(&self.host, at, stats, |holdings, now| {
            let patience = self.patience();
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
            let Some(place) = self.place_of(plan, i) else { continue };
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
    pub fn put_back(&self, plan: &mut Plan, purse: Purse) {
        let mut stats = CommitStats::default();
        self.unwind(plan, purse, &mut stats);
        self.add(&stats);
    }

    fn unwind(&self, plan: &mut Plan, purse: Purse, stats: &mut CommitStats) {
        for i in 0..plan.len() {
            let Some(place) = self.place_of(plan, i) else { continue };
            let of_it = purse.paid.iter().filter(|(partition, _)| *partition == i);
            let mut of_it = of_it.map(|(_, paid)| *paid).peekable();
            if of_it.peek().is_some()
                && let Some(mut partition) = plan.partition_mut(i)
            {
                partition.set_aside();
                let paid: Vec<Paid> = of_it.collect();
                self.change_or_count(place, stats, |holdings, now| {
                    for paid in &paid {
                        // A lease that ended since loses its rest.
                        holdings.of(paid.set).put_back(now, paid.number, paid.cost);
                    }
                });
            }
        }
        for key in purse.asked.iter().chain(&purse.ahead) {
            self.withdraw(key, stats);
        }
    }

    /// Records that a lease request was never sent. Returns when the holdings are to be checked
    /// next, if they are.
    pub fn unask(&self, asked: &AskedKey) -> Option<Timestamp> {
        let mut stats = CommitStats::default();
        let next = self.withdraw(asked, &mut stats);
        self.add(&stats);
        next
    }

    fn withdraw(&self, asked: &AskedKey, stats: &mut CommitStats) -> Option<Timestamp> {
        let next = self.change_or_count(asked.place, stats, |holdings, now| {
            for rule in asked.key.rules.iter().filter(|rule| rule.ask.number > 0) {
                holdings.of(rule.ask.set).unasked(rule.ask.number);
            }
            next_look(holdings, asked).map(|at| at.max(now.saturating_add(SOON)))
        });
        next.flatten()
    }

    /// Records the result for a key; `None` when there was no response. `direct` is the result for
    /// the request that waited for it, if one did. Returns when the holdings are to be checked
    /// next, if they are.
    pub fn hear(
        &self,
        asked: &AskedKey,
        leased: Option<&[Leased]>,
        direct: &[DirectAnswer],
    ) -> Option<Timestamp> {
        let mut stats = CommitStats::default();
        let rules = &asked.key.rules;
        let next = self.change_or_count(asked.place, &mut stats, |holdings, now| {
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
            let due = next_look(holdings, asked);
            // A repeated lease request is not sent at once: the authority may be away.
            due.map(|at| if leased.is_some() { at } else { at.max(now.saturating_add(SOON)) })
        });
        let granted = leased.unwrap_or_default().iter().filter(|leased| leased.is_ok()).count();
        self.add(&stats);
        self.count_asked(Asked::Granted, granted);
        let refused = direct.iter().filter(|answer| answer.is_denial()).count();
        self.count_asked(Asked::Refused, refused);
        next.flatten()
    }

    /// Uses the authority's reply for the decision about a key, where the rules of `paid` are paid
    /// already. Returns the reply's results for the others, or `None` if it is malformed.
    pub fn take_reply(
        &self,
        plan: &mut Plan,
        asked: &AskedKey,
        reply: &[u8],
        paid: &[(usize, Paid)],
    ) -> Option<Vec<DirectAnswer>> {
        let i = asked.partition?;
        let mut partition = plan.partition_mut(i)?;
        partition.accept(&self.config.policy, reply).ok()?;
        let of_it = paid.iter().filter(|(partition, _)| *partition == i);
        let of_it: Vec<Paid> = of_it.map(|(_, paid)| *paid).collect();
        let direct = partition.direct_answers(&self.config.policy, &of_it);
        let at = partition.view().decided_at();
        partition.pay(&self.config.policy, &of_it, at);
        Some(direct)
    }

    /// The lease request for the key of `asked` when no request spends: the remaining units go back
    /// before they end. Otherwise when to check again, if ever.
    pub fn look_after(&self, asked: &AskedKey) -> Result<AskedKey, Option<Timestamp>> {
        let mut stats = CommitStats::default();
        let Some(node) = self.node.as_ref() else { return Err(None) };
        let looked = self.change_or_count(asked.place, &mut stats, |holdings, now| {
            let mut rules = Vec::new();
            let mut is_due = false;
            for rule in &asked.key.rules {
                let mut rule = LeaseRule { cost: 0, ..rule.clone() };
                let holding = holdings.of(rule.ask.set);
                let LeaseRule { ask, .. } = &mut rule;
                if holding.is_due(now) {
                    let times = (ask.life, self.patience());
                    *ask = holding.ask(ask.set, node.number(), ask.least, now, times);
                    is_due = true;
                } else {
                    (ask.number, ask.want, ask.reports) = (0, 0, Vec::new());
                }
                rules.push(rule);
            }
            let next = next_look(holdings, asked);
            if is_due { Ok(rules) } else { Err(next) }
        });
        self.add(&stats);
        let rules = looked.unwrap_or(Err(None))?;
        let LeaseKey { group, hash, .. } = asked.key;
        let key = LeaseKey { group, hash, rules };
        Ok(AskedKey { partition: None, place: asked.place, key })
    }

    /// The body of a lease request.
    pub fn question<'k>(&self, keys: impl Iterator<Item = &'k AskedKey>) -> Vec<u8> {
        let keys = keys.map(|asked| asked.key.clone()).collect();
        let table = self.node.as_ref().map_or(0, |node| node.table());
        let mut body = Vec::new();
        LeaseQuestion { policy: self.fleet_fingerprint, table, keys }.write(&mut body);
        body
    }

    /// The authority does not respond: rules that configure it count in a partition of this node
    /// alone, the others fail. True when all of them could count. Only the partitions that are
    /// `unanswered`, where some are: a denial of the authority about another one remains.
    pub fn go_on_alone(
        &self,
        plan: &mut Plan,
        unanswered: Option<&[usize]>,
        now: Timestamp,
    ) -> bool {
        let mut stats = CommitStats::default();
        let mut is_whole = true;
        for i in 0..plan.len() {
            let is_answered = unanswered.is_some_and(|unanswered| !unanswered.contains(&i));
            if is_answered || self.place_of(plan, i).is_none() {
                continue;
            }
            is_whole &= self.alone(plan, i, now, &mut stats);
        }
        self.add(&stats);
        is_whole
    }

    fn alone(&self, plan: &mut Plan, i: usize, now: Timestamp, stats: &mut CommitStats) -> bool {
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
            self.alone(plan, i, now, stats);
        } else if let Some(mut partition) = plan.partition_mut(i) {
            partition.fail(failure);
        }
    }

    /// Changes the holdings at `place`; `None` when they cannot be changed: the leases in hand
    /// there expire.
    fn change_or_count<T>(
        &self,
        place: Place,
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
    fn place_of(&self, plan: &Plan, i: usize) -> Option<Place> {
        let partition = plan.partition(i)?;
        let is_asked = partition.is_fleet(&self.config.policy)
            && partition.applies()
            && !partition.has_failed();
        let place = || Place {
            policy: self.fleet_fingerprint,
            group: partition.group(),
            fingerprint: Table::fingerprint(&self.seed, partition.key()),
        };
        is_asked.then(place)
    }

    fn asked_key(
        &self,
        plan: &Plan,
        (i, place): (usize, Place),
        rules: Vec<LeaseRule>,
    ) -> Option<AskedKey> {
        let (fleet, partition) = (self.config.fleet.as_ref()?, plan.partition(i)?);
        if rules.is_empty() {
            return None;
        }
        let key = partition.lease_key(&self.config.policy, fleet.secret);
        Some(AskedKey { partition: None, place, key: LeaseKey { rules, ..key } })
    }

    fn table(&self, place: Place) -> Option<(&Table, NonZeroU64)> {
        Some((self.config.tables.get(place.group)?, place.fingerprint))
    }
}

/// When the holdings of the key are to be checked next, if ever.
fn next_look(holdings: &mut tollgate_storage::Holdings, asked: &AskedKey) -> Option<Timestamp> {
    let sets = asked.key.rules.iter().map(|rule| rule.ask.set);
    sets.filter_map(|set| holdings.of(set).due_at()).min()
}
