//! The policy: read, written, given back, rolled back; its history.
//!
//! Invariant: a change names the version that it was made from, and the store compares: of several
//! changes to one version exactly one succeeds. Nothing is changed by a document that does not
//! compile, nor by `dry_run`. Documents in responses are masked.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use crate::access::Access;
use crate::admin::policy_documents::{CheckedDocument, InForce};
use crate::admin::step::Step;
use crate::admin::{json_body, precondition};
use crate::api_response::{ApiResponse, JSON};
use crate::mask::discreet;
use crate::problem::Wrong;
use crate::query::digits;
use crate::request_head::RequestHead;
use crate::routes::Operation;
use crate::service::Service;
use crate::store::policy::{
    Change, Current, Deployed, HistoryRow, Kind, NewPolicy, PolicyCall, PolicyReply, Row, Source,
    Summary,
};

/// Rows of the history in one response: the default, and the maximum.
const ROWS: u64 = 20;
const MAX_ROWS: u64 = 100;

/// The version in a body that rolls back.
const TO: &str = "to";

type Next = Step<PolicyCall, PendingPolicyCall>;

/// The call to the store whose reply continues an operation.
#[derive(Debug)]
pub(crate) enum PendingPolicyCall {
    /// The policy in force was requested.
    Current {
        /// The store has the text of the deployed file, or it was sent to the store.
        has_text: bool,
        wants: ReadPurpose,
    },
    /// The version to roll back to was requested.
    Target {
        current: Current,
        to: u64,
    },
    /// A change was requested.
    Change(Box<CheckedDocument>),
    History,
    Version,
}

/// The purpose of reading the policy in force.
#[derive(Debug)]
pub(crate) enum ReadPurpose {
    Read,
    Put(String),
    Delete,
    RollBack(u64),
}

/// Begins an operation on the policy.
pub(crate) fn begin(service: &Service<'_>, head: &RequestHead, body: Vec<u8>) -> Next {
    begun(service, head, body).unwrap_or_else(Step::Response)
}

fn begun(service: &Service<'_>, head: &RequestHead, body: Vec<u8>) -> Result<Next, ApiResponse> {
    let wants = match head.operation {
        Operation::ReadHistory => return history(head),
        Operation::ReadVersion => {
            // A name that is not a number names no version.
            let number = digits(&head.parameter).ok_or_else(no_version)?;
            return Ok(Step::Ask(PolicyCall::Version { number }, PendingPolicyCall::Version));
        }
        Operation::PutPolicy => ReadPurpose::Put(json_body::document(service, body)?),
        Operation::DeletePolicy => ReadPurpose::Delete,
        Operation::RollBack => ReadPurpose::RollBack(target(body)?),
        _ => ReadPurpose::Read,
    };
    if !matches!(wants, ReadPurpose::Read) {
        is_dry(head)?;
        precondition::named(head)?;
    }
    Ok(read(service, head, wants, None))
}

/// Continues with the store's reply.
pub(crate) fn answered(
    service: &Service<'_>,
    head: &RequestHead,
    state: PendingPolicyCall,
    reply: PolicyReply,
) -> Next {
    let step = match (state, reply) {
        (PendingPolicyCall::Current { has_text: false, wants }, PolicyReply::SendText) => {
            Ok(read(service, head, wants, Some(service.deployed.text.to_string())))
        }
        (PendingPolicyCall::Current { wants, .. }, PolicyReply::Current(current)) => {
            with_current(service, head, wants, current)
        }
        (PendingPolicyCall::Target { current, to }, PolicyReply::Version(target)) => {
            rolled_back(service, head, current, to, target)
        }
        (PendingPolicyCall::Change(ready), PolicyReply::Changed { version }) => {
            Ok(Step::Response(ready.answer(version)))
        }
        (PendingPolicyCall::Change(_), PolicyReply::Conflict { version }) => {
            let detail = format!("version {version} was put in force meanwhile; read it again");
            Err(Wrong::Conflict.answer(&detail))
        }
        (PendingPolicyCall::History, PolicyReply::History { rows, more }) => {
            Ok(Step::Response(page(&rows, more)))
        }
        (PendingPolicyCall::Version, PolicyReply::Version(found)) => {
            version(service, head, found).map(Step::Response)
        }
        _ => Err(Wrong::StoreUnavailable.answer("the store sent an unexpected response")),
    };
    step.unwrap_or_else(Step::Response)
}

