//! A request under rules of a fleet, on its node: paid from the units that the node holds, sent to
//! the authority, or denied because it was denied recently.
//!
//! Invariant: all rules of a partition are paid or none is. Units taken from a lease return to the
//! same lease when another rule denies, or has to wait. Nothing is sent twice for one request.
//! Deliberately absent: the store of the holdings, and sending.

use alloc::vec::Vec;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::pipeline::applied::{AppliedRule, Basis};
use crate::pipeline::partition::PartitionMut;
use crate::pipeline::partitions::Status;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use tollgate_storage::{DirectAnswer, Holdings, LeaseAsk, LeaseRule, Paces, Taken};

/// The units taken from one lease for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The quota set.
    pub set: u64,
    /// The lease's number.
    pub number: u64,
    /// The units that were taken.
    pub cost: u64,
    left: u64,
    rest: Span,
}

/// The result of spending for one partition of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spending {
    /// Every rule is paid.
    Paid {
        /// The leases that paid.
        paid: Vec<Paid>,
        /// The rules to request in advance although no request waits for it; empty for none.
        ahead: Vec<LeaseRule>,
    },
    /// Send a request to the authority, for every rule of the partition, in their order.
    Ask {
        /// The units that are already paid.
        paid: Vec<Paid>,
        /// The rules to send.
        rules: Vec<LeaseRule>,
    },
    /// Another request is in flight; nothing was taken. Try again at this time, or when there is a
    /// response.
    Wait(Timestamp),
    /// The authority must be asked, and may not be; nothing was taken.
    Closed,
    /// It is denied again: it was denied recently; nothing was taken.
    Refused,
}

/// A node's clock, how long it waits for a response, and numbers for leases.
pub struct Node<'a> {
    /// Read in the same attempt as the commit of the holdings.
    pub now: Timestamp,
    /// How long to wait for a response.
    pub patience: Span,
    /// False while nothing may be sent.
    pub may_ask: bool,
    /// Returns a number above 0 that was never used, at each call.
    pub number: &'a mut dyn FnMut() -> u64,
}

/// A node's knowledge of a rule.
enum Known {
    /// This number of units is held, for this long.
    InHand(u64, Span),
    /// The authority's decisions.
    Answered(Vec<Decision>),
}

