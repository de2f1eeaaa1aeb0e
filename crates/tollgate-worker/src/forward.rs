//! A request on its way to the origin, and what the origin's response brings about.
//!
//! Invariant: what a response charges or gives back is carried out before the response is sent, and
//! also when the client has left meanwhile. An origin that does not answer is our 502, a status
//! like others; a client that breaks its body off has no status. Nothing is decided here.

use std::rc::Rc;
use std::sync::Arc;

use tollgate_policy::{Plan, Policy};
use tollgate_service::{Answer as Reply, Fields, health};
use wasm_bindgen::JsCast;
use worker::{Context, js_sys, web_sys};

use crate::decide::settle;
use crate::deployment::{Deployment, Gate};
use crate::js;
use crate::tally::Trouble;
use crate::tasks::Settled;

/// A request that goes on, with all that is needed when its client has left.
pub(crate) struct Forward {
    pub(crate) request: web_sys::Request,
    pub(crate) url: String,
    /// For the response.
    pub(crate) fields: Fields,
    /// For the origin.
    pub(crate) marks: Fields,
    pub(crate) plan: Plan,
    /// What it was planned with; another one may be in force when the response comes.
    pub(crate) policy: Arc<Policy>,
}

impl Forward {
    /// The origin's response. Where its status matters the platform is asked to let us wait for it
    /// although the client leaves, which it does for another 30 s.
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
            Settled::of(&lasting).await; // it is answered below
        });
        let settled = Settled::of(&response).await.dyn_into();
        settled.unwrap_or_else(|_| js::send(&health::misconfigured()))
    }

    async fn response(mut self, deployment: &Deployment) -> web_sys::Response {
        let Some(gate) = deployment.gate() else {
            return js::send(&health::misconfigured());
        };
        match js::forwarded(&self.request, &self.url, self.marks.lines(), self.plan.is_deferred())
            .await
        {
            Ok(response) => {
                self.settle(gate, Some(response.status())).await;
                js::extended(response, self.fields.lines())
            }
            Err(why) => {
                let mut reply = Reply::problem(502, "Bad Gateway", "the origin does not answer");
                let status = (!why.is_empty()).then_some(reply.status);
                gate.objects.note(Trouble::Origin, &why);
                self.settle(gate, status).await;
                gate.objects.report();
                reply.fields.append(&self.fields);
                js::send(&reply)
            }
        }
    }

    async fn settle(&mut self, gate: &Gate, status: Option<u16>) {
        if self.plan.is_deferred() {
            settle(&gate.objects, &self.policy, &mut self.plan, status).await;
        }
    }
}
