//! One client of a rule: explain, look, reset, block.
//!
//! Invariant: a key is named by its value, which the caller knows; nothing lists keys, and no
//! response repeats one. A request is bounded and well-formed before it is carried out.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_language::DescribedRequest;
use tollgate_policy::{MAX_TENANT_ID, Problem, Problems};

use crate::admin::json_body;
use crate::admin::step::Step;
use crate::api_response::ApiResponse;
use crate::document::{Members, items};
use crate::problem::Wrong;
use crate::query::digits;
use crate::request_head::RequestHead;
use crate::routes::Operation;
use crate::store::StoreCall;
use crate::store::key_history::{KeyAct, KeyRow};
use crate::store::keys::{KeyCall, KeyReply, RuleKey};
use crate::store::policy::PolicyCall;

/// The most parts of a key, and the most bytes of one: the limits of a policy, and of a request.
const MAX_PARTS: usize = 16;
const MAX_PART: usize = 1024;

/// The longest time that a key is blocked for: a year of 366 days.
const MAX_BLOCK_MS: u64 = 366 * 24 * 60 * 60 * 1000;

type Next = Step<Call, PendingKeyCall>;

/// A call to the store.
pub(crate) enum Call {
    /// An operation on a key.
    Key(KeyCall),
    /// To note an operation on a key in the history.
    Note(KeyRow),
}

/// The call to the store whose reply continues an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingKeyCall {
    /// The operation on the key was requested.
    Key,
    /// The operation is done, and its entry in the history was requested.
    Note,
}

impl Call {
    /// The store call that the connecting service carries out.
    pub(crate) fn of_store(self) -> StoreCall {
        match self {
            Self::Key(call) => StoreCall::Keys(call),
            Self::Note(row) => StoreCall::Policy(PolicyCall::NoteKey(row)),
        }
    }
}

/// Begins an operation on a key.
pub(crate) fn begin(head: &RequestHead, body: Vec<u8>) -> Next {
    match call(head, body) {
        Ok(call) => Step::Ask(Call::Key(call), PendingKeyCall::Key),
        Err(answer) => Step::Response(answer),
    }
}

fn call(head: &RequestHead, body: Vec<u8>) -> Result<KeyCall, ApiResponse> {
    Ok(match head.operation {
        Operation::Explain => KeyCall::Explain { request: request(body)? },
        Operation::ResetKey => KeyCall::Reset(named(&json_body::text(body)?, &[])?.0),
        Operation::UnblockKey => KeyCall::Unblock(named(&json_body::text(body)?, &[])?.0),
        Operation::BlockKey => {
            let text = json_body::text(body)?;
            let (key, members) = named(&text, &["until_ms"])?;
            KeyCall::Block { key, until_ms: until(head, &members)? }
        }
        _ => {
            let parts = head.query.all("key").map(ToString::to_string).collect();
            let rule = head.query.get("rule").unwrap_or_default().to_string();
            let tenant = head.query.get("tenant").map(ToString::to_string);
            let key = RuleKey { rule, key: parts, tenant, is_of_no_tenant: false };
            bounded(&key).map_err(|problem| {
                let detail = format!("{}: {}", problem.path, problem.message);
                Wrong::Malformed.with_errors(&detail, &Problems([problem].into()))
            })?;
            KeyCall::State(key)
        }
    })
}

/// Continues with the reply.
pub(crate) fn answered(head: &RequestHead, reply: KeyReply) -> Next {
    Step::Response(match reply {
        KeyReply::Explained(body) | KeyReply::State(body) => ApiResponse::json(body),
        KeyReply::Done(change) => {
            let act = match head.operation {
                Operation::BlockKey => KeyAct::Block,
                Operation::UnblockKey => KeyAct::Unblock,
                _ => KeyAct::Reset,
            };
            let row = KeyRow { at_ms: head.now_ms, act, actor: head.actor.clone(), change };
            return Step::Ask(Call::Note(row), PendingKeyCall::Note);
        }
        KeyReply::NoRule => {
            Wrong::NotFound.answer("the policy has no rule of this name that counts")
        }
        KeyReply::NoKey { path, why } => json_body::invalid(&path, why),
    })
}

