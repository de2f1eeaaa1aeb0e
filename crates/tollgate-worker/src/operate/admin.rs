//! An operator's requests below `/.well-known/tollgate/`: the service of `tollgate-service` reads
//! the request and returns the steps to take, and this file carries them out.
//!
//! Invariant: these paths are ours whether they are on or off: none is forwarded to the origin,
//! counted by a policy or cached. Without a token nothing is read, copied or called. A body is read
//! only when the service needs it, and no more of it than the service needs. Deliberately absent:
//! the permissions, and every response; those are in the service.

use std::pin::Pin;

use tollgate_policy::Surface;
use tollgate_service::{
    Actor, Allowed, Api, ApiResponse, Call, DeployedFile, KeyCall, Next, PREFIX, PolicyCall,
    Service, StoreCall, StoreReply, Unauthorized, UsageCall,
};
use worker::web_sys;

use crate::active::{Active, objections};
use crate::deployment::{Gate, RequestContext};
use crate::follow::{newest, policy};
use crate::operate::background;
use crate::operate::{keys, store};
use crate::request::events::note_token;
use crate::runtime::js;

/// The response to a request for `target`, which is one of ours. A future behind a pointer, so that
/// none of it is compiled into the code that every request runs: it is in the half of the module
/// that is loaded when an operator sends a request.
#[inline(never)]
pub(crate) fn answer<'a>(
    visit: RequestContext<'a>,
    request: &'a web_sys::Request,
    target: &'a str,
) -> Pin<Box<dyn Future<Output = ApiResponse> + 'a>> {
    Box::pin(async move { run(&visit, request, target).await })
}

async fn run(visit: &RequestContext<'_>, request: &web_sys::Request, target: &str) -> ApiResponse {
    let (gate, operator) = (visit.gate, &visit.gate.settings.operator);
    let headers = request.headers();
    let field = |name: &str| headers.get(name).ok().flatten();
    let method = request.method();
    let call = Call { method: &method, target, field: &field, now_ms: js::now_ms() };
    // Before anything that costs: a stranger must not reach an object, nor copy 1 MiB.
    let allowed = match Allowed::read(&operator.tokens, operator.audit_header.as_deref(), &call) {
        Ok(allowed) => allowed,
        Err(answer) => return refused(visit, answer, field("authorization").is_some()),
    };
    let active = if allowed.wants_newest() { newest(visit).await } else { policy(visit).await };
    let is_on = gate.follower.is_some() && allowed.wants_file();
    let text = if is_on { js::policy_text() } else { String::new() };
    let fingerprint = gate.follower.as_ref().map_or(0, |follower| follower.fingerprint);
    let service = Service {
        surface: Surface::Worker,
        deployed: DeployedFile { text: &text, fingerprint },
        policy: active.as_ref().map(|active| &*active.policy),
        to_json: &Ok,
        objections: &|candidate| objections(candidate, &gate.settings),
    };
    let writer = allowed.writer();
    let mut next = service.begin(allowed);
    loop {
        next = match next {
            Next::Response(answer) => {
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
                    StoreCall::Keys(call) => of_key(gate, active.as_deref(), call).await,
                    StoreCall::Usage(call) => of_usage(gate, active.as_deref(), call).await,
                    call => {
                        let in_force = active.as_ref().map(|active| &*active.policy);
                        store::ask(gate, in_force, call).await
                    }
                };
                if changes_policy(wants.call())
                    && let Some(follower) = &gate.follower
                {
                    // Whatever the result: the change may have been made.
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

/// True when the policy in force may be another one after this call.
fn changes_policy(call: &StoreCall) -> bool {
    matches!(call, StoreCall::Policy(PolicyCall::Change(_) | PolicyCall::NoteKey(_)))
}

/// The response to a caller without permission; it is counted and logged when the token is the
/// reason.
fn refused(visit: &RequestContext<'_>, answer: ApiResponse, has_token: bool) -> ApiResponse {
    note_token(&visit.gate.objects, Unauthorized::of(Api::Admin, &answer, has_token));
    background::schedule(visit.deployment, visit.context);
    answer
}

/// Carries out an operation on one client, under the policy in force.
async fn of_key(gate: &Gate, active: Option<&Active>, call: &KeyCall) -> StoreReply {
    match active {
        Some(active) => keys::ask(gate, &active.policy, call).await,
        None => StoreReply::Failed("there is no policy in force".to_owned()),
    }
}

/// Reports what clients have used, under the policy in force.
async fn of_usage(gate: &Gate, active: Option<&Active>, call: &UsageCall) -> StoreReply {
    match active {
        Some(active) => keys::report(gate, &active.policy, call).await,
        None => StoreReply::Failed("there is no policy in force".to_owned()),
    }
}

/// The log line for a change: who asked for it, and its result. A client's key is in a body and
/// therefore not in this line.
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
}
