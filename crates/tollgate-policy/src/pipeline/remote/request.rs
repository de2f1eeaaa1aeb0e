//! What the front asks: the bytes of a partition.
//!
//! Invariant: everything that the decision depends on is in them, so whoever counts needs no
//! policy; the format stands in `wire`.

use alloc::vec::Vec;

use crate::pipeline::partition::Partition;
use crate::pipeline::plan::{AppliedRule, Due};
use crate::pipeline::remote::wire::{
    BINDING, GIVEN_BACK, LATER, MAGIC, REPORTED, SETTLES, STRICT, TELL, UNDER, USED, WAITS,
};
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;

impl Partition<'_> {
    /// Appends to `out` what decides this partition of `plan` elsewhere.
    pub fn request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, 0, 0, out);
    }

    /// The same for what is only to say what it would decide, and to charge nothing.
    pub fn peek_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, 0, LATER, out);
    }

    /// The same, and it tells its states for [`Denials`](crate::Denials): when another count
    /// refuses, this one belongs to the answer, too. Not for a request that may wait.
    pub fn told_peek_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, TELL, LATER, out);
    }

    /// The same of a plan that was [settled](crate::Plan::settle): what its response brought about
    /// is charged or given back though the policy changed since the request came.
    pub fn settle_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, SETTLES, 0, out);
    }

    /// The same for a request that is refused: it records what [was used](crate::Plan::reports)
    /// already, and only says what it would decide of the rest.
    pub fn report_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_head(policy, 0, out);
        for applied in self.rules() {
            let due = if applied.reports() { REPORTED } else { LATER };
            self.write_rule(policy, applied, due, out);
        }
    }

    /// The request with these flags, and those on every rule beside the rule's own.
    fn write_request(&self, policy: &Policy, flags: u8, of_each: u8, out: &mut Vec<u8>) {
        self.write_head(policy, flags, out);
        for applied in self.rules() {
            let due = match applied.due {
                Due::Now | Due::Held => 0,
                Due::Reported if applied.reports() && of_each & LATER == 0 => REPORTED,
                Due::Later | Due::Reported => LATER,
                Due::GivenBack => GIVEN_BACK,
                Due::Used => USED,
            };
            self.write_rule(policy, applied, due | of_each, out);
        }
    }

    /// What stands before the rules.
    pub(crate) fn write_head(&self, policy: &Policy, flags: u8, out: &mut Vec<u8>) {
        let Some(group) = policy.groups.get(self.group()) else { return };
        out.extend(MAGIC);
        out.extend(policy.version().to_le_bytes());
        out.extend(group.identity().to_le_bytes());
        // What a response brought about happened under whichever entry there was.
        let under = self.stored.under.filter(|_| flags & SETTLES == 0);
        let strict = if group.is_strict() || self.stored.endures { STRICT } else { 0 };
        out.push(flags | strict | if under.is_some() { UNDER } else { 0 });
        if let Some(revision) = under {
            out.extend(revision.to_le_bytes());
        }
    }

    /// One rule, with the flags of what is due.
    pub(crate) fn write_rule(
        &self,
        policy: &Policy,
        applied: &AppliedRule,
        due: u8,
        out: &mut Vec<u8>,
    ) {
        let Some(set) = policy.applied_set(applied) else { return };
        let longest = policy.rules.get(usize::from(applied.rule)).and_then(Rule::longest_wait);
        let binding = if applied.binding { BINDING } else { 0 };
        let waits = if longest.is_some() { WAITS } else { 0 };
        out.push(binding | waits | due);
        out.extend(policy.stable_id_of(applied.rule).to_le_bytes());
        let cost = if due & REPORTED == 0 { applied.decided_cost() } else { applied.cost };
        out.extend(cost.to_le_bytes());
        if let Some(longest) = longest {
            out.extend(longest.as_nanos().to_le_bytes());
        }
        set.write_parameters(out);
        if due & (GIVEN_BACK | USED) != 0 {
            self.write_charge(policy, applied, out);
        }
    }

    fn write_charge(&self, policy: &Policy, applied: &AppliedRule, out: &mut Vec<u8>) {
        let at = applied.charged.unwrap_or_default();
        out.extend(at.as_nanos().to_le_bytes());
        for decision in self.decisions_of(policy, applied) {
            let charge = decision.charge(at, applied.cost);
            out.extend(charge.map_or(0, |charge| charge.delay.as_nanos()).to_le_bytes());
        }
    }
}
