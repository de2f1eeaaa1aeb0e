//! The operator's requests below `/.well-known/tollgate/`: the service of `tollgate-service` reads
//! a request and returns the step to carry out. The steps about one key are here, too: no other
//! caller has them, and they are answered like the others.
//!
//! Invariant: for a caller without a token nothing is read, copied or requested. No byte of a body
//! is read before the service asks for it, and no more than it asks for. A change of the policy is
//! in force here before its response is sent. A key goes no further than the store's hash of it,
//! and each operation that changes one is a line of the log, with the `pk` hash. Deliberately
//! absent: the permissions, the order in which a count is asked, and the responses; those are in
//! the service.

use serde_json::Value;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Policy, Problems, Surface};
use tollgate_service::key_work::{self, OperatorRequest};
use tollgate_service::usage_work;
use tollgate_service::{
    Allowed, ApiResponse, Call, DeployedFile, KeyCall, MetricsCall, MetricsReply, Next, PREFIX,
    PolicyCall, Service, StoreCall, StoreReply, TenantCall, TenantReply, Tokens,
};
use tollgate_yaml::{Document, Language};

use crate::check::tenants;
use crate::gate::Gate;
use crate::log::Level;
use crate::policy::active::{Active, objections};
use crate::policy::following::File;
use crate::store::{NoReply, StoreRequest};

/// The credentials of operators, and the header that names them.
#[derive(Default)]
pub struct Operators {
    /// The secrets.
    pub tokens: Tokens,
    /// The request header, in lower case, that names the author of a change.
    pub audit_header: Option<String>,
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operators")
            .field("audit_header", &self.audit_header)
            .finish_non_exhaustive()
    }
}

impl Operators {
    /// True when an operator could sign in to the operator's page.
    #[must_use]
    pub const fn has_page(&self) -> bool {
        self.tokens.admin.is_some() || self.tokens.read.is_some()
    }
}

/// Checks the head of a request for one of our paths, before any expensive work: an unknown caller
/// must not reach the store, nor copy 1 MiB.
///
/// # Errors
/// The response to a caller that is not allowed.
pub fn allowed(operators: &Operators, call: &Call<'_>) -> Result<Allowed, ApiResponse> {
    Allowed::read(&operators.tokens, operators.audit_header.as_deref(), call)
}

/// The response to an allowed request. `body` reads at most the given number of bytes, and returns
/// `None` for more, or when they do not arrive.
pub async fn answer(
    gate: &Gate,
    allowed: Allowed,
    (method, target): (&str, &str),
    body: impl AsyncFnOnce(usize) -> Option<Vec<u8>>,
) -> ApiResponse {
    if allowed.wants_newest() {
        // Another server of the fleet may have made the last change.
        gate.follow(0).await;
    }
    let (active, file) = (gate.following.active(), gate.following.file());
    let (writer, mut body) = (allowed.writer(), Some(body));
    let spoken = gate.following.spoken();
    let objections = |policy: &Policy| objections(policy, spoken);
    // Made again for each step: it must not be held across an await.
    let mut next = service(&active, &file, gate, &objections).begin(allowed);
    loop {
        next = match next {
            Next::Response(answer) => {
                if let Some(writer) = writer {
                    let path = target.strip_prefix(PREFIX).unwrap_or_default();
                    let fields = [
                        ("method", Value::from(method)),
                        ("path", path.into()),
                        ("by", writer.name.into()),
                        ("status", answer.status.into()),
                    ];
                    gate.log.event(Level::Warning, "operator_change", &fields);
                }
                return answer;
            }
            Next::Body(wants) => {
                let read = match body.take() {
                    Some(body) => body(wants.limit()).await,
                    None => None,
                };
                wants.read(&service(&active, &file, gate, &objections), read)
            }
            Next::Store(wants) => {
                let reply = ask(gate, wants.call()).await;
                if let StoreReply::Failed(why) = &reply {
                    gate.log.message(Level::Error, "operator_request_failed", why);
                }
                wants.answered(&service(&active, &file, gate, &objections), reply)
            }
        };
    }
}

