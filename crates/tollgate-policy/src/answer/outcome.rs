//! The outcome of one request: pass, wait or deny, and its response.
//!
//! Invariant: an outcome only reads the plan; every call returns the same. The cause of a denial is
//! found once, when the outcome is made; status, fields and bodies follow from it. A quota's denial
//! is 429 (RFC 6585) unless the policy sets another status. A failure's is 503, because the client
//! did nothing wrong. A rule that denies without counting is 403. A request that cannot be read is
//! 400, whatever the policy: no wait helps.
//! Names of quotas are reported to the client, keys never.

use tollgate_core::{Algorithm, Decision, Span, Verdict};

use crate::answer::cause::{Cause, status_of};
use crate::answer::fields::{FieldWriter, NearestQuota, Reported};
use crate::answer::rule_result::RuleResult;
use crate::answer::text::Text;
use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::{Full, Plan};
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;
use crate::spec::action::Action;
use crate::spec::on_failure::OnFailure;
use crate::stable_hash::stable_hash;

/// Whether the request may proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Yes, now.
    Allow,
    /// After waiting this long; its place is taken.
    Delay(Span),
    /// Not yet: wait this long, then load and decide the same plan again, and call
    /// [`Outcome::disposition_after`].
    Retry(Span),
    /// No: respond with this status and the outcome's headers and body.
    Deny {
        /// 429 when a quota denies, 403 when a deny rule does, 503 when a failure does, 400 when
        /// the request cannot be read, or the status in the rule.
        status: u16,
    },
}

/// The decision on one request.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) policy: &'a Policy,
    /// The cause of the denial, if the request is denied.
    pub(crate) cause: Option<Cause<'a>>,
    /// The index of the rule that denies it, and its result.
    refused: Option<(u16, RuleResult)>,
}

impl Plan {
    /// The outcome of a decided plan.
    #[must_use]
    pub fn outcome<'a>(&'a self, policy: &'a Policy) -> Outcome<'a> {
        let undecided = Outcome { plan: self, policy, cause: None, refused: None };
        if let Some(cause) = undecided.find_denial() {
            return Outcome { cause: Some(cause), ..undecided };
        }
        let (cause, refused) = undecided.find_cause().unzip();
        Outcome { cause, refused, ..undecided }
    }
}

