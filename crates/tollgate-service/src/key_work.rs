//! What an operator asks of one client: explained, looked at, reset, blocked.
//!
//! Invariant: a key is named by its value and goes no further than to whoever counts, who is found
//! by its hash: no answer and no [`KeyEvent`] holds it. It is looked at, then changed where a
//! change is asked for; both may be repeated. Deliberately absent: who may ask, what the answers
//! look like, how whoever counts is asked, and where events are written.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_policy::{DescribedRequest, GivenKey, NoKey, Plan, Policy, Problem, pk_text};
use tollgate_storage::{KeyOperation, KeyState};

use crate::key_report;
use crate::store::StoreReply;
use crate::store::keys::{AskedOfKey, KeyCall, KeyReply, RuleKey};

/// Carries `call` out under the policy in force; the reply, and what is to be written about it.
///
/// `look` plans the request that an operator describes, with the entry that its tenant has, and
/// looks what would be decided; nothing is charged. `count` asks whoever counts a key, and says in
/// words why there is no reply.
pub async fn carry_out<'a, R: Future<Output = Result<Vec<u8>, String>>>(
    policy: &Policy,
    call: &'a KeyCall,
    look: impl AsyncFnOnce(DescribedRequest) -> Plan,
    count: impl FnMut(KeyAsk) -> R,
) -> (StoreReply, Option<KeyEvent<'a>>) {
    let (key, operation) = match call.asked() {
        AskedOfKey::Explain(request) => {
            let reply = match DescribedRequest::parse(request.as_bytes()) {
                Ok(facts) => {
                    let plan = look(facts).await;
                    KeyReply::Explained(key_report::explained(policy, &plan.outcome(policy)))
                }
                Err(_) => KeyReply::NoKey { path: String::new(), why: "is no request".to_string() },
            };
            return (StoreReply::Keys(reply), None);
        }
        AskedOfKey::Operate(key, operation) => (key, operation),
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

/// What whoever counts a key is asked.
#[derive(Clone, Debug)]
pub struct KeyAsk {
    /// The key; whoever counts is found by the hash of its bytes.
    pub key: GivenKey,
    /// [`KeyOperation::Describe`], then what changes something, where that is asked for.
    pub operation: KeyOperation,
    /// The same in bytes: what is sent.
    pub request: Vec<u8>,
}

/// One operation on its way.
struct KeyWork<'a> {
    asked: &'a RuleKey,
    key: GivenKey,
    operation: KeyOperation,
}

const HALF_A_BLOCK: &str = "is missing, and a tenant with quotas of its own in this rule is counted \
                            apart, which a block of all others does not reach; name the tenant, or \
                            write null for all others";

impl RuleKey {
    /// True for a block that somebody may take for one of the client whosoever's request it is,
    /// and that would let the requests of some tenants through.
    fn is_half_of_a_block(&self, policy: &Policy, key: &GivenKey, operation: KeyOperation) -> bool {
        let is_block = matches!(operation, KeyOperation::Block(_));
        let is_said = self.tenant.is_some() || self.is_of_no_tenant;
        is_block && !is_said && key.is_apart_of_tenants(policy)
    }
}

/// What was done to a key, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent<'a> {
    /// `reset`, `block` or `unblock`.
    pub operation: &'static str,
    /// The name of the rule.
    pub rule: &'a str,
    /// What clients and logs know the key by, as they spell it.
    pub pk: String,
    /// Until when it is blocked since then, in milliseconds since 1970, rounded up.
    pub blocked_until_ms: Option<u64>,
}

impl<'a> KeyWork<'a> {
    /// Begins `operation` on the key that is `asked` for.
    ///
    /// # Errors
    /// What is answered when the policy has no such rule, or the rule no such key.
    fn begin(
        policy: &Policy,
        (asked, operation): (&'a RuleKey, KeyOperation),
    ) -> Result<Self, KeyReply> {
        let found = policy.key_of(&asked.rule, &asked.key).and_then(|key| match &asked.tenant {
            Some(tenant) => key.of_tenant(policy, tenant),
            None => Ok(key),
        });
        match found {
            Ok(key) if asked.is_half_of_a_block(policy, &key, operation) => {
                Err(KeyReply::NoKey { path: "tenant".to_string(), why: HALF_A_BLOCK.to_string() })
            }
            Ok(key) => Ok(Self { asked, key, operation }),
            Err(NoKey::NoRule) => Err(KeyReply::NoRule),
            Err(NoKey::Wrong(Problem { path, message: why, .. })) => {
                Err(KeyReply::NoKey { path, why })
            }
        }
    }

    async fn carry_out<R: Future<Output = Result<Vec<u8>, String>>>(
        &self,
        policy: &Policy,
        mut count: impl FnMut(KeyAsk) -> R,
    ) -> Result<(KeyReply, Option<KeyEvent<'a>>), String> {
        let read = |reply: Vec<u8>| KeyState::read(&reply).map_err(|why| why.to_string());
        let mut ask = |operation| {
            let mut request = Vec::new();
            self.key.request(policy, operation, &mut request);
            count(KeyAsk { key: self.key.clone(), operation, request })
        };
        let before = read(ask(KeyOperation::Describe).await?)?;
        let Some(operation) = self.word() else {
            return Ok((KeyReply::State(key_report::state(policy, &self.key, &before)), None));
        };
        let after = read(ask(self.operation).await?)?;
        let event = KeyEvent {
            operation,
            rule: &self.asked.rule,
            pk: pk_text(self.key.pk(policy)),
            blocked_until_ms: after.blocked_until.map(key_report::millis),
        };
        let tenant = self.asked.tenant.as_deref();
        let change = key_report::change(policy, &self.key, tenant, &before, &after);
        Ok((KeyReply::Done(change), Some(event)))
    }

    /// What a change is called.
    const fn word(&self) -> Option<&'static str> {
        match self.operation {
            KeyOperation::Describe => None,
            KeyOperation::Reset => Some("reset"),
            KeyOperation::Block(_) => Some("block"),
            KeyOperation::Unblock => Some("unblock"),
        }
    }
}
