//! A request under rules of a fleet, on its node: paid from what the node holds, asked about, or
//! refused because it was refused lately.
//!
//! Invariant: all rules of a partition are paid or none is; what was taken of one lease goes back
//! into the same one when another rule refuses, or has to wait. Nothing is asked twice for one
//! request. Deliberately absent: the store of the holdings, and sending.

use alloc::vec::Vec;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::pipeline::partition::PartitionMut;
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::AppliedRule;
use crate::pipeline::remote::leases::ask::LeaseAsk;
use crate::pipeline::remote::leases::holdings::Holdings;
use crate::pipeline::remote::leases::message::LeaseRule;
use crate::pipeline::remote::leases::node::Taken;
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;

/// What was taken of one lease for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The quota set.
    pub set: u64,
    /// The lease's number.
    pub number: u64,
    /// What was taken.
    pub cost: u64,
    left: u64,
    rest: Span,
}

/// How far a request is with one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spending {
    /// Every rule is paid.
    Paid {
        /// From which leases.
        paid: Vec<Paid>,
        /// What is to be asked ahead although nobody waits for it; empty for nothing.
        ahead: Vec<LeaseRule>,
    },
    /// The authority is to be asked: for every rule of the partition, in their order.
    Ask {
        /// What is paid already.
        paid: Vec<Paid>,
        /// What to ask.
        rules: Vec<LeaseRule>,
    },
    /// Somebody asks; nothing was taken. Look again then, or when there is an answer.
    Wait(Timestamp),
    /// The authority is to be asked, and may not be; nothing was taken.
    Closed,
    /// It was refused so lately that it is again; nothing was taken.
    Refused,
}

/// A node's clock, how long it waits for an answer, and numbers for leases.
pub struct Node<'a> {
    /// Read in the same try as what the holdings are committed by.
    pub now: Timestamp,
    /// For how long an answer is waited for.
    pub patience: Span,
    /// False while nothing may be asked.
    pub may_ask: bool,
    /// A number above 0 that was never used, each time it is called.
    pub number: &'a mut dyn FnMut() -> u64,
}

impl PartitionMut<'_> {
    /// Takes the costs of the partition's rules out of `holdings`, or says what to ask. The
    /// holdings have changed where it is [`Spending::Paid`] or [`Spending::Ask`]; to be done again
    /// on newer ones when they cannot be committed.
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
        let refusals = self.each_leased(policy, |set, applied| {
            match holdings.of(set).take(now, applied.cost) {
                Taken::Spent { number, left, rest } => {
                    paid.push(Paid { set, number, cost: applied.cost, left, rest });
                    None
                }
                Taken::Ask if !node.may_ask => {
                    is_closed = true;
                    None
                }
                Taken::Ask => {
                    asks.push(set);
                    None
                }
                Taken::Wait(until) => {
                    waits = waits.max(Some(until));
                    None
                }
                Taken::Denied(wait) => {
                    is_refused |= applied.binding;
                    Some(wait)
                }
            }
        });
        if is_refused || is_closed || waits.is_some() {
            for it in &paid {
                holdings.of(it.set).put_back(now, it.number, it.cost);
            }
        }
        if is_refused {
            self.refuse(policy, &refusals, now);
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
        self.refuse(policy, &refusals, now);
        self.pay(policy, &paid, now);
        let is_ahead = rules.iter().any(|rule| rule.ask.number > 0);
        Spending::Paid { paid, ahead: if is_ahead { rules } else { Vec::new() } }
    }

    /// What is asked of every rule: its cost where it is in `asks`, and what it is due beside that.
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
            let set = set.stable_id;
            let is_direct = asks.contains(&set);
            let holding = holdings.of(set);
            let ask = if is_direct || node.may_ask && holding.is_due(node.now) {
                let rule = policy.rules.get(usize::from(applied.rule));
                let times = (rule.map_or(Span::ZERO, Rule::lease), node.patience);
                holding.ask(set, (node.number)(), applied.cost, node.now, times)
            } else {
                LeaseAsk { set, ..LeaseAsk::default() }
            };
            let cost = if is_direct { applied.cost } else { 0 };
            rules.push(LeaseRule { is_binding: applied.binding, cost, ask });
        }
        rules
    }

    /// Notes that the rules of `paid` admit the request: what is left is what the node holds.
    pub fn pay(&mut self, policy: &Policy, paid: &[Paid], now: Timestamp) {
        self.stored.at = now;
        if !self.stored.status.is_decided() {
            self.stored.status = Status::Uncharged;
        }
        let of = |set| paid.iter().find(|paid| paid.set == set);
        self.decide_each(policy, |set| {
            let Paid { left, rest, .. } = of(set)?;
            Some((Verdict::Allow, *left, None, *rest))
        });
    }

    /// What the authority refused of this partition: the quota set, its cost, and for how long.
    #[must_use]
    pub fn refused_directly(&self, policy: &Policy) -> Vec<(u64, u64, Option<Span>)> {
        let view = self.view();
        let mut refused = Vec::new();
        for applied in view.rules() {
            let Some(set) = policy.applied_set(applied) else { continue };
            let denials = view.decisions_of(policy, applied).filter(|it| !it.is_admitted());
            let waits = denials.map(|it| it.retry_after);
            if let Some(wait) = waits.reduce(|one, other| Some(one?.max(other?))) {
                refused.push((set.stable_id, applied.cost, wait));
            }
        }
        refused
    }

    /// Notes what the rules of `refusals` refuse, for so long.
    fn refuse(&mut self, policy: &Policy, refusals: &[(u64, Span)], now: Timestamp) {
        if refusals.is_empty() {
            return;
        }
        self.stored.at = now;
        self.stored.status = Status::Uncharged;
        let of = |set| refusals.iter().find(|(refused, _)| *refused == set);
        self.decide_each(policy, |set| {
            let (_, wait) = of(set)?;
            Some((Verdict::Deny, 0, Some(*wait), *wait))
        });
    }

    /// Calls `each` with the quota set of every rule; those for which it names a wait.
    fn each_leased(
        &self,
        policy: &Policy,
        mut each: impl FnMut(u64, &AppliedRule) -> Option<Span>,
    ) -> Vec<(u64, Span)> {
        let mut waits = Vec::new();
        for applied in self.view().rules() {
            let Some(set) = policy.applied_set(applied) else { continue };
            waits.extend(each(set.stable_id, applied).map(|wait| (set.stable_id, wait)));
        }
        waits
    }

    /// Fills the decisions of the rules for whose quota set `says` names one.
    fn decide_each(
        &mut self,
        policy: &Policy,
        says: impl Fn(u64) -> Option<(Verdict, u64, Option<Span>, Span)>,
    ) {
        let Self { index, applied, decisions, .. } = self;
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            let Some(set) = policy.applied_set(applied) else { continue };
            let Some((verdict, remaining, retry_after, reset_after)) = says(set.stable_id) else {
                continue;
            };
            let slots = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            for (slot, quota) in slots.iter_mut().zip(&set.quotas) {
                let limit = quota.limiter().limit();
                *slot = Decision { verdict, limit, remaining, retry_after, reset_after };
            }
            applied.is_leased = true;
        }
    }
}
