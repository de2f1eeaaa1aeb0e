//! The operators' changes of keys, page by page.
//!
//! Invariant: of a key only its hash is returned.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use tollgate_policy::pk_text;

use crate::access::Access;
use crate::admin::step::Step;
use crate::api_response::ApiResponse;
use crate::problem::Wrong;
use crate::request_head::RequestHead;
use crate::store::key_history::{KeyAct, KeyRow};
use crate::store::policy::{PolicyCall, PolicyReply};

/// Rows in one response: the default, and the maximum.
const ROWS: u64 = 20;
const MAX_ROWS: u64 = 100;

type Next = Step<PolicyCall, ()>;

/// Asks for a page.
pub(crate) fn begin(head: &RequestHead) -> Next {
    let number = |name, range| {
        head.query.number(name, range).map_err(|detail| Wrong::Malformed.answer(&detail))
    };
    let (before, limit) = match (number("before", 1..=u64::MAX), number("limit", 1..=MAX_ROWS)) {
        (Ok(before), Ok(limit)) => (before, limit.unwrap_or(ROWS)),
        (Err(answer), _) | (_, Err(answer)) => return Step::Response(answer),
    };
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Step::Ask(PolicyCall::KeyHistory { before, limit }, ())
}

/// The page in the store's reply.
pub(crate) fn answered(reply: &PolicyReply) -> Next {
    let PolicyReply::KeyHistory { rows, more } = reply else {
        let answer = Wrong::StoreUnavailable.answer("the store sent an unexpected response");
        return Step::Response(answer);
    };
    let next_before = rows.last().filter(|_| *more).map(|(number, _)| *number);
    let page = Page { changes: rows.iter().map(HistoryEntry::new).collect(), next_before };
    Step::Response(ApiResponse::json(serde_json::to_string(&page).unwrap_or_default()))
}

#[derive(Serialize)]
struct Page<'a> {
    changes: Vec<HistoryEntry<'a>>,
    /// `before` for the next page; `None` on the last.
    next_before: Option<u64>,
}

#[derive(Serialize)]
struct HistoryEntry<'a> {
    number: u64,
    at_ms: u64,
    act: KeyAct,
    rule: &'a str,
    tenant: Option<&'a str>,
    pk: String,
    who: Option<&'a str>,
    token: Option<Access>,
    before: &'a str,
    after: &'a str,
}

impl<'a> HistoryEntry<'a> {
    fn new((number, row): &'a (u64, KeyRow)) -> Self {
        let (change, actor) = (&row.change, row.actor.as_ref());
        Self {
            number: *number,
            at_ms: row.at_ms,
            act: row.act,
            rule: &change.rule,
            tenant: change.tenant.as_deref(),
            pk: pk_text(change.pk),
            who: actor.and_then(|actor| actor.name.as_deref()),
            token: actor.map(|actor| actor.token),
            before: &change.before,
            after: &change.after,
        }
    }
}
