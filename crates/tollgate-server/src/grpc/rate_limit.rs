//! `RateLimitService/ShouldRateLimit`: every descriptor is a request of its own.
//!
//! Invariant: over limit when any descriptor is, whatever else is said; each is decided, charged
//! and told by itself, but where the call ends without an answer (too many ask, or its caller
//! leaves): then nothing of it is charged. The protocol has two words: a refusal by `on_failure` is
//! "over limit", too, because an error would open Envoy's filter, which the policy did not say.
//! Envoy gives every refusal the status that its filter is configured with (429), so a body that
//! names another one is left out.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tollgate_core::Span;
use tollgate_grpc::rate_limit::{DescriptorStatus, Nearest, RateLimitRequest, RateLimitResponse};
use tollgate_grpc::status::Status;
use tollgate_policy::{Answer, NearestQuota, Outcome, PROBLEM_JSON};
use tollgate_service::check::BATCH_AT_ONCE;

use super::answering::overloaded;
use super::facts::Descriptor;
use crate::check::{self, Decision};
use crate::gate::Gate;

/// The status that Envoy gives refusals unless its filter says otherwise.
const ENVOYS_STATUS: u16 = 429;

/// Answers a message.
pub(super) async fn answer(
    gate: &Arc<Gate>,
    message: &[u8],
    patience: Span,
) -> Result<Vec<u8>, Status> {
    let request = RateLimitRequest::read(message)?;
    let each = (0..request.descriptors.len()).map(|index| one(gate, &request, index, patience));
    let decisions: Vec<Decision> = stream::iter(each).buffered(BATCH_AT_ONCE).collect().await;
    if decisions.iter().any(|decision| decision.is_overload) {
        // The call ends without an answer: none of its descriptors was decided, for all that its
        // caller knows.
        join_all(decisions.into_iter().map(Decision::give_back)).await;
        return Err(overloaded());
    }
    let (said, delay) = said(&decisions);
    join_all(decisions.into_iter().map(|decision| decision.wait(delay))).await;
    Ok(said)
}

/// Decides one descriptor.
async fn one(
    gate: &Arc<Gate>,
    request: &RateLimitRequest<'_>,
    index: usize,
    patience: Span,
) -> Decision {
    check::decide_within(gate, &Descriptor { request, index }, patience).await
}

/// The answer, and how long to wait before it.
fn said(decisions: &[Decision]) -> (Vec<u8>, Span) {
    let outcomes: Vec<Outcome<'_>> = decisions
        .iter()
        .map(|decision| decision.decided.plan.outcome(&decision.active.policy))
        .collect();
    let lead = lead(&outcomes);
    let is_list = decisions.first().is_some_and(|decision| decision.active.policy.lists_quotas());
    let (mut body, mut fields, mut request_fields) = (String::new(), Vec::new(), Vec::new());
    for (index, outcome) in outcomes.iter().enumerate() {
        if index == lead {
            body = told(outcome);
        }
        outcome.headers(&mut |name, value| {
            let is_said = match name {
                "content-type" => index == lead && !body.is_empty(),
                "ratelimit" | "ratelimit-policy" => index == lead || is_list,
                _ => index == lead,
            };
            if is_said {
                fields.push((name, value.to_owned()));
            }
        });
        outcome.marks(&mut |name, value| request_fields.push((name, value)));
    }
    let statuses = outcomes.iter().map(|outcome| DescriptorStatus {
        is_over: is_over(outcome),
        nearest: outcome.nearest().map(nearest),
    });
    let response = RateLimitResponse {
        statuses: statuses.collect(),
        response_fields: fields.iter().map(|(name, value)| (*name, value.as_str())).collect(),
        request_fields,
        body: &body,
    };
    let delay = match response.is_over() {
        true => Span::ZERO,
        false => outcomes.iter().map(delay).max().unwrap_or(Span::ZERO),
    };
    (response.write(), delay)
}

/// The descriptor that the response is about: of those that are over their limit the one that is so
/// for the longest, else the one that is nearest to it.
fn lead(outcomes: &[Outcome<'_>]) -> usize {
    let nearness = |outcome: &Outcome<'_>| match is_over(outcome) {
        // No wait helps at all: that is the longest.
        true => (0, u64::MAX.saturating_sub(outcome.retry_after().unwrap_or(Span::MAX).as_nanos())),
        false => (1, outcome.nearest().map_or(u64::MAX, |nearest| nearest.remaining)),
    };
    let lead = outcomes.iter().enumerate().min_by_key(|(_, outcome)| nearness(outcome));
    lead.map_or(0, |(index, _)| index)
}

/// The body, if it says nothing that Envoy's answer would belie.
fn told(outcome: &Outcome<'_>) -> String {
    let mut is_problem = false;
    outcome
        .headers(&mut |name, value| is_problem |= (name, value) == ("content-type", PROBLEM_JSON));
    match outcome.final_answer() {
        Answer::Refuse { status } if status == ENVOYS_STATUS || !is_problem => outcome.body(),
        Answer::Refuse { .. } | Answer::Pass | Answer::Delay(_) | Answer::Retry(_) => String::new(),
    }
}

fn is_over(outcome: &Outcome<'_>) -> bool {
    matches!(outcome.final_answer(), Answer::Refuse { .. })
}

fn delay(outcome: &Outcome<'_>) -> Span {
    match outcome.final_answer() {
        Answer::Delay(delay) => delay,
        Answer::Pass | Answer::Retry(_) | Answer::Refuse { .. } => Span::ZERO,
    }
}

fn nearest(quota: NearestQuota<'_>) -> Nearest<'_> {
    Nearest {
        name: quota.name,
        limit: quota.limit,
        window: std::time::Duration::from_nanos(quota.window.as_nanos()),
        remaining: quota.remaining,
        reset_seconds: quota.reset_seconds,
    }
}
