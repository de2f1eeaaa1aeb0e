//! `POST /check`: the request, and the response to the caller that protects some other service.
//!
//! Invariant: a response contains the decision and the action to take, and nothing of keys.
//! `tollgate-policy` reads requests ([`tollgate_language::DescribedRequest`]), in the words of the
//! policy document. Several requests are decided independently: one that is wrong or denied changes
//! nothing for the others, and the order of two with one key is undefined.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tollgate_core::Span;
use tollgate_language::DescribedRequests;
use tollgate_policy::{
    Disposition, Outcome, Plan, Policy, Problem, ProblemDetails, Problems, Rule, RuleResult,
    grpc_content_type,
};

use crate::api_response::ApiResponse;
use crate::in_flight::InFlightId;

/// The longest body of `POST /check`: 64 KiB, for one request or several.
pub const MAX_BODY: usize = 64 * 1024;

/// The most requests in one body.
pub const MAX_BATCH: usize = 100;

/// The most keys that the requests of one body are counted under, together. Each key may need three
/// calls (peek, charge, refund), each request may ask for its tenant, and the platform of the
/// Worker ends an invocation that makes more than 1,000 calls.
pub const MAX_BATCH_KEYS: usize = 250;

/// How many requests of one body are decided at the same time: the calls of a hundred would wait
/// for each other, and for those of other callers.
pub const BATCH_AT_ONCE: usize = 32;

/// How many keys the requests of one body may still be counted under.
#[derive(Debug)]
pub struct KeyBudget(AtomicUsize);

impl Default for KeyBudget {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_BATCH_KEYS))
    }
}

impl KeyBudget {
    /// Takes `keys` of it; if it has fewer, it takes none.
    ///
    /// # Errors
    /// The mistake for a request that needs more keys than are left.
    pub fn take(&self, keys: usize) -> Result<(), Problems> {
        let taken = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(keys));
        taken.map(drop).map_err(|_| {
            let message = format!(
                "is too much for one body: it and those before it are counted under more than \
                 {MAX_BATCH_KEYS} keys; ask for it in another one"
            );
            Problems(vec![Problem::new("", message)])
        })
    }
}

/// The requests in the body of `POST /check`: one request, or `{"requests": [...]}`.
///
/// # Errors
/// The response when there is nothing to decide: the body is not JSON, or the one request or the
/// list is wrong.
pub fn requests(body: &[u8]) -> Result<DescribedRequests, ApiResponse> {
    DescribedRequests::parse(body, MAX_BATCH).map_err(|problems| refused(&problems))
}

/// The response to a request that is wrong.
#[must_use]
pub fn refused(problems: &Problems) -> ApiResponse {
    ApiResponse::problems(400, "Bad Request", WRONG, problems)
}

/// The response to a body that is longer than [`MAX_BODY`].
#[must_use]
pub fn too_long() -> ApiResponse {
    ApiResponse::problem(413, "Content Too Large", "send at most 65536 bytes")
}

const WRONG: &str = "the check request is wrong; see errors";

/// The response to one of several requests that is wrong: the same problem as for a single request,
/// as JSON. The others are decided.
#[must_use]
pub fn wrong(problems: &Problems) -> String {
    let title = "Bad Request";
    ProblemDetails { kind: "about:blank", title, status: 400, detail: WRONG }.with_errors(problems)
}

/// The response to a report of a status, as JSON: whether something was charged or refunded.
#[must_use]
pub fn reported(charged: bool) -> String {
    format!("{{\"charged\":{charged}}}")
}

/// The response to several requests: `{"answers": [...]}`, each the JSON of a single request, in
/// the order of the requests.
#[must_use]
pub fn answers(each: &[String]) -> ApiResponse {
    ApiResponse::json(format!("{{\"answers\":[{}]}}", each.join(",")))
}

/// A decided request.
#[derive(Debug)]
pub struct Decided {
    /// The request, decided.
    pub plan: Plan,
    /// The time that it has already waited; its outcome's answer is the one after that.
    pub waited: Span,
    /// The id with which its cost can be settled, if the request asked for one.
    pub id: Option<String>,
    /// The id with which its caller confirms and ends it, if it is counted while it is in flight.
    pub in_flight: Option<InFlightId>,
}

/// The response, as JSON, to a request with this content type:
/// `{"decision","rules","violated","retry_after_ms","headers"}`; `delay_ms` when the decision is to
/// wait, `request_headers` when the request is to be marked, `id` when its cost may be settled,
/// `report` when its response's status is needed, `in_flight` when its end is. For a denial it also
/// contains the policy's response: `status`, `content_type`, `body`, `grpc` for a gRPC client, and
/// `failure` when no quota denies.
#[must_use]
pub fn answer(
    outcome: &Outcome<'_>,
    policy: &Policy,
    decided: &Decided,
    content_type: &[u8],
) -> String {
    let answer = CheckAnswer { outcome, policy, decided, content_type };
    serde_json::to_string(&answer).unwrap_or_default()
}

