//! What an operator asks below `/.well-known/tollgate/`, connected: the service of
//! `tollgate-service` reads the request and says what to do.
//!
//! Invariant: these paths are ours whether they are on or off: none is forwarded to the origin,
//! counted by a policy or cached. For whoever has no token nothing is read, copied or asked.
//! Nothing is read of a body before the service wants it, and no more than it wants. Deliberately
//! absent: who may do what, and every answer; those are the service's.

use tollgate_policy::Surface;
use tollgate_service::{
    Actor, Allowed, Answer, Call, DeployedFile, KeyCall, Next, PREFIX, PolicyCall, Service,
    StoreCall, StoreReply,
};
use worker::web_sys;

use crate::active::objections;
use crate::deployment::Visit;
use crate::follow::policy;
use crate::{js, keys, store};

/// True for a path that is answered here. Beside these, the health report and the playground, what
/// lies below the prefix is the origin's.
pub(crate) fn is_ours(path: &str) -> bool {
    let Some(rest) = path.strip_prefix(PREFIX) else { return false };
    matches!(rest, "admin" | "metrics" | "openapi.json") || rest.starts_with("admin/")
}

/// The answer to a request for `target`, which is one of ours.
pub(crate) async fn answer(visit: &Visit<'_>, request: &web_sys::Request, target: &str) -> Answer {
    let gate = visit.gate;
    let operator = &gate.settings.operator;
    let headers = request.headers();
    let field = |name: &str| headers.get(name).ok().flatten();
    let method = request.method();
    let call = Call { method: &method, target, field: &field, now_ms: js::now_ms() };
    // Before anything that costs: a stranger must not reach an object, nor copy 1 MiB.
    let allowed = match Allowed::read(&operator.tokens, operator.audit_header.as_deref(), &call) {
        Ok(allowed) => allowed,
        Err(answer) => return answer,
    };
    let active = policy(visit).await;
    let is_on = gate.follower.is_some();
    let text = if is_on { js::policy_text() } else { String::new() };
    let fingerprint = gate.follower.as_ref().map_or(0, |follower| follower.fingerprint);
    let service = Service {
        surface: Surface::Worker,
        deployed: DeployedFile { text: &text, fingerprint },
        policy: active.as_ref().map(|active| &*active.policy),
        objections: &|candidate| objections(candidate, &gate.settings),
    };
    let writer = allowed.writer();
    let mut next = service.begin(allowed);
    loop {
        next = match next {
            Next::Answer(answer) => {
                if let Some(writer) = writer {
                    js::warn(&line(&writer, &method, target, answer.status));
                }
                return answer;
            }
            Next::Body(wants) => {
                let body = js::body(request, wants.limit()).await;
                wants.read(&service, body)
            }
            Next::Store(wants) => {
                let reply = match wants.call() {
                    StoreCall::Keys(call) => of_key(visit, call).await,
                    call => store::ask(gate, call).await,
                };
                if let (StoreCall::Policy(PolicyCall::Change(_)), Some(follower)) =
                    (wants.call(), &gate.follower)
                {
                    // Whatever became of it: it may have been made.
                    follower.following.borrow_mut().expire();
                }
                if let StoreReply::Failed(why) = &reply {
                    js::fail(&format!("an operator's request failed: {why}"));
                }
                wants.answered(&service, reply)
            }
        };
    }
}

/// What is asked of one client, under the policy in force.
async fn of_key(visit: &Visit<'_>, call: &KeyCall) -> StoreReply {
    match policy(visit).await {
        Some(active) => keys::ask(visit.gate, &active.policy, call).await,
        None => StoreReply::Failed("there is no policy in force".to_owned()),
    }
}

/// What the log says of whoever asked for a change, and of what came of it. A client's key stands
/// in a body and so not here.
fn line(writer: &Actor, method: &str, target: &str, status: u16) -> String {
    let (who, path) = (writer.name.as_deref().unwrap_or_default(), target.strip_prefix(PREFIX));
    let path = path.unwrap_or_default();
    format!("an operator's change: {method} {path:?} by {who:?}: {status}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::Access;

    #[test]
    fn a_line_of_the_log_is_one_line_and_says_who() {
        let writer = Actor { name: Some("kim\"@example.com".to_owned()), token: Access::Admin };
        let target = format!("{PREFIX}admin/tenants/a%0Ab?dry_run=1");
        let expected = r#"an operator's change: PUT "admin/tenants/a%0Ab?dry_run=1" by "kim\"@example.com": 409"#;
        assert_eq!(line(&writer, "PUT", &target, 409), expected);
    }

    #[test]
    fn the_rest_below_the_prefix_is_the_origins() {
        for ours in ["admin", "admin/", "admin/policy", "admin//policy", "metrics", "openapi.json"]
        {
            assert!(is_ours(&format!("{PREFIX}{ours}")), "{ours}");
        }
        for other in ["", "administrator", "Admin/", "metrics/", "health", "playground/", "/admin/"]
        {
            assert!(!is_ours(&format!("{PREFIX}{other}")), "{other}");
        }
        assert!(!is_ours("/admin/policy") && !is_ours("//.well-known/tollgate/metrics"));
    }
}
