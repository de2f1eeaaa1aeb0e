//! `POST /check`: decides the described request or requests.
//!
//! Invariant: a request is decided under one policy. When a count turns out to have a newer policy,
//! the charges of the other counts are refunded, and the whole request is planned again under the
//! newer policy. Deliberately absent: which callers are allowed (`http`), and the formats of
//! request and response; those are in the service.

pub(crate) mod charges;
pub mod in_flight;
pub mod leasing;
pub(crate) mod partitions;
pub mod settling;
pub(crate) mod tenants;
pub(crate) mod waiting;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tollgate_core::Span;
use tollgate_language::{DescribedRequest, DescribedRequests};
use tollgate_policy::{Disposition, Ending, Facts, Outdated, Plan, Problems};
use tollgate_service::check::{self, BATCH_AT_ONCE, Decided, KeyBudget};
use tollgate_service::drive::MAX_REPLANS;
use tollgate_service::metrics::Event;
use tollgate_service::{ApiResponse, settle};

use crate::check::charges::Charges;
use crate::check::waiting::WaitResult;
use crate::gate::Gate;
use crate::policy::active::Active;
use crate::traces::{self, ActiveSpan, Kind};

/// The most rules of a request that its trace contains.
const MAX_TRACED_RULES: usize = 32;

/// Longer than any rule lets a request wait.
pub const FOREVER: Span = Span::MAX;

/// A decided request, and the policy that decided it. Its charges are refunded when it is dropped
/// before the caller gets the decision.
#[derive(Debug)]
#[must_use = "a decision that is not delivered charges nothing"]
pub struct Decision {
    /// The request, decided.
    pub decided: Decided,
    /// The policy.
    pub active: Arc<Active>,
    /// There is an overload: the request is denied with 503, whatever its rules decide.
    pub is_overload: bool,
    charges: Charges,
}

impl Decision {
    /// Returns the decision for the caller: the charges are kept.
    pub fn into_decided(self) -> Decided {
        self.charges.keep();
        self.decided
    }

    /// Waits here until the request may continue, for the time in its decision, which is returned
    /// then. A client that leaves meanwhile drops this future and gives its place back.
    pub(crate) async fn wait(self, delay: Span) {
        if delay > Span::ZERO {
            tokio::time::sleep(Duration::from_nanos(delay.as_nanos())).await;
        }
        self.charges.keep();
    }

    /// Refunds the charges: the caller does not get the decision.
    pub(crate) async fn give_back(self) {
        self.charges.give_back().await;
    }
}

/// Decides one request. It waits here as long as its rules allow, except for a place in a
/// `leaky-queue`, which the caller waits for.
pub async fn decide(gate: &Arc<Gate>, facts: &impl Facts) -> Decision {
    decide_within(gate, facts, FOREVER).await
}

/// Decides one request whose caller waits no longer than `patience`. A request that would take
/// longer, also for a place in a `leaky-queue`, is denied at once and charges nothing.
pub async fn decide_within(gate: &Arc<Gate>, facts: &impl Facts, patience: Span) -> Decision {
    let Some(mut span) = traces::child("decide", Kind::Internal) else {
        return decide_now(gate, facts, patience).await;
    };
    let decision = span.within(Box::pin(decide_now(gate, facts, patience))).await;
    trace_decision(gate, &decision, &mut span);
    decision
}

