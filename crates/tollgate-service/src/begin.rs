//! One request to the service, from its head to its response.
//!
//! Invariant: no body is read, and no store is head, before the request was found to be allowed: a
//! [`Service`], which may be expensive to make, takes only an [`Allowed`] request.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::access::{Actor, Tokens};
use crate::admin::step::Step;
use crate::admin::{key_history, keys, metrics, policy, tenants, usage};
use crate::api_response::{ApiResponse, JSON};
use crate::metrics::Format;
use crate::open_api::OPEN_API;
use crate::problem::Wrong;
use crate::request_head::{RequestHead, body_limit};
use crate::routes::Operation;
use crate::service::{Call, Service};
use crate::store::policy::PolicyReply;
use crate::store::usage::UsageFormat;
use crate::store::{StoreCall, StoreReply};

/// The next step.
#[derive(Debug)]
pub enum Next {
    /// Send this response.
    Response(ApiResponse),
    /// Read the body, then continue with [`WantsBody::read`].
    Body(WantsBody),
    /// Ask the store, then continue with [`WantsStore::answered`].
    Store(WantsStore),
}

/// A request that needs its body.
#[derive(Debug)]
pub struct WantsBody {
    limit: usize,
    head: Box<RequestHead>,
}

/// A request that needs a response of the store.
#[derive(Debug)]
pub struct WantsStore {
    call: Box<StoreCall>,
    head: Box<RequestHead>,
    state: PendingOperation,
}

/// The operation that a reply of the store continues.
#[derive(Debug)]
enum PendingOperation {
    Policy(policy::PendingPolicyCall),
    Tenants(tenants::PendingTenantCall),
    Keys(keys::PendingKeyCall),
    KeyHistory(()),
    Usage(UsageFormat),
    Metrics(Format),
}

/// An allowed request: only its head was read.
#[derive(Debug)]
pub struct Allowed(Box<RequestHead>);

impl Allowed {
    /// Checks the head of a request below `/.well-known/tollgate/`. `actor_header` is the name, in
    /// lower case, of the header that names the author of a change, for the history.
    ///
    /// # Errors
    /// The response when nothing needs to be read, copied or asked for it: the request is not
    /// allowed, or is for a public document.
    pub fn read(
        tokens: &Tokens,
        actor_header: Option<&str>,
        call: &Call<'_>,
    ) -> Result<Self, ApiResponse> {
        let is_head = call.method == "HEAD";
        let head = RequestHead::read(tokens, actor_header, call).map_err(|it| sent(it, is_head))?;
        if head.operation == Operation::ReadOpenApi {
            return Err(sent(ApiResponse::new(200, JSON, OPEN_API), is_head));
        }
        Ok(Self(Box::new(head)))
    }

    /// True when the text of the deployed file is needed: for operations on the policy in force.
    /// For all others the [`Service`] may have an empty text.
    #[must_use]
    pub const fn wants_file(&self) -> bool {
        matches!(
            self.0.operation,
            Operation::ReadPolicy
                | Operation::PutPolicy
                | Operation::DeletePolicy
                | Operation::RollBack
        )
    }

    /// True when the response depends on the policy in force, so that the service must have the
    /// newest one: an operator who has just written a rule asks about a key of it. Operations on
    /// the policy get it from the store itself, and metrics are read often.
    #[must_use]
    pub const fn wants_newest(&self) -> bool {
        matches!(
            self.0.operation,
            Operation::ListTenants
                | Operation::ReadTenant
                | Operation::PutTenant
                | Operation::DeleteTenant
                | Operation::Explain
                | Operation::ReadKey
                | Operation::ResetKey
                | Operation::BlockKey
                | Operation::UnblockKey
                | Operation::ReadUsage
        )
    }

    /// The author of a change, for a log; `None` for an operation that only reads.
    #[must_use]
    pub fn writer(&self) -> Option<Actor> {
        self.0.actor.clone().filter(|_| self.0.is_write)
    }
}

impl Service<'_> {
    /// Begins to serve a request. Never fails: a mistake gets a response.
    #[must_use]
    pub fn begin(&self, Allowed(head): Allowed) -> Next {
        match body_limit(head.operation) {
            Some(limit) => Next::Body(WantsBody { limit, head }),
            None => begun(self, head, Vec::new()),
        }
    }
}

impl WantsBody {
    /// The most bytes to read.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Continues with the body; `None` when it is longer than the limit, or broke off.
    #[must_use]
    pub fn read(self, service: &Service<'_>, body: Option<Vec<u8>>) -> Next {
        match body.filter(|body| body.len() <= self.limit) {
            Some(body) => begun(service, self.head, body),
            None => {
                let detail = format!("send at most {} bytes", self.limit);
                Next::Response(Wrong::TooLarge.answer(&detail))
            }
        }
    }
}

impl WantsStore {
    /// The call to the store.
    #[must_use]
    pub fn call(&self) -> &StoreCall {
        &self.call
    }

