//! The report of `explain` as plain data: the output of `--json`. Documented in
//! docs/policy/command-line.md.
//!
//! Invariant: it contains only data of the outcome; keys only as hashes.

use std::net::IpAddr;

use serde::Serialize;
use tollgate_core::{Decision, Timestamp, Verdict};
use tollgate_policy::explain::{Applicability, DenyRuleInWords, RuleVerdict, words};
use tollgate_policy::{
    CompiledQuota, DenyMatch, DenyRule, Disposition, Malformed, Outcome, Plan, Policy, QuotaSet,
    Rule, Tenant,
};

use super::request::Request;
use crate::tenants::Tenants;

/// Everything about one request.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Always true: with problems there is a report of `check` instead.
    pub(super) ok: bool,
    pub(super) surface: &'static str,
    /// Assumptions about facts that the request leaves open.
    pub(super) assumed: Vec<String>,
    pub(super) client: Option<IpAddr>,
    /// Every way in which servers read the path; keys use the first.
    pub(super) paths: Vec<String>,
    /// The tenant of the request; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    /// The tenant's entry, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<EntryReport>,
    /// True when entries were given.
    #[serde(skip)]
    pub(super) has_entries: bool,
    pub(super) request: u32,
    pub(super) before: EarlierDecisions,
    /// True when a rule that applies counts requests until they end: the earlier ones have not.
    #[serde(skip)]
    pub(super) counts_in_flight: bool,
    /// The rules that deny without counting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) deny: Vec<DenyReport>,
    pub(super) rules: Vec<RuleReport>,
    pub(super) decision: FinalDecision,
    /// Fields of Tollgate's response, or fields added to the origin's.
    pub(super) headers: Vec<(String, String)>,
    /// `None` when the origin responds.
    pub(super) body: Option<String>,
    /// Headers that the origin sees in addition to the client's own.
    pub(super) origin_headers: Vec<(String, String)>,
}

/// A rule that denies without counting, and its result.
#[derive(Debug, Serialize)]
pub(super) struct DenyReport {
    pub(super) name: String,
    /// The requests that it denies.
    pub(super) is_for: String,
    /// Why it does not apply.
    pub(super) reason: Option<String>,
    pub(super) result: Option<&'static str>,
}

/// A tenant's entry and its position.
#[derive(Debug, Serialize)]
pub(super) struct EntryReport {
    pub(super) file: String,
    pub(super) line: usize,
    /// False when it has expired at the time of the request.
    pub(super) in_force: bool,
    pub(super) note: Option<String>,
}

