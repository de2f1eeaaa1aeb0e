//! The request from the front for one partition, as bytes.
//!
//! Invariant: it contains everything that the decision depends on, so the process that counts needs
//! no policy; the format is in `wire`.

use alloc::vec::Vec;

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partition::Partition;
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;
use crate::spec::cost::MAX_COST;
use tollgate_storage::wire::{
    BINDING, LATER, LIMITS, PUNISHES, RENEWED, REPORTED, SETTLES, STRICT, USED, WITH_STATES,
};
use tollgate_storage::{Due, Head, RuleHead};

impl Partition<'_> {
    /// Appends to `out` the request that decides this partition elsewhere.
    pub fn request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, 0, PUNISHES, out);
    }

    /// The same for a check before the charge: the reply contains the decisions, and nothing is
    /// charged. A denial is one of the request all the same, and starts penalties.
    pub fn peek_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, 0, LATER | PUNISHES, out);
    }

    /// The same for a caller that only wants to know: nothing changes, whatever the decision is.
    pub fn look_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, 0, LATER, out);
    }

    /// The same, and the reply contains the states for [`Denials`](crate::Denials): when another
    /// count denies, this one belongs in the response too. Not for a request that may wait.
    pub fn peek_request_with_states(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, WITH_STATES, LATER | PUNISHES, out);
    }

    /// The same for a plan that was [settled](crate::Plan::settle): the effects of its response are
    /// charged or refunded even if the policy changed since the request.
    pub fn settle_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, SETTLES, 0, out);
    }

    /// The same for a request that is denied: it records the units that were already
    /// [used](Partition::reports), and only checks the rest.
    pub fn report_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_head(policy, 0, out);
        for applied in self.rules() {
            let due = if applied.reports() { REPORTED } else { LATER };
            self.write_rule(policy, applied, due, out);
        }
    }

    /// The request with these flags, and with `of_each` added to every rule's own flags.
    fn write_request(&self, policy: &Policy, flags: u8, of_each: u8, out: &mut Vec<u8>) {
        self.write_head(policy, flags, out);
        for applied in self.rules() {
            let due = match applied.due {
                Due::Now | Due::Held | Due::InFlight => 0,
                Due::Reported if applied.reports() && of_each & LATER == 0 => REPORTED,
                Due::Later | Due::Reported => LATER,
                Due::Settled(_) => USED,
                Due::Renewed => RENEWED,
            };
            self.write_rule(policy, applied, due | of_each, out);
        }
    }

    /// Appends to `out` the receipt with which the cost of this request can be settled here later.
    /// Of a request with rules whose cost is an estimate it has these alone, each with its maximum;
    /// else all rules that name a cost. False, with nothing appended, when none of them has charged
    /// the request here.
    pub fn write_receipt(&self, policy: &Policy, out: &mut Vec<u8>) -> bool {
        let rule_of = |applied: &AppliedRule| policy.rules.get(usize::from(applied.rule));
        let is_estimate = |applied: &AppliedRule| {
            rule_of(applied).is_some_and(|rule| rule.settled_cost().is_some())
        };
        let has_estimate = self.of_plan().iter().any(is_estimate);
        let is_settled = |applied: &&AppliedRule| {
            applied.is_charged_now()
                && applied.charged.is_some()
                && rule_of(applied)
                    .is_some_and(|rule| rule.terms.names_cost && !rule.charges_by_response())
                && is_estimate(applied) == has_estimate
        };
        let mut rules = self.rules().filter(is_settled).peekable();
        if self.has_failed() || rules.peek().is_none() {
            return false;
        }
        self.write_head(policy, 0, out);
        for applied in rules {
            self.write_rule(policy, applied, USED, out);
        }
        true
    }

    /// Appends to `out` the receipt with which this request can be confirmed and released here
    /// while it is in flight (`InFlightReport` of the storage crate). False, with nothing appended,
    /// when no rule counts it as such.
    pub fn write_in_flight(&self, policy: &Policy, out: &mut Vec<u8>) -> bool {
        let is_counted =
            |applied: &&AppliedRule| applied.due == Due::InFlight && applied.charged.is_some();
        let mut rules = self.rules().filter(is_counted).peekable();
        if self.has_failed() || rules.peek().is_none() {
            return false;
        }
        self.write_head(policy, 0, out);
        for applied in rules {
            self.write_rule(policy, applied, RENEWED, out);
        }
        true
    }

    /// The bytes before the rules.
    pub(crate) fn write_head(&self, policy: &Policy, flags: u8, out: &mut Vec<u8>) {
        let Some(group) = policy.groups.get(self.group()) else { return };
        // The effects of a response apply whatever the entry is.
        let under = self.stored.under.filter(|_| flags & SETTLES == 0);
        // Units that a crash forgot would come back from charges that others made since.
        let holds = || self.rules().any(|applied| applied.due == Due::Held);
        let is_strict = group.is_strict() || self.stored.endures || holds();
        let strict = if is_strict { STRICT } else { 0 };
        let (version, group) = (policy.version(), group.identity());
        Head { version, group, flags: flags | strict, under }.write(out);
    }

    /// Appends one rule, with the flags in `due`.
    pub(crate) fn write_rule(
        &self,
        policy: &Policy,
        applied: &AppliedRule,
        due: u8,
        out: &mut Vec<u8>,
    ) {
        let Some(set) = policy.applied_set(applied) else { return };
        let longest = policy.rules.get(usize::from(applied.rule)).and_then(Rule::longest_wait);
        let binding = if applied.is_binding() { BINDING } else { 0 };
        let cost = if due & REPORTED == 0 { applied.decided_cost() } else { applied.cost };
        let rule = policy.stable_id_of(applied.rule);
        let punishes = due & PUNISHES != 0 && applied.punishes() && set.has_penalty();
        let due = if punishes { due } else { due & !PUNISHES };
        // The effects of a response are not compared with a limit.
        let is_limited = due & USED == 0 && set.varies();
        let limits = if is_limited { LIMITS } else { 0 };
        RuleHead { flags: binding | due | limits, rule, cost, longest }.write(out);
        set.write_parameters(out);
        for quota in set.quotas.iter().filter(|_| is_limited) {
            out.extend(quota.limiter.capacity().to_le_bytes());
        }
        if due & USED != 0 {
            self.write_charge(policy, applied, out);
        }
        if due & RENEWED != 0 {
            let at = applied.charged.unwrap_or_default();
            out.extend(at.as_nanos().to_le_bytes());
        }
    }

    fn write_charge(&self, policy: &Policy, applied: &AppliedRule, out: &mut Vec<u8>) {
        // In a receipt, the most that the charge may be settled at.
        let rule = policy.rules.get(usize::from(applied.rule));
        let most = || rule.and_then(Rule::settled_cost).map_or(MAX_COST, |cost| cost.max);
        let used = if let Due::Settled(used) = applied.due { used } else { most() };
        out.extend(used.to_le_bytes());
        let at = applied.charged.unwrap_or_default();
        out.extend(at.as_nanos().to_le_bytes());
        for decision in self.decisions_of(policy, applied) {
            let charge = decision.charge(at, applied.cost);
            out.extend(charge.map_or(0, |charge| charge.delay.as_nanos()).to_le_bytes());
        }
    }
}