/// Asks for the policy in force.
fn read(
    service: &Service<'_>,
    head: &RequestHead,
    wants: ReadPurpose,
    text: Option<String>,
) -> Next {
    let has_text = text.is_some();
    let deployed = Deployed { fingerprint: service.deployed.fingerprint, text };
    let call = PolicyCall::Read { deployed, known: None, seen: None, now_ms: head.now_ms };
    Step::Ask(call, PendingPolicyCall::Current { has_text, wants })
}

/// Continues the operation with the policy in force.
fn with_current(
    service: &Service<'_>,
    head: &RequestHead,
    wants: ReadPurpose,
    current: Current,
) -> Result<Next, ApiResponse> {
    let in_force = InForce::new(service, &current)?;
    if matches!(wants, ReadPurpose::Read) {
        return shown(service, head, &in_force).map(Step::Response);
    }
    precondition::holds(head, Some(&in_force.tag()))?;
    match wants {
        ReadPurpose::Put(text) => {
            let ready = CheckedDocument::sent(service, &in_force, &text)?;
            let is_same = in_force.source == Source::Written && ready.is_text(in_force.text);
            if is_same && !is_dry(head)? {
                return Ok(Step::Response(ready.answer(in_force.version)));
            }
            put(service, head, &in_force, ready, Kind::Put)
        }
        ReadPurpose::RollBack(to) if to == in_force.version => {
            Err(Wrong::Conflict.answer(&format!("version {to} is in force")))
        }
        ReadPurpose::RollBack(to) => Ok(Step::Ask(
            PolicyCall::Version { number: to },
            PendingPolicyCall::Target { current, to },
        )),
        ReadPurpose::Delete if in_force.source == Source::Deployed => {
            Err(Wrong::Conflict.answer("the deployed file is in force"))
        }
        ReadPurpose::Delete | ReadPurpose::Read => {
            let ready =
                CheckedDocument::new(service, &in_force, service.deployed.text.to_string())?;
            put(service, head, &in_force, ready, Kind::Delete)
        }
    }
}

/// Puts the text of an earlier version in force.
fn rolled_back(
    service: &Service<'_>,
    head: &RequestHead,
    current: Current,
    to: u64,
    target: Option<Current>,
) -> Result<Next, ApiResponse> {
    let target = target.ok_or_else(no_version)?;
    let text = InForce::kept(&target)?.text.to_string();
    let in_force = InForce::new(service, &current)?;
    let ready = CheckedDocument::new(service, &in_force, text)?;
    put(service, head, &in_force, ready, Kind::Rollback { to })
}

/// Asks the store to put `ready` in force; a dry run gets its response at once.
fn put(
    service: &Service<'_>,
    head: &RequestHead,
    in_force: &InForce<'_>,
    mut ready: CheckedDocument,
    kind: Kind,
) -> Result<Next, ApiResponse> {
    if is_dry(head)? {
        return Ok(Step::Response(ready.dry_answer(in_force)));
    }
    let row = Row { at_ms: head.now_ms, kind, actor: head.actor.clone(), summary: ready.summary() };
    let (text, fingerprint) = (ready.take_text(), service.deployed.fingerprint);
    let policy = match kind {
        Kind::Delete => NewPolicy::Deployed(Deployed { fingerprint, text: Some(text) }),
        Kind::Put | Kind::Rollback { .. } | Kind::Deploy => NewPolicy::Written(text),
    };
    let change = Change { expects: in_force.version, deployed: fingerprint, policy, row };
    Ok(Step::Ask(PolicyCall::Change(change), PendingPolicyCall::Change(Box::new(ready))))
}

/// The document in force.
fn shown(
    service: &Service<'_>,
    head: &RequestHead,
    in_force: &InForce<'_>,
) -> Result<ApiResponse, ApiResponse> {
    readable(service, in_force)?;
    document(head, in_force).ok_or_else(unreadable)
}

/// A version of the document.
fn version(
    service: &Service<'_>,
    head: &RequestHead,
    found: Option<Current>,
) -> Result<ApiResponse, ApiResponse> {
    let found = found.ok_or_else(no_version)?;
    shown(service, head, &InForce::kept(&found)?)
}