fn service<'a>(
    active: &'a Active,
    file: &'a File,
    gate: &Gate,
    objections: &'a dyn Fn(&Policy) -> Problems,
) -> Service<'a> {
    let text = if gate.following.is_on() { file.text.as_str() } else { "" };
    Service {
        surface: Surface::Server,
        deployed: DeployedFile { text, fingerprint: file.fingerprint },
        policy: Some(&active.policy),
        to_json: &as_json,
        objections,
    }
}

/// A document that was sent, in YAML or JSON, as JSON.
fn as_json(text: String) -> Result<String, Problems> {
    let language = Language::of_text(&text);
    Document::read(text, language).map(|document| document.json)
}

async fn ask(gate: &Gate, call: &StoreCall) -> StoreReply {
    match call {
        StoreCall::Keys(call) => operate_key(gate, &gate.following.active().policy, call).await,
        StoreCall::Usage(call) => {
            let policy = &gate.following.active().policy;
            let count = |asked| count(gate, policy, asked);
            usage_work::carry_out(policy, call, |name| entry_of(gate, name), count).await
        }
        StoreCall::Metrics(MetricsCall::Read(format)) => {
            gate.gather();
            let (now_ms, calls) = (gate.clock.now_ms(), &gate.traffic.calls);
            let text = gate.counting.text(*format, now_ms, &gate.own(), calls);
            StoreReply::Metrics(MetricsReply::Text(text))
        }
        StoreCall::Policy(PolicyCall::Change(_)) => {
            let reply = gate.store.rules(call).await;
            // Whatever the result was: the change may have been made.
            gate.follow(0).await;
            reply
        }
        StoreCall::Tenants(TenantCall::Put { id, .. } | TenantCall::Delete { id, .. }) => {
            let reply = gate.store.rules(call).await;
            let policy = gate.following.active();
            if let Some(key) = policy.policy.tenants().and_then(|tenants| tenants.id(id)) {
                gate.tenants.forget(&key, gate.clock.now());
            }
            reply
        }
        StoreCall::Policy(_) | StoreCall::Tenants(_) => gate.store.rules(call).await,
    }
}

/// Carries out `call` for an operator, under the policy in force.
async fn operate_key(gate: &Gate, policy: &Policy, call: &KeyCall) -> StoreReply {
    let look = async |facts| look(gate, policy, facts).await;
    let count = |asked| count(gate, policy, asked);
    let (reply, event) = key_work::carry_out(policy, call, look, count).await;
    if !matches!(call, KeyCall::Explain { .. } | KeyCall::State(_)) {
        // Whatever the result was: the change may have been made.
        gate.denials.forget_all();
    }
    if let Some(event) = event {
        let fields = [
            ("operation", Value::from(event.operation)),
            ("rule", event.rule.into()),
            ("pk", event.pk.into()),
            ("blocked_until_ms", event.blocked_until_ms.into()),
        ];
        gate.log.event(Level::Warning, "key_changed", &fields);
    }
    reply
}

/// The decision that a request would get, with its tenant's entry; nothing is charged.
async fn look(gate: &Gate, policy: &Policy, facts: DescribedRequest) -> Plan {
    let mut plan = Plan::new();
    tenants::plan(gate, policy, &facts, &mut plan).await;
    // Else the tenant's quotas are unknown, and `on_failure` has decided.
    if !plan.has_failed() {
        gate.look(policy, &mut plan).await;
    }
    plan
}

/// The entry of the tenant with this name, as it is stored now.
async fn entry_of(gate: &Gate, name: String) -> Result<Option<String>, String> {
    match gate.store.rules(&StoreCall::Tenants(TenantCall::Get { id: name })).await {
        StoreReply::Tenants(TenantReply::Entry(found)) => Ok(found.map(|stored| stored.entry)),
        StoreReply::Failed(why) => Err(why),
        _ => Err("the store gave no entry of a tenant".to_owned()),
    }
}

/// Asks the key's count.
async fn count(gate: &Gate, policy: &Policy, asked: OperatorRequest) -> Result<Vec<u8>, String> {
    let reply = gate
        .store
        .ask(
            &gate.name_of(policy, (asked.key.group, asked.key.bytes())),
            StoreRequest::Operate(&asked.request),
        )
        .await;
    reply.map_err(|why| match why {
        NoReply::Late => "the store does not respond in time".to_owned(),
        NoReply::Failed(why) | NoReply::Unreadable(why) => why,
        NoReply::Overloaded => "too many ask the store".to_owned(),
    })
}
