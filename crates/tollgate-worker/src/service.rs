//! The Worker as a service: `POST /check` says what to do with a request that somebody else
//! forwards or refuses.
//!
//! Invariant: without the token that a deployment has, nothing is read of the body. Deliberately
//! absent: the answer's shape; that is `check`'s.

use std::rc::Rc;

use tollgate_policy::{DescribedRequest, DescribedRequests, Facts, Plan};
use tollgate_service::{Answer as Reply, check};
use worker::web_sys;

use crate::active::Active;
use crate::decide::{Decision, decide, settle};
use crate::deployment::Visit;
use crate::facts::with_claims;
use crate::js;
use crate::target::path;
use crate::tenants;
use crate::together::all;

/// The path of the service.
const CHECK_PATH: &str = "/check";

/// Answers a request to the service.
pub(crate) async fn service(
    visit: &Visit<'_>,
    active: Rc<Active>,
    request: &web_sys::Request,
    target: &str,
    is_authorized: bool,
) -> Reply {
    if path(target) != CHECK_PATH {
        return Reply::problem(
            404,
            "Not Found",
            "use POST /check or GET /.well-known/tollgate/health",
        );
    }
    if request.method() != "POST" {
        return Reply::not_allowed("POST");
    }
    if !is_authorized {
        let detail = "send \"authorization: Bearer\" with the token of this service";
        return Reply::problem(401, "Unauthorized", detail).with("www-authenticate", "Bearer");
    }
    let Some(body) = js::body(request, check::MAX_BODY).await else {
        return check::too_long();
    };
    decided(visit, active, &body).await
}

/// Decides what `body` describes: one request, or several.
pub(crate) async fn decided(visit: &Visit<'_>, active: Rc<Active>, body: &[u8]) -> Reply {
    match check::requests(body) {
        Ok(DescribedRequests::One(facts)) => Reply::json(check_one(visit, active, facts).await),
        Ok(DescribedRequests::Many(requests)) => {
            let one = async |request| match request {
                Ok(facts) => check_one(visit, Rc::clone(&active), facts).await,
                Err(problems) => check::wrong(&problems),
            };
            check::answers(&all(requests.into_iter().map(one).collect()).await)
        }
        Err(answer) => answer,
    }
}

/// Decides one described request, or takes note of its response: the answer, as JSON.
async fn check_one(visit: &Visit<'_>, active: Rc<Active>, facts: DescribedRequest) -> String {
    if let Some(status) = facts.response_status() {
        let (objects, policy) = (&visit.gate.objects, &*active.policy);
        let facts = with_claims(policy, facts).await;
        let mut plan = Plan::new();
        tenants::plan(visit.gate.tenants.as_ref(), objects, policy, &facts, &mut plan).await;
        let is_known = !plan.has_failed();
        let charged = is_known && settle(objects, policy, &mut plan, Some(status)).await;
        return check::reported(charged);
    }
    let Decision { decided, active, facts } = decide(visit, active, facts, false).await;
    let content_type = facts.header("content-type").unwrap_or_default();
    let policy = &*active.policy;
    check::answer(&decided.plan.outcome(policy), policy, &decided, &content_type)
}
