//! The Worker as a service: `POST /check` decides a request that the caller then forwards or denies
//! itself, `POST /check/settle` takes the final cost of a request, `POST /check/renew` and
//! `POST /check/done` take reports about one in flight.
//!
//! Invariant: without the token that a deployment has, nothing is read of the body. Deliberately
//! absent: the format of the response; that is in `check`.

use std::rc::Rc;

use tollgate_language::{DescribedRequest, DescribedRequests};
use tollgate_policy::{Ending, Facts, Plan, Problems};
use tollgate_service::check::{BATCH_AT_ONCE, KeyBudget};
use tollgate_service::in_flight as reporting;
use tollgate_service::together::all;
use tollgate_service::{Api, ApiResponse, Unauthorized, check, settle as settling};
use tollgate_storage::InFlightReport;
use worker::web_sys;

use crate::active::Active;
use crate::deployment::RequestContext;
use crate::request::decide::{Caller, Decision, decide, settle};
use crate::request::events::note_token;
use crate::request::facts::with_claims;
use crate::request::in_flight;
use crate::request::planning;
use crate::request::settle::{id, settled};
use crate::request::target::path;
use crate::runtime::js;

/// The paths of the service.
const CHECK_PATH: &str = "/check";
const SETTLE_PATH: &str = "/check/settle";
const RENEW_PATH: &str = "/check/renew";
const DONE_PATH: &str = "/check/done";

/// Responds to a request to the service.
pub(crate) async fn service(
    visit: &RequestContext<'_>,
    active: Rc<Active>,
    request: &web_sys::Request,
    target: &str,
    is_authorized: bool,
) -> ApiResponse {
    let path = path(target);
    if !matches!(path, CHECK_PATH | SETTLE_PATH | RENEW_PATH | DONE_PATH) {
        return ApiResponse::problem(
            404,
            "Not Found",
            "use POST /check, /check/settle, /check/renew, /check/done or GET /.well-known/tollgate/health",
        );
    }
    if request.method() != "POST" {
        return ApiResponse::not_allowed("POST");
    }
    if !is_authorized {
        let detail = "send \"authorization: Bearer\" with the token of this service";
        let answer =
            ApiResponse::problem(401, "Unauthorized", detail).with("www-authenticate", "Bearer");
        let has_token = request.headers().has("authorization").unwrap_or_default();
        note_token(&visit.gate.objects, Unauthorized::of(Api::Check, &answer, has_token));
        return answer;
    }
    let Some(body) = js::body(request, check::MAX_BODY).await else {
        return check::too_long();
    };
    match path {
        SETTLE_PATH => settled(visit, &body).await,
        RENEW_PATH => in_flight::reported(visit.gate, InFlightReport::Runs, &body).await,
        DONE_PATH => in_flight::reported(visit.gate, InFlightReport::Ended, &body).await,
        _ => decided(visit, active, &body).await,
    }
}

/// Decides the requests that `body` describes, one or several.
pub(crate) async fn decided(
    visit: &RequestContext<'_>,
    active: Rc<Active>,
    body: &[u8],
) -> ApiResponse {
    match check::requests(body) {
        Ok(DescribedRequests::One(facts)) => match check_one(visit, active, facts, None).await {
            Ok(answer) => ApiResponse::json(answer),
            Err(problems) => check::refused(&problems),
        },
        Ok(DescribedRequests::Many(requests)) => {
            let budget = KeyBudget::default();
            let one = async |request| match request {
                Ok(facts) => {
                    let checked = check_one(visit, Rc::clone(&active), facts, Some(&budget)).await;
                    checked.unwrap_or_else(|problems| check::wrong(&problems))
                }
                Err(problems) => check::wrong(&problems),
            };
            let each = requests.into_iter().map(one).collect();
            check::answers(&all(each, BATCH_AT_ONCE).await)
        }
        Err(answer) => answer,
    }
}

/// Decides one described request, or takes note of its response: the result, as JSON.
///
/// # Errors
/// The problems that are found here.
async fn check_one(
    visit: &RequestContext<'_>,
    active: Rc<Active>,
    facts: DescribedRequest,
    budget: Option<&KeyBudget>,
) -> Result<String, Problems> {
    if let Some(status) = facts.response_status() {
        let (objects, policy) = (&visit.gate.objects, &*active.policy);
        let facts = with_claims(policy, facts).await;
        let mut plan = Plan::new();
        planning::plan(visit.gate.tenants.as_ref(), objects, policy, &facts, &mut plan).await;
        let is_known = !plan.has_failed();
        let charged =
            is_known && settle(objects, policy, &mut plan, Ending::Response(status), &()).await;
        return Ok(check::reported(charged));
    }
    let is_to_be_settled = facts.is_to_be_settled();
    if is_to_be_settled && visit.gate.sealer().is_none() {
        return Err(settling::off());
    }
    if in_flight::lacks_ids(visit.gate, &active.policy) {
        return Err(reporting::off());
    }
    let Decision { mut decided, active, facts, .. } =
        decide(visit, active, facts, Caller::Asks(budget)).await?;
    decided.in_flight = in_flight::id(visit.gate, &active.policy, &decided);
    if is_to_be_settled {
        decided.id = id(visit.gate, &active.policy, &decided);
    }
    let content_type = facts.header("content-type").unwrap_or_default();
    let policy = &*active.policy;
    Ok(check::answer(&decided.plan.outcome(policy), policy, &decided, &content_type))
}
