//! What one rule decided about one request, quota by quota: for whoever measures a policy.
//!
//! Invariant: it only reads the plan, and says nothing that a decision depends on. A quota that was
//! not decided (a key part was missing, the request cannot be read, a store failed) says nothing.

use alloc::string::String;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::answer::outcome::Outcome;
use crate::answer::rule_result::RuleResult;
use crate::document::action::Action;
use crate::pipeline::key_hashes::pk_text;
use crate::pipeline::plan::{AppliedRule, Full};
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;

/// A quota is nearly used up when at most this part of it is left: 80 % are used, where
/// envoyproxy/ratelimit counts its `near_limit` as well.
const NEAR: u64 = 5;

/// What one rule that applied said.
#[derive(Clone, Copy, Debug)]
pub struct RuleDecision<'a> {
    /// Its index in [`Policy::rules`](crate::Policy::rules).
    pub rule: usize,
    /// The index in [`Policy::quota_sets`](crate::Policy::quota_sets) of the quotas that it counted
    /// in: its own or a tier's; beyond all of them for a tenant's own.
    pub quota_set: usize,
    /// These quotas.
    pub set: &'a QuotaSet,
    /// What came of it.
    pub result: RuleResult,
    /// What the request costs there, in quota units.
    pub cost: u64,
    /// True when a denial of it stops the request: it is enforced for this key, and does more than
    /// mark.
    pub is_binding: bool,
    /// The index of the partition that it counts in, in the [`Plan`](crate::Plan); `None` when the
    /// request has no such key.
    pub partition: Option<usize>,
    /// The priority of the tenant's entry that chose these quotas, its own or a tier's; `None`
    /// where the policy did.
    pub by_entry: Option<u32>,
    /// Until when an operator blocked the key, by the clock of whoever counts. Then every quota of
    /// it says no, whatever it has used.
    pub blocked_until: Option<Timestamp>,
    /// When it was decided, by the same clock; 0 where nothing was.
    pub at: Timestamp,
    /// True when it was paid or refused by what a node or shard holds: what remains is in hand
    /// there, and says nothing of what the key has left.
    pub is_leased: bool,
    /// What each quota of the set said, in its order; empty when nothing was decided.
    pub quotas: &'a [Decision],
}

impl RuleDecision<'_> {
    /// The index in [`RuleDecision::quotas`] of the quota that the result is about, for metrics and
    /// logs: of those that deny the one that does so for longest, or else of those that delay.
    #[must_use]
    pub fn said_by(&self) -> Option<usize> {
        let quotas = self.quotas.iter().enumerate();
        let delay = |verdict: Verdict| match verdict {
            Verdict::Delay(wait) => Some(wait),
            Verdict::Allow | Verdict::Deny => None,
        };
        let delays = quotas.clone().filter_map(|(i, quota)| Some((i, delay(quota.verdict)?)));
        let delays = || delays.rev().max_by_key(|(_, wait)| *wait).map(|(quota, _)| quota);
        match self.result {
            RuleResult::Denied
            | RuleResult::Blocked
            | RuleResult::Marked
            | RuleResult::Shadowed => {
                let denies = quotas.filter(|(_, quota)| !quota.is_admitted());
                // Without a time it is for ever. Of several alike the first.
                let wait = |after: Option<Span>| after.unwrap_or(Span::MAX);
                let longest = denies.rev().max_by_key(|(_, quota)| wait(quota.retry_after));
                longest.map(|(i, _)| i).or_else(delays)
            }
            RuleResult::Delayed => delays(),
            RuleResult::Allowed | RuleResult::Failed | RuleResult::Malformed => None,
        }
    }

    /// The indices in [`RuleDecision::quotas`] of those that admitted the request and of which at
    /// most a fifth is left: of the limit, or of the burst where that is less and no more can ever
    /// be left. None of what a node or shard holds.
    pub fn nearly_used_up(&self) -> impl Iterator<Item = usize> {
        let is_admitted = matches!(self.result, RuleResult::Allowed | RuleResult::Delayed);
        let quotas = if is_admitted && !self.is_leased { self.quotas } else { &[] };
        let is_near = |(quota, of): (&Decision, &CompiledQuota)| {
            let most = quota.limit.min(of.limiter().capacity());
            quota.remaining.saturating_mul(NEAR) <= most
        };
        let quotas = quotas.iter().zip(self.set.quotas()).enumerate();
        quotas.filter(move |(_, quota)| is_near(*quota)).map(|(i, _)| i)
    }
}

