//! Tenants: one entry for each, read, written and removed; and all of them in pages.
//!
//! Invariant: a write names the state that it expects, and the store compares. Before an entry is
//! written, it is checked under the policy that this service knows to be in force; a later policy
//! may not have the names in it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde_json::value::RawValue;
use tollgate_core::Timestamp;
use tollgate_policy::{MAX_TENANT_ENTRY, MAX_TENANT_ID};

use crate::admin::step::Step;
use crate::admin::{json_body, precondition};
use crate::api_response::{ApiResponse, JSON};
use crate::entity_tag::{Tags, strong};
use crate::problem::Wrong;
use crate::request_head::RequestHead;
use crate::routes::Operation;
use crate::service::Service;
use crate::store::tenants::{Expect, StoredTenant, TenantCall, TenantReply};

/// Entries in one page: the default, and the maximum.
const ENTRIES: u64 = 100;

type Next = Step<TenantCall, PendingTenantCall>;

/// The call to the store whose reply continues an operation.
#[derive(Debug)]
pub(crate) enum PendingTenantCall {
    /// The entry was requested, for the response.
    Read,
    /// The entry of this tenant was requested, to compare it with a precondition; then it is
    /// written or removed.
    Compared(String, Write),
    /// The write or the removal was requested, with its expected state, which was compared before.
    Done {
        write: Write,
        was_compared: bool,
    },
    Listed,
}

/// The write to an entry.
#[derive(Debug)]
pub(crate) enum Write {
    Put(String),
    Remove,
}

impl Write {
    fn call(&self, id: &str, expect: Expect) -> TenantCall {
        let id = id.to_string();
        match self {
            Self::Put(entry) => TenantCall::Put { id, entry: entry.clone(), expect },
            Self::Remove => TenantCall::Delete { id, expect },
        }
    }
}

/// Begins an operation on tenants.
pub(crate) fn begin(service: &Service<'_>, head: &RequestHead, body: Vec<u8>) -> Next {
    begun(service, head, body).unwrap_or_else(Step::Response)
}

fn begun(service: &Service<'_>, head: &RequestHead, body: Vec<u8>) -> Result<Next, ApiResponse> {
    if head.operation == Operation::ListTenants {
        return list(head);
    }
    let id = id(service, &head.parameter)?;
    let write = match head.operation {
        Operation::PutTenant => Write::Put(entry(service, head.now_ms, body)?),
        Operation::DeleteTenant => Write::Remove,
        _ => return Ok(Step::Ask(TenantCall::Get { id }, PendingTenantCall::Read)),
    };
    precondition::named(head)?;
    let direct = match (&head.if_match, &head.if_none_match, &write) {
        (Some(Tags::Any), None, Write::Put(_)) => Some(Expect::Anything),
        (None, Some(Tags::Any), Write::Put(_)) => Some(Expect::Nothing),
        _ => None,
    };
    Ok(match direct {
        Some(expect) => Step::Ask(
            write.call(&id, expect),
            PendingTenantCall::Done { write, was_compared: false },
        ),
        None => {
            Step::Ask(TenantCall::Get { id: id.clone() }, PendingTenantCall::Compared(id, write))
        }
    })
}

/// Continues with the store's reply.
pub(crate) fn answered(
    service: &Service<'_>,
    head: &RequestHead,
    state: PendingTenantCall,
    reply: TenantReply,
) -> Next {
    let step = match (state, reply) {
        (PendingTenantCall::Read, TenantReply::Entry(found)) => read(head, found),
        (PendingTenantCall::Compared(id, write), TenantReply::Entry(found)) => {
            compared(head, &id, write, found.as_ref())
        }
        (
            PendingTenantCall::Done { write: Write::Put(entry), .. },
            TenantReply::Written { revision, is_new },
        ) => {
            let status = if is_new { 201 } else { 200 };
            let tag = strong(revision, &entry);
            Ok(Step::Response(ApiResponse::new(status, JSON, entry).with("etag", &tag)))
        }
        (PendingTenantCall::Done { .. }, TenantReply::Removed) => {
            Ok(Step::Response(ApiResponse::bodiless(204)))
        }
        (PendingTenantCall::Done { was_compared, .. }, TenantReply::Unexpected(found)) => {
            Err(unexpected(was_compared, found.as_ref()))
        }
        (PendingTenantCall::Done { .. }, TenantReply::Full) => {
            Err(Wrong::StoreFull.answer("there is no room for another tenant; remove some"))
        }
        (PendingTenantCall::Listed, TenantReply::List { entries, more }) => {
            Ok(Step::Response(page(service, &entries, more)))
        }
        _ => Err(Wrong::StoreUnavailable.answer("the store sent an unexpected response")),
    };
    step.unwrap_or_else(Step::Response)
}

fn read(head: &RequestHead, found: Option<StoredTenant>) -> Result<Next, ApiResponse> {
    let found = found.ok_or_else(none)?;
    let tag = strong(found.revision, &found.entry);
    let answer = precondition::unchanged(head, &tag)
        .unwrap_or_else(|| ApiResponse::new(200, JSON, found.entry).with("etag", &tag));
    Ok(Step::Response(answer))
}

