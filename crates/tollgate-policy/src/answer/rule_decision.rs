//! The decision of one rule about one request, quota by quota: for measuring a policy.
//!
//! Invariant: it only reads the plan, and no decision depends on it. A quota that was not decided
//! (a key part was missing, the request cannot be read, a store failed) has no entry.

use alloc::string::String;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::answer::outcome::Outcome;
use crate::answer::rule_result::RuleResult;
use crate::pipeline::applied::AppliedRule;
use crate::pipeline::key_hashes::pk_text;
use crate::pipeline::plan::{CLOSED, Full, Plan};
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::spec::action::Action;

/// A quota is nearly used up when at most this part of it is left: 80 % are used, the same
/// threshold as `near_limit` of envoyproxy/ratelimit.
const NEAR: u64 = 5;

/// The decision of one rule that applied.
#[derive(Clone, Copy, Debug)]
pub struct RuleDecision<'a> {
    /// Its index in [`Policy::rules`](crate::Policy::rules).
    pub rule: usize,
    /// The index in [`Policy::quota_sets`](crate::Policy::quota_sets) of the quotas that it counted
    /// in: its own or a tier's; beyond all of them for a tenant's own.
    pub quota_set: usize,
    /// These quotas.
    pub set: &'a QuotaSet,
    /// The result.
    pub result: RuleResult,
    /// The cost of the request under the rule, in quota units.
    pub cost: u64,
    /// True when a denial by the rule stops the request: it is enforced for this key, and does more
    /// than mark.
    pub is_binding: bool,
    /// The index of the partition that it counts in, in the [`Plan`]; `None` when the
    /// request has no such key.
    pub partition: Option<usize>,
    /// The priority of the tenant's entry that chose these quotas, its own or a tier's; `None`
    /// where the policy did.
    pub by_entry: Option<u32>,
    /// The end of an operator's block of the key, by the clock of the counting node. Until then
    /// every quota of the key denies, whatever was used.
    pub blocked_until: Option<Timestamp>,
    /// The time of the decision, by the same clock; 0 when nothing was decided.
    pub at: Timestamp,
    /// True when the units held by a node or shard paid for it or led to its denial: the remaining
    /// units are those held there, not those of the key.
    pub is_leased: bool,
    /// The decision of each quota of the set, in its order; empty when nothing was decided.
    pub quotas: &'a [Decision],
}