impl<'a> Outcome<'a> {
    /// Whether a request that has not waited yet may proceed.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        self.disposition_after(Span::ZERO)
    }

    /// Whether a request that has already waited this long for [`Disposition::Retry`] may proceed.
    #[must_use]
    pub fn disposition_after(&self, waited: Span) -> Disposition {
        if self.cause.is_some()
            && self.plan.rejected_waiting.is_none()
            && let Some(wait) = self.worth_waiting(waited)
        {
            return Disposition::Retry(wait);
        }
        self.final_disposition()
    }

    /// Whether a request that can wait no longer may proceed. Never [`Disposition::Retry`]: a rule
    /// that would let it wait longer denies it.
    #[must_use]
    pub fn final_disposition(&self) -> Disposition {
        match self.cause {
            Some(cause) => Disposition::Deny { status: status_of(cause) },
            None => self.delay().map_or(Disposition::Allow, Disposition::Delay),
        }
    }

    /// Calls `sink` with the name (lower case) and value of every field to add to the response. A
    /// denial has no other fields.
    pub fn headers(&self, sink: &mut dyn FnMut(&'static str, &str)) {
        let cause = self.cause;
        let mut text = Text::new();
        let writer = FieldWriter { response: &self.policy.response, jitter: self.jitter() };
        if let Some(cause) = cause {
            let kind = self.content_type(cause);
            writer.refusal(kind, self.retry_after(), &mut text, sink);
        }
        let silent = matches!(cause, Some(Cause::Silent(_)));
        if !silent && (self.policy.response.spec.on_allow || cause.is_some()) {
            writer.fields(
                || self.reported(),
                |i| {
                    self.plan
                        .partition(i)
                        .map_or(0, |partition| partition.pk(&self.policy.response))
                },
                &mut text,
                sink,
            );
        }
    }

    /// The quota that is nearest to exhaustion, among those that are reported to the client.
    #[must_use]
    pub fn nearest(&self) -> Option<NearestQuota<'a>> {
        let writer = FieldWriter { response: &self.policy.response, jitter: self.jitter() };
        writer.nearest(self.reported())
    }

    /// Calls `sink` with the name and value of every header to set on an allowed request: the marks
    /// of the rules whose limits it exceeds, and `accept-encoding: identity` where a rule reads the
    /// body of the response and asks for that.
    pub fn marks(&self, sink: &mut dyn FnMut(&'a str, &'a str)) {
        for applied in self.plan.applied.iter().filter(|applied| self.is_marked(applied)) {
            if let Some(Action::Mark(mark)) = self.rule(applied).map(|rule| &rule.terms.action) {
                sink(&mark.header.0, &mark.value.0);
            }
        }
        if self.policy.settings.asks_identity {
            let mut charged = self.plan.applied.iter().filter(|it| it.charged.is_some());
            if charged.any(|applied| self.rule(applied).is_some_and(Rule::asks_identity)) {
                sink("accept-encoding", "identity");
            }
        }
    }

    /// True when a failure denies the request, and no quota does.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.cause == Some(Cause::Failure)
    }

    /// The index in [`Policy::rules`] of the rule that denies the request and determines its
    /// response. `None`, too, when [a deny rule](Outcome::denied_by) does.
    #[must_use]
    pub fn refused_by(&self) -> Option<usize> {
        self.refused.map(|(rule, _)| rule.into())
    }

    /// The time until the same request is allowed, if no other request uses its keys: the longest
    /// wait of the violated quotas. `None` when it is not denied, and when no wait can help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Span> {
        if let Some(Full::Late(wait) | Full::Key(wait) | Full::Worker(wait)) =
            self.plan.rejected_waiting
        {
            return Some(wait);
        }
        if !matches!(self.cause, Some(Cause::Quota(_))) || self.is_key_missing() {
            return None;
        }
        let binding = self.plan.applied.iter().filter(|applied| applied.is_binding());
        let denials = binding.flat_map(|it| self.of_rule(it)).filter(|r| !r.decision.is_admitted());
        // The end of a request in flight is unknown.
        let waits = denials.filter(|r| !r.is_in_flight()).map(|r| r.decision.retry_after);
        waits.reduce(|one, other| Some(one?.max(other?)))?
    }

    /// The names of the quotas that deny and are reported to the client.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        self.reported().filter(|r| r.is_violated()).map(|r| r.quota.name.as_str())
    }

    /// The result of each rule that applied, with its index in [`Policy::rules`]. Rules that were
    /// not evaluated, because [a cached denial](crate::Denials) applied, are left out.
    pub fn rules(&self) -> impl Iterator<Item = (usize, RuleResult)> + use<'a> {
        let outcome = *self;
        self.plan
            .applied
            .iter()
            .filter(|applied| !applied.is_unasked())
            .map(move |applied| (usize::from(applied.rule), outcome.result(applied)))
    }

    /// True when the rule sets its mark, if it has one. A request that it cannot read gets the
    /// mark, too: else a client could remove the mark with a spelling that cannot be counted.
    fn is_marked(&self, applied: &'a AppliedRule) -> bool {
        match self.result(applied) {
            RuleResult::Marked => true,
            RuleResult::Malformed => applied.is_enforced(),
            RuleResult::Allowed
            | RuleResult::Denied
            | RuleResult::Delayed
            | RuleResult::Shadowed
            | RuleResult::Failed
            | RuleResult::Blocked
            | RuleResult::Penalised => false,
        }
    }

    pub(crate) fn rule(&self, applied: &AppliedRule) -> Option<&'a Rule> {
        let rule = self.policy.rules.get(usize::from(applied.rule));
        debug_assert!(rule.is_some(), "an outcome is asked of the policy that made its plan");
        rule
    }

    /// The result of a rule. That of the rule that denies is known.
    pub(crate) fn result(&self, applied: &'a AppliedRule) -> RuleResult {
        let known = self.refused.filter(|(rule, _)| *rule == applied.rule);
        known.map_or_else(|| self.find_result(applied), |(_, result)| result)
    }

    fn find_result(&self, applied: &'a AppliedRule) -> RuleResult {
        if applied.malformed().is_some() {
            return RuleResult::Malformed;
        }
        if applied.rejected_waiting {
            return RuleResult::Denied;
        }
        if applied.is_unasked() {
            // The rule does not object, and the result is not reported.
            return RuleResult::Allowed;
        }
        let decided = applied.partition().map(|partition| self.status(partition).is_decided());
        if decided == Some(false) {
            return RuleResult::Failed;
        }
        let decisions = self.quotas_of(applied);
        if decided.is_none() || !decisions.iter().all(Decision::is_admitted) {
            return self.over_limit(applied);
        }
        if decisions.iter().any(|it| matches!(it.verdict, Verdict::Delay(_))) {
            if applied.is_enforced() { RuleResult::Delayed } else { RuleResult::Shadowed }
        } else {
            RuleResult::Allowed
        }
    }

    /// The cause of the denial, if any: the request cannot be read, or else the first rule that
    /// denies; a quota's denial takes precedence over a failure's.
    fn find_cause(&self) -> Option<(Cause<'a>, (u16, RuleResult))> {
        let binding = || self.plan.applied.iter().filter(|applied| applied.is_binding());
        let malformed = |it: &AppliedRule| {
            Some((Cause::Malformed(it.malformed()?), (it.rule, RuleResult::Malformed)))
        };
        if let Some(cause) = binding().find_map(malformed) {
            return Some(cause);
        }
        if let Some(full) = self.plan.rejected_waiting {
            let cause = match full {
                Full::Worker(_) => Cause::Busy,
                Full::Key(_) | Full::Late(_) | Full::NoPlace => Cause::Quota(None),
            };
            let waits = self.plan.applied.iter().find(|applied| applied.rejected_waiting);
            let applied = waits.or_else(|| binding().next())?;
            return Some((cause, (applied.rule, self.find_result(applied))));
        }
        let mut failure = None;
        for applied in binding() {
            let result = self.find_result(applied);
            match (result, self.rule(applied)) {
                (_, Some(rule)) if result.denies() => {
                    let cause = match &rule.terms.action {
                        Action::Respond(reply) => Cause::Silent(reply),
                        Action::Deny(reply) if !applied.is_without_key() => {
                            Cause::Quota(reply.as_ref())
                        }
                        Action::Delay(_) | Action::Mark(_) if !applied.is_without_key() => {
                            Cause::Quota(None)
                        }
                        Action::Deny(reply) => Cause::MissingKey(reply.as_ref()),
                        Action::Delay(_) | Action::Mark(_) => Cause::MissingKey(None),
                    };
                    return Some((cause, (applied.rule, result)));
                }
                (RuleResult::Failed, Some(rule)) if rule.terms.on_failure == OnFailure::Deny => {
                    failure = failure.or(Some((Cause::Failure, (applied.rule, result))));
                }
                _ => {}
            }
        }
        failure
    }

    pub(crate) fn is_key_missing(&self) -> bool {
        self.plan.applied.iter().any(|applied| applied.is_binding() && applied.is_without_key())
    }

    /// The wait after which every rule that denies would allow the request, if each of them permits
    /// a total wait that long.
    fn worth_waiting(&self, waited: Span) -> Option<Span> {
        let mut longest = None;
        for applied in self.plan.applied.iter().filter(|applied| applied.is_binding()) {
            if !self.result(applied).denies() {
                continue;
            }
            let max = self.rule(applied).and_then(Rule::longest_wait)?;
            for reported in self.of_rule(applied).filter(|r| !r.decision.is_admitted()) {
                let wait = reported.next_look(max.saturating_sub(waited))?;
                let is_queue = reported.quota.limiter.algorithm() == Algorithm::LeakyQueue;
                if is_queue || waited.saturating_add(wait) > max {
                    return None;
                }
                longest = longest.max(Some(wait));
            }
        }
        longest
    }

    fn delay(&self) -> Option<Span> {
        let enforced = self.plan.applied.iter().filter(|it| it.is_enforced() && !it.is_unasked());
        let waits = enforced.flat_map(|applied| self.quotas_of(applied)).filter_map(|decision| {
            match decision.verdict {
                Verdict::Delay(wait) => Some(wait),
                Verdict::Allow | Verdict::Deny | Verdict::Penalty => None,
            }
        });
        waits.max()
    }

    /// The jitter added to waits: the same for one key at one time, on every surface.
    pub(crate) fn jitter(&self) -> Span {
        let most = self.policy.response.spec.jitter.as_nanos();
        let Some(partition) = self.plan.partition(0).filter(|_| most > 0) else {
            return Span::ZERO;
        };
        let key = partition.jitter_hash().to_le_bytes();
        let hash = stable_hash(&[&key, &partition.stored.at.as_nanos().to_le_bytes()]);
        Span::from_nanos(hash.checked_rem(most.saturating_add(1)).unwrap_or(0))
    }

    fn status(&self, partition: usize) -> Status {
        self.plan.partitions.get(partition).map_or(Status::Pending, |stored| stored.status)
    }

    /// Every quota that was decided and is reported to the client: not those of a shadow rule, nor
    /// those of a rule with the action `respond`.
    pub(crate) fn reported(&self) -> impl Iterator<Item = Reported<'a>> + Clone + use<'a> {
        let outcome = *self;
        let is_reported = move |applied: &&AppliedRule| {
            let silent = matches!(
                outcome.rule(applied).map(|rule| &rule.terms.action),
                Some(Action::Respond(_))
            );
            applied.is_enforced() && !silent
        };
        let reported = self.plan.applied.iter().filter(is_reported);
        reported.flat_map(move |applied| outcome.of_rule(applied))
    }

    /// The decided quotas of a rule.
    pub(crate) fn of_rule(
        self,
        applied: &'a AppliedRule,
    ) -> impl Iterator<Item = Reported<'a>> + Clone + use<'a> {
        let quotas = if applied.is_unasked() { &[] } else { self.policy.quotas(applied) };
        let (at, decisions) = self.decided(applied, quotas.len());
        let unit = self.rule(applied).and_then(Rule::unit);
        quotas.iter().zip(decisions).map(move |(quota, decision)| Reported {
            quota,
            unit,
            decision,
            at,
            partition: applied.partition(),
            rejected_waiting: applied.rejected_waiting,
            is_leased: applied.is_leased(),
        })
    }
}
