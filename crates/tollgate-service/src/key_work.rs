//! An operator's request about one client: explain, look, reset, block.
//!
//! Invariant: a key is named by its value and goes no further than to its count, which is found by
//! the key's hash: no response and no [`KeyEvent`] contains it. The operation first looks at the
//! key, then changes it if a change is requested; both may be repeated. Deliberately absent: the
//! permissions, the form of the responses, how a count is called, and where events are written.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_language::DescribedRequest;
use tollgate_policy::{GivenKey, NoKey, Plan, Policy, Problem, pk_text};
use tollgate_storage::{KeyOperation, KeyState};

use crate::key_report;
use crate::store::StoreReply;
use crate::store::keys::{KeyCall, KeyReply, KeyTask, RuleKey};

/// Carries `call` out under the policy in force; returns the reply, and the event to be written
/// about it.
///
/// `look` plans the request that an operator describes, with its tenant's entry, and returns the
/// decision that it would get; nothing is charged. `count` sends a request to a key's count, and
/// returns a message if there is no reply.
pub async fn carry_out<'a, R: Future<Output = Result<Vec<u8>, String>>>(
    policy: &Policy,
    call: &'a KeyCall,
    look: impl AsyncFnOnce(DescribedRequest) -> Plan,
    count: impl FnMut(OperatorRequest) -> R,
) -> (StoreReply, Option<KeyEvent<'a>>) {
    let (key, operation) = match call.task() {
        KeyTask::Explain(request) => {
            let reply = match DescribedRequest::parse(request.as_bytes()) {
                Ok(facts) => {
                    let plan = look(facts).await;
                    KeyReply::Explained(key_report::explained(policy, &plan.outcome(policy)))
                }
                Err(_) => {
                    KeyReply::NoKey { path: String::new(), why: "is not a request".to_string() }
                }
            };
            return (StoreReply::Keys(reply), None);
        }
        KeyTask::Operate(key, operation) => (key, operation),
    };
    let work = match KeyWork::begin(policy, (key, operation)) {
        Ok(work) => work,
        Err(none) => return (StoreReply::Keys(none), None),
    };
    match work.carry_out(policy, count).await {
        Ok((reply, event)) => (StoreReply::Keys(reply), event),
        Err(why) => (StoreReply::Failed(why), None),
    }
}

/// A request to a key's count.
#[derive(Clone, Debug)]
pub struct OperatorRequest {
    /// The key; its count is found by the hash of its bytes.
    pub key: GivenKey,
    /// [`KeyOperation::Describe`], then the change, if one is requested.
    pub operation: KeyOperation,
    /// The same in bytes, as it is sent.
    pub request: Vec<u8>,
}

/// One operation in progress.
struct KeyWork<'a> {
    rule_key: &'a RuleKey,
    key: GivenKey,
    operation: KeyOperation,
}

const HALF_A_BLOCK: &str = "is missing, and a tenant with quotas of its own in this rule is counted \
                            apart, which a block of all others does not reach; name the tenant, or \
                            write null for all others";

impl RuleKey {
    /// True for a block that an operator may take for one of the client under every tenant, and
    /// that would allow the requests of some tenants.
    fn is_half_of_a_block(&self, policy: &Policy, key: &GivenKey, operation: KeyOperation) -> bool {
        let is_block = matches!(operation, KeyOperation::Block(_));
        let is_said = self.tenant.is_some() || self.is_of_no_tenant;
        is_block && !is_said && key.is_apart_of_tenants(policy)
    }
}

/// A change of a key, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent<'a> {
    /// `reset`, `block` or `unblock`.
    pub operation: &'static str,
    /// The name of the rule.
    pub rule: &'a str,
    /// The hash of the key, as responses and logs spell it.
    pub pk: String,
    /// The end of the new block, in milliseconds since 1970, rounded up.
    pub blocked_until_ms: Option<u64>,
}

impl<'a> KeyWork<'a> {
    /// Begins the operation on the key in `rule_key`.
    ///
    /// # Errors
    /// The response when the policy has no such rule, or the rule no such key.
    fn begin(
        policy: &Policy,
        (rule_key, operation): (&'a RuleKey, KeyOperation),
    ) -> Result<Self, KeyReply> {
        let found = GivenKey::new(policy, &rule_key.rule, &rule_key.key);
        let found = found.and_then(|key| match &rule_key.tenant {
            Some(tenant) => key.of_tenant(policy, tenant),
            None => Ok(key),
        });
        match found {
            Ok(key) if rule_key.is_half_of_a_block(policy, &key, operation) => {
                Err(KeyReply::NoKey { path: "tenant".to_string(), why: HALF_A_BLOCK.to_string() })
            }
            Ok(key) => Ok(Self { rule_key, key, operation }),
            Err(NoKey::NoRule) => Err(KeyReply::NoRule),
            Err(NoKey::Wrong(Problem { path, message: why, .. })) => {
                Err(KeyReply::NoKey { path, why })
            }
        }
    }

    async fn carry_out<R: Future<Output = Result<Vec<u8>, String>>>(
        &self,
        policy: &Policy,
        mut count: impl FnMut(OperatorRequest) -> R,
    ) -> Result<(KeyReply, Option<KeyEvent<'a>>), String> {
        let read = |reply: Vec<u8>| KeyState::read(&reply).map_err(|why| why.to_string());
        let mut ask = |operation| {
            let mut request = Vec::new();
            self.key.request(policy, operation, &mut request);
            count(OperatorRequest { key: self.key.clone(), operation, request })
        };
        let before = read(ask(KeyOperation::Describe).await?)?;
        let Some(operation) = self.word() else {
            return Ok((KeyReply::State(key_report::state(policy, &self.key, &before)), None));
        };
        let after = read(ask(self.operation).await?)?;
        let event = KeyEvent {
            operation,
            rule: &self.rule_key.rule,
            pk: pk_text(self.key.pk(policy)),
            blocked_until_ms: after.blocked_until.map(key_report::millis),
        };
        let tenant = self.rule_key.tenant.as_deref();
        let change = key_report::change(policy, &self.key, tenant, &before, &after);
        Ok((KeyReply::Done(change), Some(event)))
    }

    /// The name of a change.
    const fn word(&self) -> Option<&'static str> {
        match self.operation {
            KeyOperation::Describe => None,
            KeyOperation::Reset => Some("reset"),
            KeyOperation::Block(_) => Some("block"),
            KeyOperation::Unblock => Some("unblock"),
        }
    }
}
