//! Forward auth: a proxy asks over HTTP whether the request that it holds is allowed, and describes
//! that request in the path or in fields.
//!
//! Invariant: success, and only success, allows a request. So no denial, mistake or overload here
//! has a success status, and a denial that only its own status expresses (a gRPC denial is 200)
//! gets another status here. A fact that the proxy does not send is not taken from its client: a
//! fact that is missing or given twice is an error, never a guess. The path names the protocol,
//! because proxies append their client's query to it. Deliberately absent: which callers are
//! allowed; that is in `http`.

mod answer;
mod facts;
mod shape;

use std::sync::Arc;

use hyper::http::request::Parts;
use tollgate_core::Span;
use tollgate_policy::Disposition;
use tollgate_service::ApiResponse;

pub(crate) use self::shape::Shape;

use self::facts::Original;
use crate::check;
use crate::gate::Gate;

/// The field with the caller's token.
pub(crate) const TOKEN: &str = "x-tollgate-token";

/// How long a request is held for its place; a longer wait is denied at once. Proxies give up after
/// a minute, as nginx does, or sooner.
const PATIENCE: Span = Span::from_secs(30);

/// True for every path that a proxy may be configured to ask on, also by mistake.
pub(crate) fn is_below(path: &str) -> bool {
    path.starts_with("/forward-auth")
}

/// Responds to an allowed proxy; `behind` is the rest of its path after ours.
pub(crate) async fn answer(
    gate: &Arc<Gate>,
    shape: Shape,
    head: &Parts,
    behind: &str,
) -> ApiResponse {
    let facts = match Original::read(shape, head, behind) {
        Ok(facts) => facts,
        Err(wrong) => {
            gate.note_misled(shape.protocol(), &wrong);
            return ApiResponse::problem(400, "Bad Request", &wrong);
        }
    };
    let decision = check::decide_within(gate, &facts, PATIENCE).await;
    if decision.is_overload {
        return shape.says(check::overloaded());
    }
    let (said, delay) = {
        let outcome = decision.decided.plan.outcome(&decision.active.policy);
        match outcome.final_disposition() {
            Disposition::Allow => (answer::allowed(&outcome), Span::ZERO),
            Disposition::Delay(delay) => (answer::allowed(&outcome), delay),
            Disposition::Deny { status } => {
                (shape.says(answer::refused(&outcome, status, &facts)), Span::ZERO)
            }
            // A final answer is never a retry.
            Disposition::Retry(_) => (shape.says(check::overloaded()), Span::ZERO),
        }
    };
    decision.wait(delay).await;
    said
}

/// The response to a proxy that is not allowed. The proxy's client gets it, and has no token of
/// ours to send.
pub(crate) fn stranger() -> ApiResponse {
    let detail = "a proxy names the client of a request, and this proxy may not: give it the token, \
                  or list its address in trusted_callers";
    ApiResponse::problem(403, "Forbidden", detail)
}

/// The response to a proxy whose protocol is switched off.
pub(crate) fn off(shape: Shape) -> ApiResponse {
    let detail = format!("this is off: it needs {} among the protocols", shape.protocol());
    ApiResponse::problem(404, "Not Found", &detail)
}
