//! A request on its way to the origin, and the effects of the origin's response.
//!
//! Invariant: the charges and refunds of a response are carried out before the response is sent,
//! and also when the client has left meanwhile. An origin that does not respond is our 502, a
//! status like others; a client that breaks its body off has no status. A request that is not sent,
//! for a reason of ours, is never charged by its response. What the end of the response shows is
//! settled then, however the response ended. Nothing is decided here.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_policy::spec::ActualCost;
use tollgate_policy::{Ending, Plan, Policy, ResponseFacts};
use tollgate_service::in_flight::InFlight;
use tollgate_service::{ApiResponse, Fields, health};
use wasm_bindgen::JsCast;
use worker::{Context, js_sys, web_sys};

use crate::deployment::{Deployment, Gate};
use crate::operate::tally::FailureKind;
use crate::request::body_scan::ScannedBody;
use crate::request::decide::settle;
use crate::request::in_flight::hold;
use crate::request::origin::{NoResponse, forwarded};
use crate::request::response_end::{ResponseEnd, response_end};
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
    pub(crate) came_at: Timestamp,
    /// Its places, where rules count it while it is in flight.
    pub(crate) places: Option<InFlight>,
}

/// A forwarded request whose response is under way: its end shows more.
struct OpenResponse {
    forward: Forward,
    status: u16,
    /// Its body, where a rule reads that.
    body: Option<ScannedBody>,
}

impl Forward {
    /// The origin's response. Where its status or its end matters, the platform is asked to
    /// continue this request if the client leaves, which it does for another 30 s.
    pub(crate) async fn run(
        mut self,
        deployment: Rc<Deployment>,
        context: &Context,
    ) -> web_sys::Response {
        let end = self.end_to_see();
        if let (Some(places), Some(end)) = (self.places.take(), end.clone()) {
            let deployment = Rc::clone(&deployment);
            context.wait_until(async move {
                if let Some(gate) = deployment.gate() {
                    hold(&gate.objects, places, &end).await;
                }
            });
        }
        if !self.plan.settlement(&self.policy).is_deferred() && end.is_none() {
            return self.response(&deployment, None).await.0;
        }
        let rest = Rc::new(Cell::new(None));
        let response = {
            let (deployment, end, rest) = (Rc::clone(&deployment), end.clone(), Rc::clone(&rest));
            async move {
                let (response, open) = self.response(&deployment, end.as_ref()).await;
                rest.set(open);
                Ok(response.into())
            }
        };
        let response = js_sys::futures::future_to_promise(response);
        let lasting = response.clone();
        context.wait_until(async move {
            Settled::of(&lasting).await; // the response is built below
            if let (Some(open), Some(end)) = (rest.take(), end) {
                open.settle(&deployment, &end).await;
            }
        });
        let settled = Settled::of(&response).await.dyn_into();
        settled.unwrap_or_else(|_| js::send(&health::misconfigured()))
    }

    /// The end of its response, if a rule needs it.
    fn end_to_see(&self) -> Option<ResponseEnd> {
        let costs = || self.plan.settlement(&self.policy).costs_at_end();
        let counts_bytes = || costs().any(|cost| matches!(cost, ActualCost::BytesPer(_)));
        let is_needed = self.places.is_some() || costs().next().is_some();
        is_needed.then(|| response_end(counts_bytes()))
    }

    /// The response, and the rest of it where its end shows more.
    async fn response(
        mut self,
        deployment: &Deployment,
        end: Option<&ResponseEnd>,
    ) -> (web_sys::Response, Option<OpenResponse>) {
        let Some(gate) = deployment.gate() else {
            end.inspect(|end| end.over());
            return (js::send(&health::misconfigured()), None);
        };
        match forwarded(&self.request, &self.url, self.marks.lines(), end.is_some()).await {
            Ok(response) => {
                let status = response.status();
                let head = OriginHeaders(&response);
                self.settle(gate, Ending::Response(status), &head).await;
                let fields = self.fields.lines();
                let Some(end) = end else { return (js::extended(response, fields), None) };
                let settlement = self.plan.settlement(&self.policy);
                let is_open = settlement.awaits_end();
                let scan = settlement.body_scan(&head);
                let is_scanned = scan.as_ref().is_some_and(|scan| scan.is_open());
                let body = scan.map(|scan| end.scanned(scan));
                let passed = end.pass(&response, fields, is_scanned);
                (passed, is_open.then_some(OpenResponse { forward: self, status, body }))
            }
            Err(why) => {
                let response = self.failed(gate, why).await;
                end.inspect(|end| end.over());
                (response, None)
            }
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
        if self.plan.settlement(&self.policy).is_deferred() {
            settle(&gate.objects, &self.policy, &mut self.plan, ending, response).await;
        }
    }
}

impl OpenResponse {
    /// Settles the costs that its end shows, once it comes.
    async fn settle(self, deployment: &Deployment, end: &ResponseEnd) {
        let Self { mut forward, status, body } = self;
        let ended = end.facts(forward.came_at, body).await;
        if let Some(gate) = deployment.gate() {
            forward.settle(gate, Ending::Response(status), &ended).await;
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