impl<'a> Outcome<'a> {
    /// What each rule that applied decided, in the order of [`Outcome::rules`].
    pub fn decisions(&self) -> impl Iterator<Item = RuleDecision<'a>> + use<'a> {
        let outcome = *self;
        let asked = self.plan.applied.iter().filter(|applied| !applied.is_unasked);
        asked.filter_map(move |applied| {
            Some(RuleDecision {
                rule: applied.rule.into(),
                quota_set: outcome.policy.index_of(&applied.set),
                set: outcome.policy.applied_set(applied)?,
                result: outcome.result(applied),
                cost: applied.cost,
                is_binding: applied.binding,
                partition: applied.partition,
                by_entry: applied.by_entry,
                blocked_until: applied.blocked_until,
                is_leased: applied.is_leased,
                at: outcome.at_of(applied),
                quotas: outcome.quotas_of(applied),
            })
        })
    }

    /// [`Outcome::rules`] for a request that has waited this long for [`Answer::Retry`]: a rule
    /// that lets requests wait has then delayed it, not allowed it at once.
    ///
    /// [`Answer::Retry`]: crate::Answer::Retry
    pub fn rules_after(&self, waited: Span) -> impl Iterator<Item = (usize, RuleResult)> + use<'a> {
        let outcome = *self;
        let asked = self.plan.applied.iter().filter(|applied| !applied.is_unasked);
        asked.map(move |applied| {
            let (index, result) = (applied.rule.into(), outcome.result(applied));
            (index, outcome.after(waited, (index, applied.enforced), result))
        })
    }

    /// The result of the rule of this index, which is enforced or not, for a request that has
    /// waited so long.
    fn after(
        &self,
        waited: Span,
        (rule, enforced): (usize, bool),
        result: RuleResult,
    ) -> RuleResult {
        let waits = || {
            let action = self.policy.rules.get(rule).map(|rule| &rule.action);
            enforced && matches!(action, Some(Action::Delay(_)))
        };
        match result {
            RuleResult::Allowed if waited > Span::ZERO && waits() => RuleResult::Delayed,
            _ => result,
        }
    }

    /// [`Outcome::decisions`] with the results of [`Outcome::rules_after`].
    pub fn decisions_after(
        &self,
        waited: Span,
    ) -> impl Iterator<Item = RuleDecision<'a>> + use<'a> {
        let outcome = *self;
        self.decisions().map(move |decision| RuleDecision {
            // What delays and is enforced is binding.
            result: outcome.after(waited, (decision.rule, decision.is_binding), decision.result),
            ..decision
        })
    }

    /// True when the request is refused because too many wait.
    #[must_use]
    pub const fn is_waiting_full(&self) -> bool {
        matches!(self.plan.rejected_waiting, Some(Full::Key(_) | Full::Worker(_)))
    }

    /// The keyed hash of a partition's key, whose text is [`Outcome::partition_key_hash`].
    #[must_use]
    pub fn partition_pk(&self, partition: usize) -> Option<u64> {
        self.plan.partition(partition).map(|it| it.pk(&self.policy.response))
    }

    /// The keyed hash of a partition's key as clients are told it (`pk`), in base64: for a log. It
    /// can be guessed unless the surface has set a secret ([`Policy::set_hash_key`]).
    ///
    /// [`Policy::set_hash_key`]: crate::Policy::set_hash_key
    #[must_use]
    pub fn partition_key_hash(&self, partition: usize) -> Option<String> {
        self.plan.partition(partition).map(|it| pk_text(it.pk(&self.policy.response)))
    }

    fn at_of(&self, applied: &AppliedRule) -> Timestamp {
        let partition = applied.partition.and_then(|i| self.plan.partitions.get(i));
        partition.filter(|it| it.status.is_decided()).map_or(Timestamp::ZERO, |it| it.at)
    }

    fn quotas_of(&self, applied: &AppliedRule) -> &'a [Decision] {
        let partition = applied.partition.and_then(|i| self.plan.partitions.get(i));
        if !partition.is_some_and(|stored| stored.status.is_decided()) {
            return &[];
        }
        let first = applied.first_decision;
        let end = first.saturating_add(self.policy.quotas(applied).len());
        self.plan.decisions.get(first..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::Cow;
    use alloc::format;
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr};

    use tollgate_core::Timestamp;

    use crate::{Facts, Plan, Policy, RuleResult, Surface};

    struct Get;

    impl Facts for Get {
        fn method(&self) -> Cow<'_, [u8]> {
            b"GET"[..].into()
        }
        fn target(&self) -> Cow<'_, [u8]> {
            b"/"[..].into()
        }
        fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
            None
        }
        fn peer(&self) -> Option<IpAddr> {
            Some(Ipv4Addr::LOCALHOST.into())
        }
    }

    /// The quota that denies is told from the one that does not, and a rule without a key says
    /// nothing of its quotas.
    #[test]
    fn every_quota_of_every_rule_is_told() {
        let document = r#"{"version": 1, "rules": [
            {"name": "each", "key": ["client_ip"], "cost": 2,
             "quotas": [{"limit": 10, "window": "1m", "name": "minute"}, {"limit": 2, "window": "1h", "name": "hour"}]},
            {"name": "token", "key": [{"header": "x-token"}], "on_missing": "deny", "cost": 2, "mode": "shadow",
             "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
        let policy = Policy::compile(document, Surface::Library).expect("a policy");
        let mut plan = Plan::new();
        let mut stored = Vec::new();
        let mut said = Vec::new();
        for at in [1, 2] {
            policy.plan(&Get, &mut plan);
            plan.each_partition(|p| p.load(&policy, Some(&stored)));
            plan.decide(&policy, Timestamp::from_millis(at));
            if let Some(partition) = plan.partition(0).filter(|p| p.changed()) {
                stored = partition.value().to_vec();
            }
            for rule in plan.outcome(&policy).decisions() {
                let admits: Vec<bool> = rule.quotas.iter().map(|q| q.is_admitted()).collect();
                said.push((rule.rule, rule.quota_set, rule.result, rule.cost, admits));
                assert_eq!(rule.is_binding, rule.rule == 0);
                assert_eq!(rule.partition, (rule.rule == 0).then_some(0));
            }
        }
        let token = (1, 1, RuleResult::Shadowed, 2, Vec::new());
        assert_eq!(said[0], (0, 0, RuleResult::Allowed, 2, [true, true].to_vec()));
        assert_eq!(said[2], (0, 0, RuleResult::Denied, 2, [true, false].to_vec()));
        assert_eq!([&said[1], &said[3]], [&token, &token]);
    }

    // Guards: a quota with a small burst whose every request is near the limit, so that the metric
    // says nothing. What is left is counted against what can be left.
    #[test]
    fn near_the_limit_is_a_fifth_of_what_a_key_can_have() {
        for (quota, near) in [
            (r#""limit": 100, "window": "1m", "burst": 10"#, [8, 9, 10].as_slice()),
            (r#""limit": 10, "window": "1m""#, &[8, 9, 10]),
            (r#""limit": 4, "window": "1m", "algorithm": "fixed-window""#, &[4]),
            (r#""limit": 1, "window": "1m""#, &[1]),
        ] {
            let document = format!(
                r#"{{"version": 1, "rules": [{{"name": "r", "key": [], "quotas": [{{{quota}}}]}}]}}"#
            );
            let policy = Policy::compile(&document, Surface::Library).expect("a policy");
            let (mut plan, mut stored, mut seen) = (Plan::new(), Vec::new(), Vec::new());
            for request in 1..=12 {
                policy.plan(&Get, &mut plan);
                plan.each_partition(|p| p.load(&policy, Some(&stored)));
                plan.decide(&policy, Timestamp::from_millis(1));
                if let Some(partition) = plan.partition(0).filter(|p| p.changed()) {
                    stored = partition.value().to_vec();
                }
                let outcome = plan.outcome(&policy);
                if outcome.decisions().any(|rule| rule.nearly_used_up().next().is_some()) {
                    seen.push(request);
                }
            }
            assert_eq!(seen, near, "{quota}");
        }
    }
}