/// The decisions on the same requests before this one.
#[derive(Debug, Default, Serialize)]
pub(super) struct EarlierDecisions {
    pub(super) passed: u32,
    pub(super) delayed: u32,
    pub(super) waiting: u32,
    pub(super) refused: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleReport {
    pub(super) name: String,
    pub(super) applies: bool,
    /// Why the rule does not apply.
    pub(super) reason: Option<String>,
    /// The decision, when the rule applies.
    pub(super) verdict: Option<VerdictReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct VerdictReport {
    pub(super) result: &'static str,
    pub(super) tier: Option<String>,
    /// The tenant's entry chose the quotas: its `own` or a `tier`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<&'static str>,
    pub(super) key: String,
    /// Sixteen hexadecimal digits; `None` when a part is missing and the rule denies, or when it is
    /// malformed.
    pub(super) key_hash: Option<String>,
    /// Why the rule cannot read the request.
    pub(super) malformed: Option<&'static str>,
    pub(super) cost: u64,
    pub(super) charged: String,
    pub(super) enforced: bool,
    /// Only the surface knows for which keys the rule is enforced; `enforced` assumes that this key
    /// is one of them.
    pub(super) chosen_in_secret: bool,
    /// Its priority among waiting requests, from 1; absent where the rule has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<u8>,
    pub(super) quotas: Vec<QuotaReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct QuotaReport {
    pub(super) name: String,
    pub(super) verdict: &'static str,
    pub(super) limit: u64,
    /// Where the limit of this request is from, if requests have limits of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_from: Option<String>,
    /// The number of units that an idle key gets at once; `remaining` is out of this.
    pub(super) burst: u64,
    pub(super) remaining: u64,
    /// How long this quota alone makes the request wait: in its queue, or until it allows the
    /// request.
    pub(super) wait_ms: Option<u64>,
    #[serde(skip)]
    pub(super) words: String,
}

#[derive(Debug, Serialize)]
pub(super) struct FinalDecision {
    /// `pass`, `delay` (then allow), `retry` (wait, then decide again) or `refuse`.
    pub(super) answer: &'static str,
    /// The status of Tollgate's response; `None` when the origin responds.
    pub(super) status: Option<u16>,
    pub(super) wait_ms: Option<u64>,
    #[serde(skip)]
    pub(super) words: String,
}

impl EarlierDecisions {
    const fn total(&self) -> u32 {
        let Self { passed, delayed, waiting, refused } = self;
        passed.saturating_add(*delayed).saturating_add(*waiting).saturating_add(*refused)
    }

    /// Counts one decision.
    pub(super) const fn count(&mut self, disposition: Disposition) {
        let counter = match disposition {
            Disposition::Allow => &mut self.passed,
            Disposition::Delay(_) => &mut self.delayed,
            Disposition::Retry(_) => &mut self.waiting,
            Disposition::Deny { .. } => &mut self.refused,
        };
        *counter = counter.saturating_add(1);
    }
}

impl Report {
    /// Builds the report on a decided plan.
    pub(super) fn new(
        policy: &Policy,
        request: &Request<'_>,
        plan: &Plan,
        before: EarlierDecisions,
    ) -> Self {
        let outcome = plan.outcome(policy);
        let mut report = Self {
            ok: true,
            surface: request.surface.name(),
            assumed: request.assumed.clone(),
            client: policy.explain().client_address(request),
            paths: policy.explain().readings(request),
            tenant: plan.tenant().and_then(|tenant| policy.tenants()?.name_of(tenant.id())),
            entry: None,
            has_entries: false,
            request: before.total().saturating_add(1),
            before,
            counts_in_flight: outcome
                .decisions()
                .any(|it| policy.rules().get(it.rule).is_some_and(Rule::limits_requests_in_flight)),
            deny: deny(policy, request, &outcome),
            rules: rules(policy, request, plan, &outcome),
            decision: decided(outcome.disposition()),
            headers: Vec::new(),
            body: None,
            origin_headers: Vec::new(),
        };
        report.answer(&outcome, request.grpc_content_type());
        report
    }

    /// The same report with the entry of its tenant, if it is among those that were given.
    pub(super) fn with_entry(
        self,
        policy: &Policy,
        plan: &Plan,
        tenants: &Tenants,
        now: Timestamp,
    ) -> Self {
        let found = self.tenant.as_ref().and_then(|name| tenants.find(policy, name));
        let entry = found.map(|(place, entry)| EntryReport {
            file: place.file.clone(),
            line: place.line,
            in_force: plan
                .tenant()
                .is_some_and(|tenant| Tenant::new(policy, tenant.id(), entry).is_in_force(now)),
            note: entry.note.clone(),
        });
        Self { entry, has_entries: tenants.are_given(), ..self }
    }

    /// Fills in the parts that the client and the origin see.
    fn answer(&mut self, outcome: &Outcome<'_>, grpc: Option<&'static str>) {
        if self.decision.answer == "retry" {
            return; // nothing is sent yet
        }
        let headers = &mut self.headers;
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        match grpc.filter(|_| self.decision.status.is_some()) {
            Some(content_type) => outcome.grpc_headers(content_type, &mut add),
            None => outcome.headers(&mut add),
        }
        if self.decision.status.is_none() {
            let marks = &mut self.origin_headers;
            outcome.marks(&mut |name, value| marks.push((name.to_owned(), value.to_owned())));
        } else if grpc.is_some() {
            self.decision.status = Some(200); // trailers only
            let code = outcome.grpc().code;
            let how = if code == 0 { "respond, do not forward:" } else { "deny with" };
            self.decision.words = format!("{how} gRPC status {code}");
            self.body = Some(String::new());
        } else {
            self.body = Some(outcome.body());
        }
    }
}

fn deny(policy: &Policy, request: &Request<'_>, outcome: &Outcome<'_>) -> Vec<DenyReport> {
    let matches: Vec<DenyMatch<'_>> = outcome.deny_matches().collect();
    let rules = policy.deny_rules().iter().zip(policy.explain().deny_rules());
    let rules = rules.zip(policy.explain().deny_applicability(request)).enumerate();
    let report = |(i, ((rule, words), applicability)): (
        usize,
        ((&DenyRule, DenyRuleInWords), Applicability),
    )| DenyReport {
        name: rule.name().to_owned(),
        is_for: words.applies,
        reason: words::reason(&applicability),
        result: matches.iter().find(|matched| matched.index == i).map(|it| it.result.label()),
    };
    rules.map(report).collect()
}

fn rules(
    policy: &Policy,
    request: &Request<'_>,
    plan: &Plan,
    outcome: &Outcome<'_>,
) -> Vec<RuleReport> {
    let verdicts = outcome.verdicts();
    let applicability = policy.explain().applicability(request);
    let rules = policy.rules().iter().zip(applicability).enumerate();
    let report = |(i, (rule, applicability)): (usize, (&tollgate_policy::Rule, Applicability))| {
        let verdict = verdicts.iter().find(|verdict| verdict.rule == i);
        RuleReport {
            name: rule.name().to_owned(),
            applies: verdict.is_some(),
            reason: words::reason(&applicability),
            verdict: verdict.map(|it| verdict_report(policy, request, (plan, outcome), it)),
        }
    };
    rules.map(report).collect()
}

fn verdict_report(
    policy: &Policy,
    request: &Request<'_>,
    (plan, outcome): (&Plan, &Outcome<'_>),
    verdict: &RuleVerdict<'_>,
) -> VerdictReport {
    let limit_of = |quota: &CompiledQuota| {
        words::limit(quota, policy.explain().requested_limit(request, quota))
    };
    let words = policy.explain().rule(verdict.rule);
    let decision = outcome.decisions().find(|it| it.rule == verdict.rule);
    let set = decision.map(|it| it.set);
    let by_entry = decision.is_some_and(|it| it.by_entry.is_some());
    let (key, charge) = words.map(|words| (words.key, words.charge)).unwrap_or_default();
    VerdictReport {
        result: verdict.result.label(),
        tier: set.and_then(QuotaSet::tier).map(str::to_owned),
        entry: by_entry
            .then(|| if set.and_then(QuotaSet::tier).is_some() { "tier" } else { "own" }),
        key,
        key_hash: verdict
            .partition
            .and_then(|i| plan.partition(i))
            .map(|partition| format!("{:016x}", partition.key_hash())),
        malformed: verdict.malformed.map(Malformed::detail),
        cost: verdict.cost,
        charged: charge,
        enforced: verdict.is_enforced,
        chosen_in_secret: policy
            .rules()
            .get(verdict.rule)
            .is_some_and(tollgate_policy::Rule::chooses_keys),
        priority: verdict.priority,
        quotas: verdict.quotas.iter().map(|(name, it)| quota(name, it, set, limit_of)).collect(),
    }
}

fn quota(
    name: &str,
    decision: &Decision,
    set: Option<&QuotaSet>,
    limit_of: impl Fn(&CompiledQuota) -> Option<String>,
) -> QuotaReport {
    let Decision { limit, remaining, retry_after, .. } = *decision;
    let quota = set.and_then(|set| set.quotas().iter().find(|quota| quota.name() == name));
    let burst = quota.map_or(limit, |quota| quota.limiter().capacity());
    let (verdict, wait) = match decision.verdict {
        Verdict::Allow => ("allow", None),
        Verdict::Delay(wait) => ("delay", Some(wait)),
        Verdict::Deny => ("deny", retry_after),
        Verdict::Penalty => ("penalty", retry_after),
    };
    let words = quota.map(|quota| words::decision(decision, quota.limiter())).unwrap_or_default();
    let wait_ms = wait.map(tollgate_core::Span::as_millis_ceil);
    let limit_from = quota.and_then(limit_of);
    let name = name.to_owned();
    QuotaReport { name, verdict, limit, limit_from, burst, remaining, wait_ms, words }
}

fn decided(disposition: Disposition) -> FinalDecision {
    let (answer, status, wait, words) = match disposition {
        Disposition::Allow => ("pass", None, None, "allow".to_owned()),
        Disposition::Delay(wait) => {
            ("delay", None, Some(wait), format!("wait {}, then allow", words::wait(wait)))
        }
        Disposition::Retry(wait) => {
            ("retry", None, Some(wait), format!("wait {}, then decide again", words::wait(wait)))
        }
        Disposition::Deny { status } => {
            let how = if status < 400 { "respond, do not forward: " } else { "deny with " };
            ("refuse", Some(status), None, format!("{how}{status}"))
        }
    };
    let wait_ms = wait.map(tollgate_core::Span::as_millis_ceil);
    FinalDecision { answer, status, wait_ms, words }
}
