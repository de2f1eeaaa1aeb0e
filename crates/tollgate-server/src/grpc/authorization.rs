//! `Authorization/Check`: a request is allowed or answered, as the Envoy filter would do it.
//!
//! Invariant: fields, statuses and bodies are the policy's. An allowed request has waited here for
//! its place.

use std::sync::Arc;

use crate::messages::authorization::{CheckRequest, CheckResponse};
use crate::messages::status::Status;
use tollgate_core::Span;
use tollgate_policy::{Disposition, Facts, Outcome, grpc_content_type};

use super::answering::overloaded;
use super::facts::Authorized;
use crate::check;
use crate::gate::Gate;

/// Returns the response to a message.
pub(super) async fn answer(
    gate: &Arc<Gate>,
    message: &[u8],
    patience: Span,
) -> Result<Vec<u8>, Status> {
    let request = Authorized(CheckRequest::read(message)?);
    let decision = check::decide_within(gate, &request, patience).await;
    if decision.is_overload {
        return Err(overloaded());
    }
    let (reply, delay) = {
        let outcome = decision.decided.plan.outcome(&decision.active.policy);
        match outcome.final_disposition() {
            Disposition::Allow => (allowed(&outcome), Span::ZERO),
            // A final answer is never a retry.
            Disposition::Retry(_) => return Err(overloaded()),
            Disposition::Delay(delay) => (allowed(&outcome), delay),
            Disposition::Deny { status } => (denied(&outcome, status, &request), Span::ZERO),
        }
    };
    decision.wait(delay).await;
    Ok(reply)
}

fn allowed(outcome: &Outcome<'_>) -> Vec<u8> {
    let mut request_fields = Vec::new();
    outcome.marks(&mut |name, value| request_fields.push((name, value)));
    let fields = fields_of(outcome);
    CheckResponse::Allow { request_fields, response_fields: borrowed(&fields) }.write()
}

fn denied(outcome: &Outcome<'_>, status: u16, request: &Authorized<'_>) -> Vec<u8> {
    let asked = request.header("content-type").unwrap_or_default();
    let word = outcome.grpc();
    let (fields, body) = match grpc_content_type(&asked) {
        Some(kind) => {
            let mut fields = Vec::new();
            outcome.grpc_headers(kind, &mut |name, value| fields.push((name, value.to_owned())));
            (fields, String::new())
        }
        None => (fields_of(outcome), outcome.body()),
    };
    let grpc = (word.code, word.message.as_str());
    CheckResponse::Deny { status, grpc, fields: borrowed(&fields), body: &body }.write()
}

fn fields_of(outcome: &Outcome<'_>) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    outcome.headers(&mut |name, value| fields.push((name, value.to_owned())));
    fields
}

fn borrowed<'a>(fields: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