struct CheckAnswer<'a> {
    outcome: &'a Outcome<'a>,
    policy: &'a Policy,
    decided: &'a Decided,
    content_type: &'a [u8],
}

impl Serialize for CheckAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { outcome, policy, decided, .. } = self;
        let mut map = serializer.serialize_map(None)?;
        let (decision, delay, status) = match outcome.final_disposition() {
            Disposition::Allow => ("allow", None, None),
            Disposition::Delay(delay) => ("delay", Some(delay), None),
            Disposition::Deny { status } => ("deny", None, Some(status)),
            Disposition::Retry(_) => ("deny", None, None), // a final answer is never a retry
        };
        map.serialize_entry("decision", decision)?;
        let of_rules = outcome
            .rules_after(decided.waited)
            .filter_map(|(i, result)| RuleAnswer::new(policy, i, result));
        let of_deny = outcome.deny_matches().map(|matched| RuleAnswer {
            name: matched.rule.name(),
            result: matched.result.label(),
        });
        let rules: Vec<_> = of_deny.chain(of_rules).collect();
        map.serialize_entry("rules", &rules)?;
        map.serialize_entry("violated", &outcome.violated().collect::<Vec<_>>())?;
        map.serialize_entry(
            "retry_after_ms",
            &outcome.retry_after().map(|wait| wait.as_millis_ceil()),
        )?;
        if let Some(delay) = delay {
            map.serialize_entry("delay_ms", &delay.as_millis_ceil())?;
        }
        map.serialize_entry("headers", &HeaderFields(outcome))?;
        if let Some(status) = status {
            self.refusal(status, &mut map)?;
        }
        let mut marks = Vec::new();
        outcome.marks(&mut |name, value| marks.push((name, value)));
        if !marks.is_empty() {
            map.serialize_entry("request_headers", &Pairs(marks))?;
        }
        if let Some(id) = decided.id.as_ref().filter(|_| decision != "deny") {
            map.serialize_entry("id", id)?;
        }
        if let Some(in_flight) = decided.in_flight.as_ref().filter(|_| decision != "deny") {
            map.serialize_entry("in_flight", in_flight)?;
        }
        let is_by_status = |i: usize| policy.rules().get(i).is_some_and(Rule::charges_by_response);
        let is_reported = outcome.rules().any(|(i, _)| is_by_status(i));
        let is_deferred = || decided.plan.settlement(policy).is_deferred();
        if decision != "deny" && is_reported && is_deferred() {
            map.serialize_entry("report", "response_status")?;
        }
        map.end()
    }
}

impl CheckAnswer<'_> {
    /// The policy's response, as it is sent in front of an origin.
    fn refusal<M: SerializeMap>(&self, status: u16, map: &mut M) -> Result<(), M::Error> {
        let outcome = self.outcome;
        if let Some(kind) = grpc_content_type(self.content_type) {
            let grpc = outcome.grpc();
            map.serialize_entry("status", &200)?;
            map.serialize_entry("content_type", kind)?;
            map.serialize_entry("body", "")?;
            map.serialize_entry("grpc", &GrpcAnswer { status: grpc.code, message: &grpc.message })?;
        } else {
            let mut content_type = None;
            outcome.headers(&mut |name, value| {
                if name == "content-type" {
                    content_type = Some(value.to_owned());
                }
            });
            map.serialize_entry("status", &status)?;
            map.serialize_entry("content_type", &content_type)?;
            map.serialize_entry("body", &outcome.body())?;
        }
        if outcome.is_failure() {
            map.serialize_entry("failure", &true)?;
        }
        Ok(())
    }
}

#[derive(serde::Serialize)]
struct GrpcAnswer<'a> {
    status: u8,
    message: &'a str,
}

#[derive(serde::Serialize)]
struct RuleAnswer<'a> {
    name: &'a str,
    result: &'static str,
}

impl<'a> RuleAnswer<'a> {
    fn new(policy: &'a Policy, rule: usize, result: RuleResult) -> Option<Self> {
        let result = result.label();
        Some(Self { name: policy.rules().get(rule)?.name(), result })
    }
}

/// The fields a caller may copy into its own response: all but the content type, which belongs to
/// the body.
struct HeaderFields<'a>(&'a Outcome<'a>);

impl Serialize for HeaderFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = Vec::new();
        self.0.headers(&mut |name, value| fields.push((name, value.to_owned())));
        fields.retain(|(name, _)| *name != "content-type");
        serializer.collect_map(fields)
    }
}

struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}
