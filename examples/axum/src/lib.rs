//! A Tollgate policy as axum middleware: everything a service needs to limit its clients without
//! another server.
//!
//! Invariant: the handler runs if and only if the policy allows the request. The effects of its
//! response are counted before the response is sent, or when the client has left. Deliberately
//! absent: responses to gRPC clients (see [`tollgate::grpc_content_type`]), metrics, and
//! policy changes while the service runs.

mod facts;
mod gate;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use tollgate::{Ending, Plan};

pub use facts::{HttpFacts, HttpResponse};
pub use gate::{Decided, Gate};
pub use table::Counts;

/// `router`, with `gate` in front of each of its routes. Serve it with
/// [`into_make_service_with_connect_info`](Router::into_make_service_with_connect_info), so that
/// the address of the connection is known; without it every request gets status 500.
pub fn limited(router: Router, gate: Arc<Gate>) -> Router {
    router.layer(middleware::from_fn_with_state(gate, limit))
}

async fn limit(
    State(gate): State<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    let plan = gate.plan(&HttpFacts { head: &head, peer });
    let Decided { plan, refused } = gate.decide(plan).await;
    if let Some(status) = refused {
        return refusal(&gate, &plan, status);
    }
    mark(&gate, &plan, &mut head.headers);
    let fields = fields(&gate, &plan);
    let unsettled = Unsettled { gate, plan: Some(plan) };
    let mut response = next.run(Request::from_parts(head, body)).await;
    unsettled.settle(&response);
    // Added to the handler's own fields, never in their place.
    fields.iter().for_each(|(name, value)| {
        response.headers_mut().append(name, value.clone());
    });
    response
}

fn refusal(gate: &Gate, plan: &Plan, status: u16) -> Response {
    let mut response = Response::new(Body::from(plan.outcome(gate.policy()).body()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    *response.headers_mut() = fields(gate, plan);
    response
}

/// The response fields about limits; a denial has no other fields.
fn fields(gate: &Gate, plan: &Plan) -> HeaderMap {
    let mut fields = HeaderMap::new();
    plan.outcome(gate.policy()).headers(&mut |name, value| {
        if let Ok(value) = HeaderValue::try_from(value) {
            fields.append(HeaderName::from_static(name), value);
        }
    });
    fields
}

/// Sets the marks of the rules whose limit a request exceeds, and replaces marks that the client
/// sent.
fn mark(gate: &Gate, plan: &Plan, headers: &mut HeaderMap) {
    plan.outcome(gate.policy()).marks(&mut |name, value| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    });
}

/// An allowed request on its way through the service. axum drops it with the rest of the request
/// when the client leaves. Then there is no status, which a rule may charge, too (`on_abort`).
struct Unsettled {
    gate: Arc<Gate>,
    plan: Option<Plan>,
}

impl Unsettled {
    fn settle(mut self, response: &Response) {
        if let Some(mut plan) = self.plan.take() {
            let ending = Ending::Response(response.status().as_u16());
            self.gate.settle(&mut plan, ending, &HttpResponse(response.headers()));
        }
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(mut plan) = self.plan.take() {
            self.gate.settle(&mut plan, Ending::Disconnect, &());
        }
    }
}