impl RuleDecision<'_> {
    /// The index in [`RuleDecision::quotas`] of the quota that the result is about, for metrics and
    /// logs: among those that deny the one with the longest wait, or else among those that delay.
    #[must_use]
    pub fn said_by(&self) -> Option<usize> {
        let quotas = self.quotas.iter().enumerate();
        let delay = |verdict: Verdict| match verdict {
            Verdict::Delay(wait) => Some(wait),
            Verdict::Allow | Verdict::Deny | Verdict::Penalty => None,
        };
        let delays = quotas.clone().filter_map(|(i, quota)| Some((i, delay(quota.verdict)?)));
        let delays = || delays.rev().max_by_key(|(_, wait)| *wait).map(|(quota, _)| quota);
        match self.result {
            RuleResult::Denied
            | RuleResult::Blocked
            | RuleResult::Penalised
            | RuleResult::Marked
            | RuleResult::Shadowed => {
                let denies = quotas.filter(|(_, quota)| !quota.is_admitted());
                // Without a time the denial is permanent. Of equals the first.
                let wait = |after: Option<Span>| after.unwrap_or(Span::MAX);
                let longest = denies.rev().max_by_key(|(_, quota)| wait(quota.retry_after));
                longest.map(|(i, _)| i).or_else(delays)
            }
            RuleResult::Delayed => delays(),
            RuleResult::Allowed | RuleResult::Failed | RuleResult::Malformed => None,
        }
    }

    /// The indices in [`RuleDecision::quotas`] of those that allowed the request and have at most a
    /// fifth left: of the limit, or of the burst where that is less and bounds the remaining units.
    /// Quotas held by a node or shard are left out.
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
    /// The decided plan.
    #[must_use]
    pub const fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The decision of each rule that applied, in the order of [`Outcome::rules`].
    pub fn decisions(&self) -> impl Iterator<Item = RuleDecision<'a>> + use<'a> {
        let outcome = *self;
        let asked = self.plan.applied.iter().filter(|applied| !applied.is_unasked());
        asked.filter_map(move |applied| {
            let set = outcome.policy.applied_set(applied)?;
            let (at, quotas) = outcome.decided(applied, set.quotas.len());
            Some(RuleDecision {
                rule: applied.rule.into(),
                quota_set: outcome.policy.index_of(&applied.set),
                set,
                result: outcome.result(applied),
                cost: applied.cost,
                is_binding: applied.is_binding(),
                partition: applied.partition(),
                by_entry: applied.by_entry,
                blocked_until: applied.blocked_until(),
                is_leased: applied.is_leased(),
                at,
                quotas,
            })
        })
    }

    /// [`Outcome::rules`] for a request that has waited this long for
    /// [`Disposition::Retry`]: a rule that lets requests wait has then
    /// delayed it, not allowed it at once.
    ///
    /// [`Disposition::Retry`]: crate::Disposition::Retry
    pub fn rules_after(&self, waited: Span) -> impl Iterator<Item = (usize, RuleResult)> + use<'a> {
        let outcome = *self;
        let asked = self.plan.applied.iter().filter(|applied| !applied.is_unasked());
        asked.map(move |applied| {
            let (index, result) = (applied.rule.into(), outcome.result(applied));
            (index, outcome.after(waited, (index, applied.is_enforced()), result))
        })
    }

    /// The result of a rule whose quota denies, or whose key is missing.
    pub(crate) fn over_limit(&self, applied: &'a AppliedRule) -> RuleResult {
        if !applied.is_enforced() {
            return RuleResult::Shadowed;
        }
        match self.rule(applied).map(|rule| &rule.terms.action) {
            Some(Action::Mark(_)) => RuleResult::Marked,
            Some(Action::Deny(_) | Action::Delay(_) | Action::Respond(_)) | None => {
                if applied.blocked_until().is_some() {
                    RuleResult::Blocked
                } else if self.quotas_of(applied).iter().any(|it| it.verdict == Verdict::Penalty) {
                    RuleResult::Penalised
                } else {
                    RuleResult::Denied
                }
            }
        }
    }

    /// The result of the rule of this index, which is enforced or not, for a request that has
    /// `waited` for this long.
    fn after(
        &self,
        waited: Span,
        (rule, enforced): (usize, bool),
        result: RuleResult,
    ) -> RuleResult {
        let waits = || {
            let action = self.policy.rules.get(rule).map(|rule| &rule.terms.action);
            enforced && matches!(action, Some(Action::Delay(_)))
        };
        if result == RuleResult::Allowed && waited > Span::ZERO && waits() {
            return RuleResult::Delayed;
        }
        result
    }

    /// [`Outcome::decisions`] with the results of [`Outcome::rules_after`].
    pub fn decisions_after(
        &self,
        waited: Span,
    ) -> impl Iterator<Item = RuleDecision<'a>> + use<'a> {
        let outcome = *self;
        self.decisions().map(move |decision| RuleDecision {
            // A rule that delays and is enforced is binding.
            result: outcome.after(waited, (decision.rule, decision.is_binding), decision.result),
            ..decision
        })
    }

    /// True when the request is denied because too many requests are waiting.
    #[must_use]
    pub const fn is_waiting_full(&self) -> bool {
        matches!(self.plan.rejected_waiting, Some(Full::Key(_) | Full::Worker(_)))
    }

    /// The index of the partition by which the rule denies that [`Outcome::refused_by`] names, and
    /// the keyed hash of its key.
    #[must_use]
    pub fn refused_key(&self) -> Option<(usize, u64)> {
        let rule = self.refused_by()?;
        let applied = self.plan.applied.iter().find(|it| usize::from(it.rule) == rule)?;
        let partition = applied.partition()?;
        Some((partition, self.partition_pk(partition)?))
    }

    /// The keyed hash of a partition's key; [`Outcome::partition_key_hash`] returns it as text.
    #[must_use]
    pub fn partition_pk(&self, partition: usize) -> Option<u64> {
        self.plan.partition(partition).map(|it| it.pk(&self.policy.response))
    }

    /// The keyed hash of a partition's key as reported to clients (`pk`), in base64: for a log. It
    /// can be guessed unless the surface has set a secret ([`Policy::set_hash_key`]).
    ///
    /// [`Policy::set_hash_key`]: crate::Policy::set_hash_key
    #[must_use]
    pub fn partition_key_hash(&self, partition: usize) -> Option<String> {
        self.plan.partition(partition).map(|it| pk_text(it.pk(&self.policy.response)))
    }

    /// When a rule was decided, and the decision of each of its quotas, of which there are `count`;
    /// empty where none was made.
    pub(crate) fn decided(
        &self,
        applied: &AppliedRule,
        count: usize,
    ) -> (Timestamp, &'a [Decision]) {
        if applied.is_closed() {
            return (Timestamp::ZERO, CLOSED);
        }
        let partition = applied.partition().and_then(|i| self.plan.partitions.get(i));
        let Some(partition) = partition.filter(|it| it.status.is_decided()) else {
            return (Timestamp::ZERO, &[]);
        };
        let first = applied.first_decision;
        let decisions = self.plan.decisions.get(first..first.saturating_add(count));
        (partition.at, decisions.unwrap_or_default())
    }

    /// The decision of each quota of a rule; empty where none was made.
    pub(crate) fn quotas_of(&self, applied: &AppliedRule) -> &'a [Decision] {
        self.decided(applied, self.policy.quotas(applied).len()).1
    }
}

#[cfg(test)]
mod tests {
    use crate::compiled_for_tests::compile;
    use alloc::borrow::Cow;
    use alloc::format;
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr};

    use tollgate_core::Timestamp;

    use crate::{Facts, Plan, RuleResult, Surface};

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

    /// The denying quota is distinguished from the allowing one, and a rule without a key reports
    /// no quotas.
    #[test]
    fn every_quota_of_every_rule_is_told() {
        let document = r#"{"version": 1, "rules": [
            {"name": "each", "key": ["client_ip"], "cost": 2,
             "quotas": [{"limit": 10, "window": "1m", "name": "minute"}, {"limit": 2, "window": "1h", "name": "hour"}]},
            {"name": "token", "key": [{"header": "x-token"}], "on_missing": "deny", "cost": 2, "mode": "shadow",
             "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
        let policy = compile(document, Surface::Library);
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

    // Guards: a quota with a small burst for which every request is near the limit, so that the
    // metric is useless. The remaining units are compared with the most that can remain.
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
            let policy = compile(&document, Surface::Library);
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