impl PartitionMut<'_> {
    /// Takes the costs of the partition's rules from `holdings`, or returns the request to send.
    /// The holdings have changed for [`Spending::Paid`] and [`Spending::Ask`]; if they cannot be
    /// committed, repeat this on newer ones.
    pub fn spend(
        &mut self,
        policy: &Policy,
        holdings: &mut Holdings,
        node: &mut Node<'_>,
    ) -> Spending {
        let now = node.now;
        let (mut paid, mut asks) = (Vec::new(), Vec::new());
        let mut waits = None;
        let (mut is_refused, mut is_closed) = (false, false);
        let mut is_denied = false;
        for applied in self.view().rules() {
            let Some(set) = policy.applied_set(applied).map(|set| set.stable_id) else { continue };
            match holdings.of(set).take(now, applied.cost) {
                Taken::Spent { number, left, rest } => {
                    paid.push(Paid { set, number, cost: applied.cost, left, rest });
                }
                Taken::Ask if !node.may_ask => is_closed = true,
                Taken::Ask => asks.push(set),
                Taken::Wait(until) => waits = waits.max(Some(until)),
                Taken::Denied(_) => {
                    is_denied = true;
                    is_refused |= applied.is_binding();
                }
            }
        }
        if is_refused || is_closed || waits.is_some() {
            for it in &paid {
                holdings.of(it.set).put_back(now, it.number, it.cost);
            }
        }
        if is_refused {
            self.recall(policy, holdings, now);
            return Spending::Refused;
        }
        if is_closed {
            return Spending::Closed;
        }
        if let Some(until) = waits {
            return Spending::Wait(until);
        }
        let is_asked = !asks.is_empty();
        let rules = self.questions(policy, holdings, node, &asks);
        if is_asked {
            return Spending::Ask { paid, rules };
        }
        if is_denied {
            self.recall(policy, holdings, now); // for rules in shadow
        }
        self.pay(policy, &paid, now);
        let is_ahead = rules.iter().any(|rule| rule.ask.number > 0);
        Spending::Paid { paid, ahead: if is_ahead { rules } else { Vec::new() } }
    }

    /// The request for every rule: its cost if it is in `asks`, and any reports and leases that are
    /// due.
    fn questions(
        &self,
        policy: &Policy,
        holdings: &mut Holdings,
        node: &mut Node<'_>,
        asks: &[u64],
    ) -> Vec<LeaseRule> {
        let mut rules = Vec::new();
        let view = self.view();
        for applied in view.rules() {
            let Some(set) = policy.applied_set(applied) else { continue };
            let QuotaSet { stable_id: set, quotas, .. } = set;
            let (set, is_direct) = (*set, asks.contains(set));
            let holding = holdings.of(set);
            let ask = if is_direct || node.may_ask && holding.is_due(node.now) {
                let rule = policy.rules.get(usize::from(applied.rule));
                let life = rule.map_or(Span::ZERO, Rule::lease);
                let paces = || Paces::of(quotas.iter().map(CompiledQuota::limiter));
                holding.know(if life > Span::ZERO { paces() } else { Paces::default() });
                let times = (life, node.patience);
                holding.ask(set, (node.number)(), applied.cost, node.now, times)
            } else {
                LeaseAsk { set, ..LeaseAsk::default() }
            };
            let cost = if is_direct { applied.cost } else { 0 };
            rules.push(LeaseRule { is_binding: applied.is_binding(), cost, ask });
        }
        rules
    }

    /// Records that the rules of `paid` allow the request: the remaining units are those that the
    /// node holds.
    pub fn pay(&mut self, policy: &Policy, paid: &[Paid], now: Timestamp) {
        self.stored.at = now;
        if !self.stored.status.is_decided() {
            self.stored.status = Status::Uncharged;
        }
        self.decide_each(policy, |set, _| {
            let Paid { left, rest, .. } = paid.iter().find(|paid| paid.set == set.stable_id)?;
            Some(Known::InHand(*left, *rest))
        });
    }

    /// The authority's response for the rules of this partition, without those that are `paid`.
    #[must_use]
    pub fn direct_answers(&self, policy: &Policy, paid: &[Paid]) -> Vec<DirectAnswer> {
        let view = self.view();
        let mut answers = Vec::new();
        for applied in view.rules() {
            let Some(set) = policy.applied_set(applied) else { continue };
            if paid.iter().any(|paid| paid.set == set.stable_id) {
                continue;
            }
            let decisions: Vec<Decision> = view.decisions_of(policy, applied).copied().collect();
            let (set, cost) = (set.stable_id, applied.cost);
            answers.push(DirectAnswer { set, cost, decisions, is_of_denied: false });
        }
        answers
    }

    /// Decides the rules of this partition for a denied request from the node's knowledge: the
    /// units it holds, or the authority's last response, less the time since. Nothing is taken. A
    /// rule without either is reported as not requested.
    pub fn recall(&mut self, policy: &Policy, holdings: &mut Holdings, now: Timestamp) {
        self.stored.at = now;
        self.stored.status = Status::Uncharged;
        let index = self.index;
        for applied in self.applied.iter_mut().filter(|applied| applied.counts_in(index)) {
            applied.basis = Basis::Unasked;
        }
        self.decide_each(policy, |set, applied| {
            let holding = holdings.of(set.stable_id);
            if holding.has(now, applied.cost) {
                return Some(Known::InHand(holding.left(), holding.rest_of_lives(now)));
            }
            let rest = holding.denied_for(now, applied.cost);
            match holding.last(now).filter(|last| last.is_of(&set.quotas)) {
                Some(last) => {
                    Some(Known::Answered(last.repeat(&set.quotas, applied.cost, now, rest)))
                }
                None => rest.map(|rest| Known::Answered(denied_by_all(set, rest))),
            }
        });
    }

    /// Fills in the decisions of the rules for which `known` returns something.
    fn decide_each(
        &mut self,
        policy: &Policy,
        mut known: impl FnMut(&QuotaSet, &AppliedRule) -> Option<Known>,
    ) {
        let Self { index, applied, decisions, .. } = self;
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            let Some(set) = policy.applied_set(applied) else { continue };
            let Some(known) = known(set, applied) else { continue };
            let slots = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            let slots = slots.iter_mut().zip(&set.quotas);
            let basis = match known {
                Known::InHand(..) => Basis::Lease,
                Known::Answered(_) => Basis::Count,
            };
            match known {
                Known::InHand(remaining, reset_after) => slots.for_each(|(slot, quota)| {
                    let (verdict, limit) = (Verdict::Allow, quota.limiter().limit());
                    *slot = Decision { verdict, limit, remaining, retry_after: None, reset_after };
                }),
                Known::Answered(answers) => {
                    slots.zip(answers).for_each(|((slot, _), answer)| *slot = answer);
                }
            }
            applied.basis = basis;
        }
    }
}

/// A denial of which only the remaining time is known.
fn denied_by_all(set: &QuotaSet, rest: Span) -> Vec<Decision> {
    let denial = |quota: &CompiledQuota| Decision {
        verdict: Verdict::Deny,
        limit: quota.limiter().limit(),
        remaining: 0,
        retry_after: Some(rest),
        reset_after: rest,
    };
    set.quotas.iter().map(denial).collect()
}
