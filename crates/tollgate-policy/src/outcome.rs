//! The answer to one request: pass, wait or refuse, and what is said about it.
//!
//! Invariant: an outcome only reads the plan; asking twice gives the same. A quota's refusal is 429 (RFC
//! 6585), a failure's is 503: the client did nothing wrong. Names of quotas are told, keys never.

use alloc::format;
use alloc::string::String;

use tollgate_core::{Decision, Span, Verdict};

use crate::compile::{Meter, Policy};
use crate::document::OnFailure;
use crate::headers;
use crate::plan::{Applied, Plan, Status};

/// May the request go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Now.
    Pass,
    /// After waiting this long.
    Delay(Span),
    /// No: answer with this status and the outcome's headers and body.
    Refuse {
        /// 429 when a quota refuses, 503 when a failure does.
        status: u16,
    },
}

/// What one rule said, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// Every quota of it admitted the request.
    Allowed,
    /// A quota of it denied, or a key part was missing.
    Denied,
    /// Admitted after a wait.
    Delayed,
    /// Its state could not be read or written.
    Failed,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A quota denies.
    Quota,
    /// The request lacks a part of a key.
    MissingKey,
    /// A state could not be read or written, and the rule denies then.
    Failure,
}

/// One quota that was decided, and its decision.
#[derive(Clone, Copy)]
pub(crate) struct Reported<'a> {
    pub(crate) meter: &'a Meter,
    pub(crate) decision: &'a Decision,
}

/// What was decided on one request.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    plan: &'a Plan,
    policy: &'a Policy,
}

impl<'a> Outcome<'a> {
    pub(crate) const fn new(plan: &'a Plan, policy: &'a Policy) -> Self {
        Self { plan, policy }
    }

    /// May the request go on?
    #[must_use]
    pub fn answer(&self) -> Answer {
        match self.cause() {
            Some(Cause::Quota | Cause::MissingKey) => Answer::Refuse { status: 429 },
            Some(Cause::Failure) => Answer::Refuse { status: 503 },
            None => self.delay().map_or(Answer::Pass, Answer::Delay),
        }
    }

    /// Calls `sink` with the name (lower case) and value of every field to add to the response. On
    /// a refusal these are all the fields it has.
    pub fn headers(&self, sink: &mut dyn FnMut(&'static str, &str)) {
        let mut text = self.plan.text.take();
        if let Some(cause) = self.cause() {
            headers::refusal(cause, self.retry_after(), &mut text, sink);
        }
        if self.policy.on_allow || self.cause().is_some() {
            headers::fields(self.policy.headers, || self.reported(), &mut text, sink);
        }
        self.plan.text.replace(text);
    }

    /// The body of a refusal: problem details (RFC 9457).
    #[must_use]
    pub fn body(&self) -> String {
        let (kind, title, status) = match self.cause() {
            Some(Cause::Failure) => {
                ("temporary-reduced-capacity", "Temporary Reduced Capacity", 503)
            }
            _ => ("quota-exceeded", "Quota Exceeded", 429),
        };
        let mut body = format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#{kind}\",\"title\":\"{title}\",\
             \"status\":{status},\"detail\":\"{}\"",
            self.detail()
        );
        let mut separator = ",\"violated-policies\":[";
        for name in self.violated() {
            body.push_str(separator);
            headers::push_quoted(name, &mut body);
            separator = ",";
        }
        body.push_str(if separator == "," { "]}" } else { "}" });
        body
    }

    /// How long until the same request is admitted, if nobody else uses its keys: the longest of the
    /// violated quotas'. `None` when it is not refused, and when no wait can help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Span> {
        if self.cause() != Some(Cause::Quota) || self.is_key_missing() {
            return None;
        }
        let mut longest = Span::ZERO;
        for reported in self.reported().filter(|r| !r.decision.is_admitted()) {
            longest = longest.max(reported.decision.retry_after?);
        }
        Some(longest)
    }

    /// The names of the quotas that deny.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        self.reported().filter(|r| !r.decision.is_admitted()).map(|r| r.meter.name.as_str())
    }

    /// What each rule that applied said: its index in [`Policy::rules`] and its result.
    pub fn rules(&self) -> impl Iterator<Item = (usize, RuleResult)> {
        let outcome = *self;
        self.plan
            .applied
            .iter()
            .map(move |applied| (usize::from(applied.rule), outcome.result(applied)))
    }

    fn result(&self, applied: &'a Applied) -> RuleResult {
        let Some(partition) = applied.partition else { return RuleResult::Denied };
        let mut result = RuleResult::Allowed;
        if !matches!(self.status(partition), Status::Charged | Status::Uncharged) {
            return RuleResult::Failed;
        }
        for Reported { decision, .. } in self.of_rule(applied) {
            match decision.verdict {
                Verdict::Deny => return RuleResult::Denied,
                Verdict::Delay(_) => result = RuleResult::Delayed,
                Verdict::Allow => {}
            }
        }
        result
    }

    /// Why the request is refused, if it is. A quota's word goes before a failure's.
    fn cause(&self) -> Option<Cause> {
        if self.reported().any(|r| !r.decision.is_admitted()) {
            return Some(Cause::Quota);
        }
        if self.is_key_missing() {
            return Some(Cause::MissingKey);
        }
        self.plan.applied.iter().any(|applied| self.fails_closed(applied)).then_some(Cause::Failure)
    }

    fn fails_closed(&self, applied: &'a Applied) -> bool {
        let rule = self.policy.rules.get(usize::from(applied.rule));
        self.result(applied) == RuleResult::Failed
            && rule.is_some_and(|rule| rule.on_failure == OnFailure::Deny)
    }

    fn is_key_missing(&self) -> bool {
        self.plan.applied.iter().any(|applied| applied.partition.is_none())
    }

    fn delay(&self) -> Option<Span> {
        let waits = self.reported().filter_map(|r| match r.decision.verdict {
            Verdict::Delay(wait) => Some(wait),
            _ => None,
        });
        waits.max()
    }

    fn detail(&self) -> String {
        match (self.cause(), self.retry_after()) {
            (Some(Cause::MissingKey), _) => "the request lacks what its quota is counted by".into(),
            (Some(Cause::Failure), _) => "the rate limiter cannot decide at the moment".into(),
            (_, Some(wait)) => match headers::seconds(wait) {
                1 => "try again in 1 second".into(),
                seconds => format!("try again in {seconds} seconds"),
            },
            (_, None) => "the request costs more than the quota ever holds".into(),
        }
    }

    fn status(&self, partition: usize) -> Status {
        self.plan.live().get(partition).map_or(Status::Pending, |p| p.status)
    }

    /// Every quota that was decided.
    fn reported(&self) -> impl Iterator<Item = Reported<'a>> + Clone {
        let outcome = *self;
        let decided = move |applied: &&Applied| {
            applied
                .partition
                .is_some_and(|i| matches!(outcome.status(i), Status::Charged | Status::Uncharged))
        };
        self.plan.applied.iter().filter(decided).flat_map(move |applied| outcome.of_rule(applied))
    }

    fn of_rule(self, applied: &'a Applied) -> impl Iterator<Item = Reported<'a>> + Clone {
        let decisions = self.plan.decisions.get(applied.first_decision..).unwrap_or_default();
        let meters = self.policy.meters(applied);
        meters.iter().zip(decisions).map(|(meter, decision)| Reported { meter, decision })
    }
}