/// Rejects a file that is not a policy: a secret may be anywhere in it. A document that was written
/// at run time has compiled.
fn readable(service: &Service<'_>, version: &InForce<'_>) -> Result<(), ApiResponse> {
    if version.source == Source::Deployed
        && let Err(problems) = tollgate_language::compile(version.text, service.surface)
    {
        let detail = "the deployed file is not a policy; put another; see errors";
        let answer = Wrong::Unreadable.with_errors(detail, &discreet(problems));
        return Err(answer.with("etag", &version.tag()));
    }
    Ok(())
}

fn unreadable() -> ApiResponse {
    Wrong::Unreadable.answer("the text of this version is not a document")
}

fn document(head: &RequestHead, version: &InForce<'_>) -> Option<ApiResponse> {
    let (shown, tag) = (version.shown()?, version.tag());
    if let Some(unchanged) = precondition::unchanged(head, &tag) {
        return Some(unchanged);
    }
    let source = version.source.word();
    let answer = ApiResponse::new(200, JSON, shown).with("etag", &tag);
    let number = version.version.to_string();
    Some(answer.with("tollgate-policy-version", &number).with("tollgate-policy-source", source))
}

/// Asks for a page of the history.
fn history(head: &RequestHead) -> Result<Next, ApiResponse> {
    let number = |name, range| {
        head.query.number(name, range).map_err(|detail| Wrong::Malformed.answer(&detail))
    };
    let before = number("before", 1..=u64::MAX)?;
    let limit = number("limit", 1..=MAX_ROWS)?.unwrap_or(ROWS);
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Ok(Step::Ask(PolicyCall::History { before, limit }, PendingPolicyCall::History))
}

#[derive(Serialize)]
struct Page<'a> {
    versions: Vec<HistoryEntry<'a>>,
    /// `before` for the next page; `None` on the last.
    next_before: Option<u64>,
}

/// A row of the history in a response.
#[derive(Serialize)]
struct HistoryEntry<'a> {
    version: u64,
    previous: u64,
    at_ms: u64,
    kind: &'static str,
    /// The version that was rolled back to.
    to: Option<u64>,
    who: Option<&'a str>,
    token: Option<Access>,
    source: Source,
    bytes: u64,
    is_kept: bool,
    summary: &'a Summary,
}

impl<'a> HistoryEntry<'a> {
    fn new(it: &'a HistoryRow) -> Self {
        let (kind, to) = match it.row.kind {
            Kind::Deploy => ("deploy", None),
            Kind::Put => ("put", None),
            Kind::Rollback { to } => ("rollback", Some(to)),
            Kind::Delete => ("delete", None),
        };
        let (version, previous, at_ms, actor) =
            (it.version, it.before, it.row.at_ms, it.row.actor.as_ref());
        let who = actor.and_then(|actor| actor.name.as_deref());
        let (token, source, bytes) = (actor.map(|actor| actor.token), it.source, it.bytes);
        let (is_kept, summary) = (it.is_kept, &it.row.summary);
        Self { version, previous, at_ms, kind, to, who, token, source, bytes, is_kept, summary }
    }
}

fn page(rows: &[HistoryRow], more: bool) -> ApiResponse {
    let next_before = rows.last().filter(|_| more).map(|row| row.version);
    let page = Page { versions: rows.iter().map(HistoryEntry::new).collect(), next_before };
    ApiResponse::json(serde_json::to_string(&page).unwrap_or_default())
}

/// The version to roll back to in a body.
fn target(body: Vec<u8>) -> Result<u64, ApiResponse> {
    let text = json_body::text(body)?;
    let members = json_body::members(&text, &[TO])?;
    let to = members.get(TO).and_then(digits).filter(|to| *to > 0);
    to.ok_or_else(|| json_body::invalid(TO, "is a version of the history, such as 7".to_string()))
}

fn is_dry(head: &RequestHead) -> Result<bool, ApiResponse> {
    head.query.flag("dry_run").map_err(|detail| Wrong::Malformed.answer(&detail))
}

fn no_version() -> ApiResponse {
    Wrong::NotFound.answer("there is no such version, or its text is no longer kept")
}