/// The response to an operation that is noted in the history. An operation that could not be noted
/// gets 503: it is done all the same, and may be repeated until it is noted.
pub(crate) fn noted() -> ApiResponse {
    ApiResponse::bodiless(204)
}

/// The request in a body.
fn request(body: Vec<u8>) -> Result<String, ApiResponse> {
    let text = json_body::text(body)?;
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        return Err(Wrong::Malformed.answer(&format!("the body is not JSON: {error}")));
    }
    let described = DescribedRequest::parse(text.as_bytes());
    let described = described.map_err(|problems| json_body::invalids(&problems))?;
    if described.response_status().is_some() {
        let message = "is of a response; leave it out".to_string();
        return Err(json_body::invalid("response_status", message));
    }
    Ok(text)
}

/// The key in a body, and all of its members: `others` in addition to `rule` and `key`.
fn named<'t>(text: &'t str, others: &[&str]) -> Result<(RuleKey, Members<'t>), ApiResponse> {
    let members = json_body::members(text, &[&["rule", "key", TENANT], others].concat())?;
    let parts = members.get("key").and_then(items);
    let texts = parts.map(|parts| parts.into_iter().map(|part| serde_json::from_str(part).ok()));
    // A value that is not a list of texts must not become the key without parts, which all clients
    // share.
    let Some(key) = texts.and_then(|texts| texts.collect::<Option<Vec<String>>>()) else {
        return Err(json_body::invalid("key", NO_KEY.to_string()));
    };
    let is_of_no_tenant = members.get(TENANT) == Some("null");
    let tenant = members.get(TENANT).filter(|_| !is_of_no_tenant);
    let tenant = tenant.map(|_| members.text(TENANT).unwrap_or_default());
    let rule = members.text("rule").unwrap_or_default();
    let key = RuleKey { rule, key, tenant, is_of_no_tenant };
    match bounded(&key) {
        Ok(()) => Ok((key, members)),
        Err(problem) => Err(json_body::invalids(&Problems([problem].into()))),
    }
}

/// The member that names the tenant with quotas of its own.
const TENANT: &str = "tenant";

const NO_KEY: &str = "is a list of texts, one for each part of the rule's key";

/// Rejects a key that no rule can have.
pub(crate) fn bounded(key: &RuleKey) -> Result<(), Problem> {
    if key.rule.is_empty() {
        return Err(Problem::new("rule", "is the name of a rule".to_string()));
    }
    // A value that is not a text, or an empty one, must not select the counts without a tenant.
    let is_tenant = |name: &String| !name.is_empty() && name.len() <= MAX_TENANT_ID;
    if key.tenant.as_ref().is_some_and(|name| !is_tenant(name)) {
        let message = format!("is the name of a tenant, of at most {MAX_TENANT_ID} bytes");
        return Err(Problem::new(TENANT, message));
    }
    let is_bounded =
        key.key.len() <= MAX_PARTS && key.key.iter().all(|part| part.len() <= MAX_PART);
    if is_bounded {
        return Ok(());
    }
    let message = format!("has at most {MAX_PARTS} parts of at most {MAX_PART} bytes, all texts");
    Err(Problem::new("key", message))
}

/// The end of the block in a body.
fn until(head: &RequestHead, members: &Members<'_>) -> Result<u64, ApiResponse> {
    let given = members.get("until_ms").and_then(digits);
    let latest = head.now_ms.saturating_add(MAX_BLOCK_MS);
    let until = given.filter(|until| (head.now_ms..=latest).contains(until));
    let message = "is a time within a year from now, in milliseconds since 1970";
    until.ok_or_else(|| json_body::invalid("until_ms", message.to_string()))
}