/// Writes if the precondition holds for `found`.
fn compared(
    head: &RequestHead,
    id: &str,
    write: Write,
    found: Option<&StoredTenant>,
) -> Result<Next, ApiResponse> {
    // Without it nothing else matters (RFC 9110, 13.2.1).
    if found.is_none() && matches!(write, Write::Remove) {
        return Err(none());
    }
    let tag = found.map(|found| strong(found.revision, &found.entry));
    precondition::holds(head, tag.as_deref())?;
    let expect = found.map_or(Expect::Nothing, |found| Expect::Revisions([found.revision].into()));
    let call = write.call(id, expect);
    Ok(Step::Ask(call, PendingTenantCall::Done { write, was_compared: true }))
}

/// The store found a state other than the expected one.
fn unexpected(was_compared: bool, found: Option<&StoredTenant>) -> ApiResponse {
    let wrong = if was_compared { Wrong::Conflict } else { Wrong::PreconditionFailed };
    let (detail, tag) = match found {
        None => ("there is no such tenant", None),
        Some(_) if was_compared => ("another change was made first; read it again", None),
        Some(found) => ("there is such a tenant", Some(strong(found.revision, &found.entry))),
    };
    let answer = wrong.answer(detail);
    tag.into_iter().fold(answer, |answer, tag| answer.with("etag", &tag))
}

/// The one name of the tenant that `text` spells, if a request can be of it: `SHOP.example` and
/// `shop.example` are one entry, and isolates find it by that.
fn id(service: &Service<'_>, text: &str) -> Result<String, ApiResponse> {
    // A client's library would leave both out of a path.
    let is_named = !matches!(text, "" | "." | "..") && text.len() <= MAX_TENANT_ID;
    let name = match service.policy.and_then(|policy| policy.tenants()) {
        Some(tenants) => tenants.name(text),
        None => Some(text.to_string()),
    };
    if let Some(name) = name.filter(|_| is_named && !text.contains(char::is_control)) {
        return Ok(name);
    }
    let detail =
        format!("no request is of a tenant of this name; use at most {MAX_TENANT_ID} bytes");
    Err(Wrong::NotFound.answer(&detail))
}

/// The entry in a body, if it can be written under the policy in force and has an effect. An entry
/// that expires later stays, and is listed, without an effect.
fn entry(service: &Service<'_>, now_ms: u64, body: Vec<u8>) -> Result<String, ApiResponse> {
    let text = json_body::document(service, body)?;
    if text.len() > MAX_TENANT_ENTRY {
        return Err(Wrong::TooLarge.answer(&format!("send at most {MAX_TENANT_ENTRY} bytes")));
    }
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        return Err(json_body::not_json(&error, &text));
    }
    let read = match service.policy {
        Some(policy) => tollgate_language::tenant_entry_for(policy, text.as_bytes()),
        None => tollgate_language::tenant_entry(text.as_bytes()),
    };
    let entry = read.map_err(|problems| json_body::invalids(&problems))?;
    if entry.expires_at.is_some_and(|at| at <= Timestamp::from_millis(now_ms)) {
        let message = "is past already, so the entry would have no effect; give a time to come, or \
                       remove the entry";
        return Err(json_body::invalid("expires", message.to_string()));
    }
    Ok(text)
}

fn list(head: &RequestHead) -> Result<Next, ApiResponse> {
    let limit = head.query.number("limit", 1..=ENTRIES);
    let limit = limit.map_err(|detail| Wrong::Malformed.answer(&detail))?.unwrap_or(ENTRIES);
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let after = head.query.get("after").filter(|after| !after.is_empty()).map(ToString::to_string);
    Ok(Step::Ask(TenantCall::List { after, limit }, PendingTenantCall::Listed))
}

#[derive(Serialize)]
struct Page<'a> {
    tenants: Vec<Listed<'a>>,
    /// `after` for the next page; `None` on the last.
    next_after: Option<&'a str>,
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    etag: String,
    entry: Option<&'a RawValue>,
    /// Names in it that the policy in force does not have, and that have no effect; absent when
    /// empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_effect: Vec<String>,
}

fn page(service: &Service<'_>, entries: &[StoredTenant], more: bool) -> ApiResponse {
    let listed = |it: &'_ StoredTenant| strong(it.revision, &it.entry);
    let tenants = entries.iter().map(|it| Listed {
        id: &it.id,
        etag: listed(it),
        entry: serde_json::from_str(&it.entry).ok(),
        without_effect: without_effect(service, &it.entry),
    });
    let next_after = entries.last().filter(|_| more).map(|it| it.id.as_str());
    let page = Page { tenants: tenants.collect(), next_after };
    ApiResponse::json(serde_json::to_string(&page).unwrap_or_default())
}

fn without_effect(service: &Service<'_>, entry: &str) -> Vec<String> {
    let (Some(policy), Ok(entry)) =
        (service.policy, tollgate_language::tenant_entry(entry.as_bytes()))
    else {
        return Vec::new();
    };
    tollgate_language::without_effect(policy, &entry).0.iter().map(ToString::to_string).collect()
}

fn none() -> ApiResponse {
    Wrong::NotFound.answer("there is no such tenant")
}
