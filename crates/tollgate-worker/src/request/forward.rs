//! A request on its way to the origin, and the effects of the origin's response.
//!
//! Invariant: the charges and refunds of a response are carried out before the response is sent,
//! and also when the client has left meanwhile. An origin that does not respond is our 502, a
//! status like others; a client that breaks its body off has no status. A request that is not sent,
//! for a reason of ours, is never charged by its response. Nothing is decided here.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use tollgate_policy::{Ending, Plan, Policy, ResponseFacts};
use tollgate_service::{ApiResponse, Fields, health};
use wasm_bindgen::JsCast;
use worker::{Context, js_sys, web_sys};

use crate::deployment::{Deployment, Gate};
use crate::operate::tally::FailureKind;
use crate::request::decide::settle;
use crate::request::origin::{NoResponse, forwarded};
use crate::runtime::js;
use crate::runtime::tasks::Settled;

/// A request that is forwarded, with all data that is needed when its client has left.
pub(crate) struct Forward {
    pub(crate) request: web_sys::Request,
    pub(crate) url: String,
    /// For the response.
    pub(crate) fields: Fields,
    /// For the origin.
    pub(crate) marks: Fields,
    pub(crate) plan: Plan,
    /// The policy of its plan; another one may be in force when the response comes.
    pub(crate) policy: Arc<Policy>,
}

impl Forward {
    /// The origin's response. Where its status matters, the platform is asked to continue this
    /// request if the client leaves, which it does for another 30 s.
    pub(crate) async fn run(
        self,
        deployment: Rc<Deployment>,
        context: &Context,
    ) -> web_sys::Response {
        if !self.plan.is_deferred() {
            return self.response(&deployment).await;
        }
        let response = async move { Ok(self.response(&deployment).await.into()) };
        let response = js_sys::futures::future_to_promise(response);
        let lasting = response.clone();
        context.wait_until(async move {
            Settled::of(&lasting).await; // the response is built below
        });
        let settled = Settled::of(&response).await.dyn_into();
        settled.unwrap_or_else(|_| js::send(&health::misconfigured()))
    }

    async fn response(mut self, deployment: &Deployment) -> web_sys::Response {
        let Some(gate) = deployment.gate() else {
            return js::send(&health::misconfigured());
        };
        match forwarded(&self.request, &self.url, self.marks.lines()).await {
            Ok(response) => {
                let ending = Ending::Response(response.status());
                self.settle(gate, ending, &OriginHeaders(&response)).await;
                js::extended(response, self.fields.lines())
            }
            Err(why) => self.failed(gate, why).await,
        }
    }

    /// Responds in place of the origin.
    async fn failed(&mut self, gate: &Gate, why: NoResponse) -> web_sys::Response {
        let bad_gateway = || ApiResponse::problem(502, "Bad Gateway", "the origin does not answer");
        let (mut reply, ending) = match why {
            NoResponse::Origin(word) => {
                gate.objects.note(FailureKind::Origin, &word);
                (bad_gateway(), Ending::Response(502))
            }
            NoResponse::Either(word) => {
                gate.objects.note(FailureKind::Origin, &word);
                (bad_gateway(), Ending::Disconnect)
            }
            NoResponse::BrokenOff => (bad_gateway(), Ending::Disconnect),
            NoResponse::LengthRequired => {
                let detail = "a GET or HEAD with a body needs a Content-Length";
                (ApiResponse::problem(411, "Length Required", detail), Ending::NotSent)
            }
            NoResponse::NotSent(word) => {
                gate.objects.note(FailureKind::Internal, &word);
                let detail = "the request could not be forwarded";
                (ApiResponse::problem(500, "Internal Server Error", detail), Ending::NotSent)
            }
        };
        self.settle(gate, ending, &()).await;
        gate.objects.report();
        reply.fields.append(&self.fields);
        js::send(&reply)
    }

    async fn settle(&mut self, gate: &Gate, ending: Ending, response: &dyn ResponseFacts) {
        if self.plan.is_deferred() {
            settle(&gate.objects, &self.policy, &mut self.plan, ending, response).await;
        }
    }
}

/// The headers of the origin's response.
struct OriginHeaders<'r>(&'r web_sys::Response);

impl ResponseFacts for OriginHeaders<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let value = self.0.headers().get(name).ok().flatten();
        value.map(|value| Cow::Owned(value.into_bytes()))
    }

    fn has_ended(&self) -> bool {
        false
    }
}
