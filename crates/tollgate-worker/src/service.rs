//! The Worker as a service: `POST /check` says what to do with a request that somebody else
//! forwards or refuses.
//!
//! Invariant: without the token that a deployment has, nothing is read of the body. Deliberately
//! absent: the answer's shape; that is `check`'s.

use tollgate_policy::{DescribedRequest, Facts, Plan, Policy};
use tollgate_service::{Answer as Reply, check};
use worker::web_sys;

use crate::decide::{decide, settle};
use crate::deployment::Gate;
use crate::facts::with_claims;
use crate::js;
use crate::target::path;

/// The path of the service.
const CHECK_PATH: &str = "/check";

/// Answers a request to the service.
pub(crate) async fn service(
    gate: &Gate,
    policy: &Policy,
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
        return Reply::problem(413, "Content Too Large", "send at most 65536 bytes");
    };
    match DescribedRequest::parse(&body) {
        Ok(facts) => {
            let status = facts.response_status();
            let facts = with_claims(policy, facts).await;
            if let Some(status) = status {
                let mut plan = Plan::new();
                policy.plan(&facts, &mut plan);
                let charged = settle(&gate.objects, policy, &mut plan, Some(status)).await;
                return Reply::json(format!("{{\"charged\":{charged}}}"));
            }
            let decided = decide(&gate.objects, policy, &facts, false).await;
            let content_type = facts.header("content-type").unwrap_or_default();
            let outcome = decided.plan.outcome(policy);
            Reply::json(check::answer(&outcome, policy, &decided, &content_type))
        }
        Err(problems) => {
            Reply::problems(400, "Bad Request", "the check request is wrong; see errors", &problems)
        }
    }
}