    /// Continues with the store's reply.
    #[must_use]
    pub fn answered(self, service: &Service<'_>, reply: StoreReply) -> Next {
        let head = self.head;
        match (self.state, reply) {
            (PendingOperation::Policy(state), StoreReply::Policy(reply)) => {
                let step = policy::answered(service, &head, state, reply);
                next(head, step, StoreCall::Policy, PendingOperation::Policy)
            }
            (PendingOperation::Tenants(state), StoreReply::Tenants(reply)) => {
                let step = tenants::answered(service, &head, state, reply);
                next(head, step, StoreCall::Tenants, PendingOperation::Tenants)
            }
            (PendingOperation::Keys(keys::PendingKeyCall::Key), StoreReply::Keys(reply)) => {
                let step = keys::answered(&head, reply);
                next(head, step, keys::Call::of_store, PendingOperation::Keys)
            }
            (
                PendingOperation::Keys(keys::PendingKeyCall::Note),
                StoreReply::Policy(PolicyReply::Noted),
            ) => Next::Response(sent(keys::noted(), head.is_head)),
            (PendingOperation::KeyHistory(()), StoreReply::Policy(reply)) => {
                let step = key_history::answered(&reply);
                next(head, step, StoreCall::Policy, PendingOperation::KeyHistory)
            }
            (PendingOperation::Usage(format), StoreReply::Usage(reply)) => {
                let step = usage::answered(format, reply);
                next(head, step, StoreCall::Usage, PendingOperation::Usage)
            }
            (PendingOperation::Metrics(format), StoreReply::Metrics(reply)) => {
                let step = metrics::answered(format, reply);
                next(head, step, StoreCall::Metrics, PendingOperation::Metrics)
            }
            _ => {
                let answer =
                    Wrong::StoreUnavailable.answer("the store does not respond; try again");
                Next::Response(sent(answer.with("retry-after", "1"), head.is_head))
            }
        }
    }
}

fn begun(service: &Service<'_>, head: Box<RequestHead>, body: Vec<u8>) -> Next {
    match head.operation {
        Operation::ReadPolicy
        | Operation::PutPolicy
        | Operation::DeletePolicy
        | Operation::ReadHistory
        | Operation::ReadVersion
        | Operation::RollBack => {
            let step = policy::begin(service, &head, body);
            next(head, step, StoreCall::Policy, PendingOperation::Policy)
        }
        Operation::ListTenants
        | Operation::ReadTenant
        | Operation::PutTenant
        | Operation::DeleteTenant => {
            let step = tenants::begin(service, &head, body);
            next(head, step, StoreCall::Tenants, PendingOperation::Tenants)
        }
        Operation::Explain
        | Operation::ReadKey
        | Operation::ResetKey
        | Operation::BlockKey
        | Operation::UnblockKey => {
            let step = keys::begin(&head, body);
            next(head, step, keys::Call::of_store, PendingOperation::Keys)
        }
        Operation::ReadKeyHistory => {
            let step = key_history::begin(&head);
            next(head, step, StoreCall::Policy, PendingOperation::KeyHistory)
        }
        Operation::ReadUsage => {
            let step = usage::begin(&head);
            next(head, step, StoreCall::Usage, PendingOperation::Usage)
        }
        Operation::ReadMetrics => {
            let step = metrics::begin(&head);
            next(head, step, StoreCall::Metrics, PendingOperation::Metrics)
        }
        // `Allowed` has already responded to it.
        Operation::ReadOpenApi => {
            Next::Response(sent(ApiResponse::new(200, JSON, OPEN_API), head.is_head))
        }
    }
}

/// The next step after `step`, whose calls and states are of one kind.
fn next<C, S>(
    head: Box<RequestHead>,
    step: Step<C, S>,
    call_of: impl FnOnce(C) -> StoreCall,
    state_of: impl FnOnce(S) -> PendingOperation,
) -> Next {
    match step {
        Step::Response(answer) => Next::Response(sent(answer, head.is_head)),
        Step::Ask(call, state) => {
            Next::Store(WantsStore { call: Box::new(call_of(call)), head, state: state_of(state) })
        }
    }
}

/// `answer` as it is sent: to `HEAD` without its body (RFC 9110, 9.3.2).
fn sent(answer: ApiResponse, is_head: bool) -> ApiResponse {
    if is_head { ApiResponse { body: "".into(), ..answer } } else { answer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::bearer::Token;
    use crate::routes::{PREFIX, Permission, ROUTES};

    /// Guards: a stranger that makes a deployment copy its policy, or ask an object for it.
    #[test]
    fn a_stranger_has_an_answer_before_there_is_a_service() {
        let tokens = Tokens { admin: Some(Token::new(b"secret")), ..Tokens::default() };
        let head = |method: &str, path: &str, token: Option<&str>| {
            let target = format!("{PREFIX}{path}").replace(['{', '}'], "");
            let field = |name: &str| match name {
                "authorization" => token.map(Into::into),
                "content-type" => Some("application/json".into()),
                _ => None,
            };
            let call = Call { method, target: &target, field: &field, now_ms: 0 };
            Allowed::read(&tokens, None, &call).map_err(|answer| answer.status)
        };
        for route in ROUTES {
            for method in route.methods {
                let is_public = route.path == "openapi.json";
                for token in [None, Some("Bearer secre"), Some("Basic secret"), Some("")] {
                    let expected = if is_public { 200 } else { 401 };
                    assert_eq!(head(method.name, route.path, token).err(), Some(expected));
                }
                let with_token = head(method.name, route.path, Some("Bearer secret"));
                assert_eq!(with_token.is_ok(), !is_public, "{method:?} {}", route.path);
                if let Ok(allowed) = with_token {
                    let is_of_policy = ["admin/policy", "admin/policy/rollback"];
                    assert_eq!(allowed.wants_file(), is_of_policy.contains(&route.path));
                    let is_about_rules =
                        ["admin/tenants", "admin/keys", "admin/explain", "admin/usage"];
                    let is_about = |of: &&str| {
                        route.path.starts_with(*of) && route.path != "admin/keys/history"
                    };
                    assert_eq!(allowed.wants_newest(), is_about_rules.iter().any(is_about));
                    let writes = allowed.writer().map(|actor| actor.token);
                    let is_write = method.right == Permission::Write;
                    assert_eq!(writes, is_write.then_some(Access::Admin), "{}", route.path);
                }
            }
            for method in ["OPTIONS", "TRACE", "get", ""] {
                assert_eq!(head(method, route.path, None).err(), Some(405), "{method}");
            }
        }
    }
}
