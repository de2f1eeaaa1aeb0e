//! Forward auth: a proxy asks over HTTP whether the request that it holds may go on, and says in
//! the path or in fields what that request is.
//!
//! Invariant: success lets a request through and nothing else does, so whatever is refused, wrong
//! or overloaded here is never answered with success, and what only says so by a status of its own
//! (a refusal of gRPC is 200) has another one here. What the proxy itself does not say is not
//! taken from its client: a fact that is missing or given twice is an error, never a guess. Whose
//! protocol it is stands in the path, because proxies append their client's query to it.
//! Deliberately absent: who may ask; that is `http`'s.

mod answer;
mod facts;
mod shape;

use std::sync::Arc;

use hyper::http::request::Parts;
use tollgate_core::Span;
use tollgate_policy::Answer as Ruling;
use tollgate_service::Answer;

pub(crate) use self::shape::Shape;

use self::facts::Original;
use crate::check;
use crate::gate::Gate;

/// The field with the token of whoever asks.
pub(crate) const TOKEN: &str = "x-tollgate-token";

/// So long a request is held for its place; what would take longer is refused at once. Proxies give
/// up after a minute, as nginx does, or sooner.
const PATIENCE: Span = Span::from_secs(30);

/// True for every path that a proxy may have been told to ask on, also where it was told wrongly.
pub(crate) fn is_below(path: &str) -> bool {
    path.starts_with("/forward-auth")
}

/// Answers a proxy that may ask; `behind` is what its path has behind ours.
pub(crate) async fn answer(gate: &Arc<Gate>, shape: Shape, head: &Parts, behind: &str) -> Answer {
    let facts = match Original::read(shape, head, behind) {
        Ok(facts) => facts,
        Err(wrong) => {
            gate.note_misled(shape.protocol(), &wrong);
            return Answer::problem(400, "Bad Request", &wrong);
        }
    };
    let decision = check::decide_within(gate, &facts, PATIENCE).await;
    if decision.is_overload {
        return shape.says(check::overloaded());
    }
    let (said, delay) = {
        let outcome = decision.decided.plan.outcome(&decision.active.policy);
        match outcome.final_answer() {
            Ruling::Pass => (answer::allowed(&outcome), Span::ZERO),
            Ruling::Delay(delay) => (answer::allowed(&outcome), delay),
            Ruling::Refuse { status } => {
                (shape.says(answer::refused(&outcome, status, &facts)), Span::ZERO)
            }
            // A final answer is none.
            Ruling::Retry(_) => (shape.says(check::overloaded()), Span::ZERO),
        }
    };
    decision.wait(delay).await;
    said
}

/// The answer to a proxy that may not ask: what its client gets, who has no token of ours to send.
pub(crate) fn stranger() -> Answer {
    let detail = "who asks says whose request it is, and this proxy may not: give it the token, or \
                  list its address in trusted_callers";
    Answer::problem(403, "Forbidden", detail)
}

/// The answer to a proxy whose protocol is not spoken.
pub(crate) fn off(shape: Shape) -> Answer {
    let detail = format!("this is off: it needs {} among the protocols", shape.protocol());
    Answer::problem(404, "Not Found", &detail)
}
