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
use core::fmt::Write as _;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use tollgate_core::Span;
use tollgate_language::DescribedRequests;
use tollgate_policy::{
    Disposition, Outcome, Plan, Policy, Problem, ProblemDetails, Problems, grpc_content_type,
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
    let mut out = String::with_capacity(USUAL);
    CheckAnswer { outcome, policy, decided, content_type }.write(&mut out);
    out
}

/// Bytes of a response with the fields of a few quotas.
const USUAL: usize = 512;

struct CheckAnswer<'a> {
    outcome: &'a Outcome<'a>,
    policy: &'a Policy,
    decided: &'a Decided,
    content_type: &'a [u8],
}

impl CheckAnswer<'_> {
    fn write(&self, out: &mut String) {
        let Self { outcome, decided, .. } = self;
        let (decision, delay, status) = match outcome.final_disposition() {
            Disposition::Allow => ("allow", None, None),
            Disposition::Delay(delay) => ("delay", Some(delay), None),
            Disposition::Deny { status } => ("deny", None, Some(status)),
            Disposition::Retry(_) => ("deny", None, None), // a final answer is never a retry
        };
        out.push_str("{\"decision\":\"");
        out.push_str(decision);
        out.push_str("\",\"rules\":[");
        let is_reported = self.rules(out);
        out.push_str("],\"violated\":[");
        each(outcome.violated(), out, push_text);
        out.push_str("],\"retry_after_ms\":");
        match outcome.retry_after() {
            Some(wait) => push_number(wait.as_millis_ceil(), out),
            None => out.push_str("null"),
        }
        if let Some(delay) = delay {
            out.push_str(",\"delay_ms\":");
            push_number(delay.as_millis_ceil(), out);
        }
        let content_type = self.headers(out);
        if let Some(status) = status {
            self.refusal(status, content_type, out);
        }
        self.marks(out);
        if decision != "deny" {
            if let Some(id) = &decided.id {
                out.push_str(",\"id\":");
                push_text(id, out);
            }
            if let Some(InFlightId { id, renew_after_ms }) = &decided.in_flight {
                out.push_str(",\"in_flight\":{\"id\":");
                push_text(id, out);
                out.push_str(",\"renew_after_ms\":");
                push_number(*renew_after_ms, out);
                out.push('}');
            }
            if is_reported && decided.plan.settlement(self.policy).is_deferred() {
                out.push_str(",\"report\":\"response_status\"");
            }
        }
        out.push('}');
    }

    /// The results of the rules; true when one of them charges by the response.
    fn rules(&self, out: &mut String) -> bool {
        let Self { outcome, policy, decided, .. } = self;
        let rule = |index: usize| policy.rules().get(index);
        let of_deny = outcome.deny_matches().map(|it| (it.rule.name(), it.result));
        let of_rules = outcome.rules_after(decided.waited);
        let mut is_reported = false;
        let named = |(index, result)| {
            let rule = rule(index)?;
            is_reported |= rule.charges_by_response();
            Some((rule.name(), result))
        };
        each(of_deny.chain(of_rules.filter_map(named)), out, |(name, result), out| {
            out.push_str("{\"name\":");
            push_text(name, out);
            out.push_str(",\"result\":\"");
            out.push_str(result.label());
            out.push_str("\"}");
        });
        is_reported
    }

    /// The fields a caller may copy into its own response: all but the content type, which belongs
    /// to the body and is returned.
    fn headers(&self, out: &mut String) -> Option<String> {
        let (mut content_type, mut is_first) = (None, true);
        out.push_str(",\"headers\":{");
        self.outcome.headers(&mut |name, value| match name {
            "content-type" => content_type = Some(value.to_owned()),
            _ => push_member((name, value), &mut is_first, out),
        });
        out.push('}');
        content_type
    }

    /// The fields of the request that the policy sets, if there are any.
    fn marks(&self, out: &mut String) {
        let mut is_first = true;
        self.outcome.marks(&mut |name, value| {
            if is_first {
                out.push_str(",\"request_headers\":{");
            }
            push_member((name, value), &mut is_first, out);
        });
        out.push_str(if is_first { "" } else { "}" });
    }

    /// The policy's response, as it is sent in front of an origin.
    fn refusal(&self, status: u16, content_type: Option<String>, out: &mut String) {
        let outcome = self.outcome;
        out.push_str(",\"status\":");
        if let Some(kind) = grpc_content_type(self.content_type) {
            let grpc = outcome.grpc();
            out.push_str("200,\"content_type\":");
            push_text(kind, out);
            out.push_str(",\"body\":\"\",\"grpc\":{\"status\":");
            push_number(grpc.code.into(), out);
            out.push_str(",\"message\":");
            push_text(&grpc.message, out);
            out.push('}');
        } else {
            push_number(status.into(), out);
            out.push_str(",\"content_type\":");
            match content_type {
                Some(kind) => push_text(&kind, out),
                None => out.push_str("null"),
            }
            out.push_str(",\"body\":");
            push_text(&outcome.body(), out);
        }
        if outcome.is_failure() {
            out.push_str(",\"failure\":true");
        }
    }
}

/// Writes `items`, separated by commas.
fn each<T>(items: impl Iterator<Item = T>, out: &mut String, mut push: impl FnMut(T, &mut String)) {
    for (index, item) in items.enumerate() {
        out.push_str(if index == 0 { "" } else { "," });
        push(item, out);
    }
}

/// Writes one member of an object, after a comma unless it `is_first`.
fn push_member((name, value): (&str, &str), is_first: &mut bool, out: &mut String) {
    out.push_str(if core::mem::replace(is_first, false) { "" } else { "," });
    push_text(name, out);
    out.push(':');
    push_text(value, out);
}

fn push_number(number: u64, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{number}");
}

/// Writes `text` as a JSON string, with the escapes of `serde_json`.
fn push_text(text: &str, out: &mut String) {
    let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | ..b' ');
    let mut rest = text;
    out.push('"');
    while let Some(at) = rest.bytes().position(is_special) {
        let (plain, special) = rest.split_at_checked(at).unwrap_or_default();
        let (special, others) = special.split_at_checked(1).unwrap_or_default();
        out.push_str(plain);
        match special {
            "\"" => out.push_str("\\\""),
            "\\" => out.push_str("\\\\"),
            control => {
                let escaped = serde_json::to_string(control).unwrap_or_default();
                out.push_str(escaped.trim_matches('"'));
            }
        }
        rest = others;
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_escapes_of_serde_json() {
        let all: String = (0..0x250).filter_map(char::from_u32).collect();
        let each = all.chars().map(String::from);
        for text in each.chain([all.clone(), String::new(), "\"a\", \"b\";q=1".to_owned()]) {
            let mut out = String::new();
            push_text(&text, &mut out);
            assert_eq!(out, serde_json::to_string(&text).expect("a text"));
        }
    }
}
