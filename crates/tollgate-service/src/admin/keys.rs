//! One client of a rule: explained, looked at, reset, blocked.
//!
//! Invariant: a key is named by its value, which the caller knows; nothing lists keys, and none is
//! repeated in an answer. What is asked is bounded and well-formed before anybody carries it out.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_policy::{DescribedRequest, MAX_TENANT_ID, Problem, Problems};

use crate::admin::json_body;
use crate::admin::step::Step;
use crate::answer::Answer;
use crate::asked::Asked;
use crate::document::{Members, items};
use crate::problem::Wrong;
use crate::query::digits;
use crate::routes::Operation;
use crate::store::StoreCall;
use crate::store::key_history::{KeyAct, KeyRow};
use crate::store::keys::{KeyCall, KeyReply, RuleKey};
use crate::store::policy::PolicyCall;

/// The most parts of a key, and the most bytes of one: as many as a policy may name, and what a
/// request may have.
const MAX_PARTS: usize = 16;
const MAX_PART: usize = 1024;

/// The longest time that a key is blocked for: a year of 366 days.
const MAX_BLOCK_MS: u64 = 366 * 24 * 60 * 60 * 1000;

type Next = Step<Call, State>;

/// What a store is asked.
pub(crate) enum Call {
    /// Something of a key.
    Key(KeyCall),
    /// To take note of what was done to it.
    Note(KeyRow),
}

/// Where an operation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The key was asked for.
    Asked,
    /// It is done, and the history is to have it.
    Noting,
}

impl Call {
    /// As whoever connects the service carries it out.
    pub(crate) fn of_store(self) -> StoreCall {
        match self {
            Self::Key(call) => StoreCall::Keys(call),
            Self::Note(row) => StoreCall::Policy(PolicyCall::NoteKey(row)),
        }
    }
}

/// Begins an operation on a key.
pub(crate) fn begin(asked: &Asked, body: Vec<u8>) -> Next {
    match call(asked, body) {
        Ok(call) => Step::Ask(Call::Key(call), State::Asked),
        Err(answer) => Step::Answer(answer),
    }
}

fn call(asked: &Asked, body: Vec<u8>) -> Result<KeyCall, Answer> {
    Ok(match asked.operation {
        Operation::Explain => KeyCall::Explain { request: request(body)? },
        Operation::ResetKey => KeyCall::Reset(named(&json_body::text(body)?, &[])?.0),
        Operation::UnblockKey => KeyCall::Unblock(named(&json_body::text(body)?, &[])?.0),
        Operation::BlockKey => {
            let text = json_body::text(body)?;
            let (key, members) = named(&text, &["until_ms"])?;
            KeyCall::Block { key, until_ms: until(asked, &members)? }
        }
        _ => {
            let parts = asked.query.all("key").map(ToString::to_string).collect();
            let rule = asked.query.get("rule").unwrap_or_default().to_string();
            let tenant = asked.query.get("tenant").map(ToString::to_string);
            let key = RuleKey { rule, key: parts, tenant, is_of_no_tenant: false };
            bounded(&key).map_err(|problem| {
                let detail = format!("{}: {}", problem.path, problem.message);
                Wrong::Malformed.with_errors(&detail, &Problems([problem].into()))
            })?;
            KeyCall::State(key)
        }
    })
}

/// Goes on with what was answered.
pub(crate) fn answered(asked: &Asked, reply: KeyReply) -> Next {
    Step::Answer(match reply {
        KeyReply::Explained(body) | KeyReply::State(body) => Answer::json(body),
        KeyReply::Done(change) => {
            let act = match asked.operation {
                Operation::BlockKey => KeyAct::Block,
                Operation::UnblockKey => KeyAct::Unblock,
                _ => KeyAct::Reset,
            };
            let row = KeyRow { at_ms: asked.now_ms, act, actor: asked.actor.clone(), change };
            return Step::Ask(Call::Note(row), State::Noting);
        }
        KeyReply::NoRule => Wrong::NotFound.answer("the policy has no rule of this name"),
        KeyReply::NoKey { path, why } => json_body::invalid(&path, why),
    })
}

/// The answer to what was done and stands in the history. What does not stand there is answered
/// with 503: it is done all the same, and may be repeated until it does.
pub(crate) fn noted() -> Answer {
    Answer::bodiless(204)
}

/// The request that a body describes.
fn request(body: Vec<u8>) -> Result<String, Answer> {
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

/// The key that a body names, and all of its members: `others` beside `rule` and `key`.
fn named<'t>(text: &'t str, others: &[&str]) -> Result<(RuleKey, Members<'t>), Answer> {
    let members = json_body::members(text, &[&["rule", "key", TENANT], others].concat())?;
    let parts = members.get("key").and_then(items);
    let texts = parts.map(|parts| parts.into_iter().map(|part| serde_json::from_str(part).ok()));
    // What is not a list of texts must not become the key without parts, which is everybody's.
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

/// Whose own quotas are meant.
const TENANT: &str = "tenant";

const NO_KEY: &str = "is a list of texts, one for each part of the rule's key";

/// Refuses what no rule can have.
fn bounded(key: &RuleKey) -> Result<(), Problem> {
    if key.rule.is_empty() {
        return Err(Problem::new("rule", "is the name of a rule".to_string()));
    }
    // What is no text, or an empty one, must not become what is counted of nobody's.
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

/// Until when a body blocks.
fn until(asked: &Asked, members: &Members<'_>) -> Result<u64, Answer> {
    let given = members.get("until_ms").and_then(digits);
    let latest = asked.now_ms.saturating_add(MAX_BLOCK_MS);
    let until = given.filter(|until| (asked.now_ms..=latest).contains(until));
    let message = "is a time within a year from now, in milliseconds since 1970";
    until.ok_or_else(|| json_body::invalid("until_ms", message.to_string()))
}
