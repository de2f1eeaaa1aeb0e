//! The Worker in front of an origin: a request is forwarded, or gets its response here.
//!
//! Invariant: only requests that the policy allows are forwarded, and no path leaves the folder
//! that is served. Deliberately absent: the way to the origin and back; that is in `forward`.

use std::rc::Rc;
use std::sync::Arc;

use tollgate_policy::{Disposition, Outcome};
use tollgate_service::{ApiResponse, Fields, check};
use worker::web_sys;

use crate::active::Active;
use crate::deployment::RequestContext;
use crate::request::decide::{Caller, Decision, decide};
use crate::request::facts::Incoming;
use crate::request::forward::Forward;
use crate::request::in_flight;
use crate::request::target::leaves;
use crate::runtime::js;

/// Forwards the request to the origin, if the policy allows it; otherwise responds here.
pub(crate) async fn proxy(
    visit: &RequestContext<'_>,
    active: Rc<Active>,
    origin: &str,
    request: &web_sys::Request,
    target: &str,
) -> Result<Forward, web_sys::Response> {
    if leaves(origin, target) {
        let detail = "the path leads out of the folder that is served";
        return Err(js::send(&ApiResponse::problem(400, "Bad Request", detail)));
    }
    let headers = request.headers();
    let facts = Incoming { request, method: request.method(), target, headers: &headers };
    let decided = decide(visit, active, facts, Caller::Holds).await;
    let Decision { decided, active, facts, came_at } =
        decided.map_err(|problems| js::send(&check::refused(&problems)))?;
    let policy = Arc::clone(&active.policy);
    let outcome = decided.plan.outcome(&policy);
    if let Disposition::Deny { status } = outcome.final_disposition() {
        return Err(refuse(&outcome, status, &facts.facts));
    }
    let places = in_flight::places(&visit.gate.objects, &policy, &decided.plan);
    Ok(Forward {
        // The handle; `Request.clone` would read the body twice.
        request: Clone::clone(request),
        url: format!("{origin}{target}"),
        fields: Fields::of(&outcome),
        marks: Fields::marks(&outcome),
        plan: decided.plan,
        policy,
        came_at,
        places,
    })
}

fn refuse(outcome: &Outcome<'_>, status: u16, facts: &Incoming<'_>) -> web_sys::Response {
    let content_type = facts.text("content-type").unwrap_or_default();
    js::send(&ApiResponse::refusal(outcome, status, &content_type))
}