/// Records the decision in a trace: the deciding rules, and of the key only the hash that is also
/// in the log.
fn trace_decision(gate: &Gate, decision: &Decision, span: &mut ActiveSpan) {
    let policy = &*decision.active.policy;
    let outcome = decision.decided.plan.outcome(policy);
    let word = match outcome.final_disposition() {
        _ if decision.is_overload => "overloaded",
        Disposition::Allow => "allow",
        Disposition::Delay(_) => "delay",
        Disposition::Deny { .. } | Disposition::Retry(_) => "deny",
    };
    span.set_attribute("tollgate.decision", word);
    span.set_attribute("tollgate.policy_version", decision.active.version);
    let (mut names, mut results, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    // First the one that denies, so that those in shadow mode hide nothing.
    let shadows = outcome.deny_matches().filter(|matched| !matched.rule.is_enforced);
    let of_deny = outcome.denied_by().into_iter().chain(shadows);
    for matched in of_deny.take(MAX_TRACED_RULES) {
        names.push(matched.rule.name().to_owned());
        results.push(matched.result.label().to_owned());
        if !gate.hash_key.is_empty() {
            keys.push(String::new()); // it has no key
        }
    }
    for decided in outcome.decisions().take(MAX_TRACED_RULES) {
        let name = policy.rules().get(decided.rule).map(|rule| rule.name().to_owned());
        names.push(name.unwrap_or_default());
        results.push(decided.result.label().to_owned());
        // Without a secret the hash could be guessed.
        if !gate.hash_key.is_empty() {
            let key = decided.partition.and_then(|i| outcome.partition_key_hash(i));
            keys.push(key.unwrap_or_default());
        }
    }
    span.set_attribute("tollgate.rules", names);
    span.set_attribute("tollgate.results", results);
    if !keys.is_empty() {
        span.set_attribute("tollgate.pk", keys);
    }
    let waited_ms = decision.decided.waited.as_millis_ceil();
    if waited_ms > 0 {
        span.set_attribute("tollgate.waited_ms", waited_ms);
    }
    if decision.is_overload {
        span.fail();
    }
}

async fn decide_now(gate: &Arc<Gate>, facts: &impl Facts, patience: Span) -> Decision {
    let mut active = gate.following.active();
    let mut replans = 0;
    loop {
        let policy = &active.policy;
        let mut plan = Plan::new();
        tenants::plan(gate, policy, facts, &mut plan).await;
        let done = if plan.has_failed() {
            WaitResult::default() // its tenant's quotas are unknown
        } else if gate.denials.refuses(policy, &mut plan, gate.clock.now()) {
            gate.counting.add(Event::RememberedDenial);
            WaitResult::default()
        } else {
            waiting::decide(gate, policy, &mut plan, patience).await
        };
        if let Some(Outdated::Policy(generation)) = plan.outdated()
            && replans < MAX_REPLANS
            && let Some(next) = gate.policy_of(generation).await
        {
            gate.counting.add(Event::PolicyRetry);
            replans = replans.saturating_add(1);
            active = next;
            continue;
        }
        if !done.is_overload {
            let outcome = plan.outcome(policy);
            if gate.counting.count(policy, &outcome, done.waited) {
                gate.log_refusals(policy, &outcome);
            }
            gate.report_failures(policy, &plan);
        }
        let decided = Decided { plan, waited: done.waited, id: None, in_flight: None };
        let WaitResult { is_overload, charges, .. } = done;
        return Decision { decided, active, is_overload, charges };
    }
}

/// Returns the response to the body of a `POST /check`.
pub async fn answer(gate: &Arc<Gate>, body: &[u8]) -> ApiResponse {
    match check::requests(body) {
        Ok(DescribedRequests::One(facts)) => match one(gate, &facts).await {
            Ok(pending) => ApiResponse::json(pending.keep()),
            Err(refused) => refused,
        },
        Ok(DescribedRequests::Many(requests)) => {
            let budget = KeyBudget::default();
            let each = requests.into_iter().map(|request| one_of(gate, request, &budget));
            let each = stream::iter(each).buffered(BATCH_AT_ONCE);
            let each = each.collect::<Vec<_>>().await;
            check::answers(&each.into_iter().map(PendingAnswer::keep).collect::<Vec<_>>())
        }
        Err(answer) => answer,
    }
}

/// Returns the response to one of several described requests; decides it if there is a budget left
/// for it.
async fn one_of(
    gate: &Arc<Gate>,
    request: Result<DescribedRequest, Problems>,
    budget: &KeyBudget,
) -> PendingAnswer {
    let facts = match request {
        Ok(facts) => facts,
        Err(problems) => return PendingAnswer::free(check::wrong(&problems)),
    };
    let mut plan = Plan::new();
    gate.following.active().policy.plan(&facts, &mut plan);
    if let Err(problems) = budget.take(plan.len()) {
        return PendingAnswer::free(check::wrong(&problems));
    }
    one(gate, &facts).await.unwrap_or_else(|refused| PendingAnswer::free(refused.body.into_owned()))
}

/// A response and its decision, whose charges are kept once the response is handed over to be sent.
struct PendingAnswer {
    text: String,
    charges: Charges,
}

impl PendingAnswer {
    /// A response without a charge.
    fn free(text: String) -> Self {
        Self { text, charges: Charges::default() }
    }

    fn keep(self) -> String {
        self.charges.keep();
        self.text
    }
}

/// The response to a request during an overload.
#[must_use]
pub fn overloaded() -> ApiResponse {
    let detail = "too many requests are under way; try again";
    ApiResponse::problem(503, "Service Unavailable", detail).with("retry-after", "1")
}

/// Decides one described request, or takes note of its response. Returns the response as JSON.
///
/// # Errors
/// The response when there is nothing to decide, or during an overload.
async fn one(gate: &Arc<Gate>, facts: &DescribedRequest) -> Result<PendingAnswer, ApiResponse> {
    if let Some(status) = facts.response_status() {
        let active = gate.following.active();
        let policy = &*active.policy;
        let mut plan = Plan::new();
        tenants::plan(gate, policy, facts, &mut plan).await;
        let is_due = !plan.has_failed() && plan.settle(policy, Ending::Response(status), &());
        return Ok(PendingAnswer::free(check::reported(
            is_due && gate.settle(policy, &mut plan).await,
        )));
    }
    if facts.is_to_be_settled() && gate.store.sealer().is_none() {
        return Err(check::refused(&settle::off()));
    }
    let Decision { mut decided, active, is_overload, charges } = decide(gate, facts).await;
    if is_overload {
        return Err(overloaded());
    }
    if facts.is_to_be_settled() {
        decided.id = settling::id(gate, &active.policy, &decided);
    }
    decided.in_flight = in_flight::id(gate, &active.policy, &decided);
    let content_type = facts.header("content-type").unwrap_or_default();
    let policy = &*active.policy;
    let text = check::answer(&decided.plan.outcome(policy), policy, &decided, &content_type);
    Ok(PendingAnswer { text, charges })
}

impl Gate {
    /// A policy of `generation` or a later one, if the store has it.
    async fn policy_of(&self, generation: u64) -> Option<Arc<Active>> {
        let reaches = |active: &Arc<Active>| active.policy.version() >= generation;
        let active = self.following.active();
        if reaches(&active) {
            return Some(active);
        }
        self.follow(generation).await;
        Some(self.following.active()).filter(reaches)
    }

    /// Asks the store which policy is in force, and enforces it.
    pub async fn follow(&self, generation: u64) {
        let now_ms = self.clock.now_ms();
        self.following.check(&self.store, &self.hash_key, &self.log, now_ms, generation).await;
        self.lines.set_limits(self.following.active().policy.waiting());
    }
}
