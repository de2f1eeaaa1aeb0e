//! The units that clients of a rule have used in the periods of a calendar.
//!
//! Invariant: a client is named by its key's value, which the caller knows; nothing lists keys. A
//! request is bounded and well-formed before it is carried out.

use alloc::format;
use alloc::string::ToString;

use tollgate_policy::Problems;

use crate::admin::json_body;
use crate::admin::keys::bounded;
use crate::admin::step::Step;
use crate::api_response::ApiResponse;
use crate::media_type::accepts;
use crate::problem::Wrong;
use crate::request_head::RequestHead;
use crate::store::keys::RuleKey;
use crate::store::usage::{UsageCall, UsageFormat, UsageReply};

type Next = Step<UsageCall, UsageFormat>;

const CSV: &str = "text/csv";

/// Begins a report.
pub(crate) fn begin(head: &RequestHead) -> Next {
    let format = match head.accept.as_deref() {
        accept if accepts(accept, CSV) && !accepts(accept, "application/json") => UsageFormat::Csv,
        _ => UsageFormat::Json,
    };
    match call(head, format) {
        Ok(call) => Step::Ask(call, format),
        Err(answer) => Step::Response(answer),
    }
}

fn call(head: &RequestHead, format: UsageFormat) -> Result<UsageCall, ApiResponse> {
    let rule = head.query.get("rule").unwrap_or_default().to_string();
    let tenant = head.query.get("tenant").map(ToString::to_string);
    let keys: alloc::vec::Vec<_> = head.query.all("key").map(ToString::to_string).collect();
    // Each value for itself: how many there are is bounded by the length of the query.
    let each = keys.iter().map(|key| [key.clone()].into()).chain([[].into()]);
    for key in each {
        let key =
            RuleKey { rule: rule.clone(), key, tenant: tenant.clone(), is_of_no_tenant: false };
        bounded(&key).map_err(|problem| {
            let detail = format!("{}: {}", problem.path, problem.message);
            Wrong::Malformed.with_errors(&detail, &Problems([problem].into()))
        })?;
    }
    Ok(UsageCall { rule, keys, tenant, format })
}

/// Continues with the reply.
pub(crate) fn answered(format: UsageFormat, reply: UsageReply) -> Next {
    Step::Response(match (reply, format) {
        (UsageReply::Report(body), UsageFormat::Json) => ApiResponse::json(body),
        (UsageReply::Report(body), UsageFormat::Csv) => {
            ApiResponse::new(200, "text/csv; charset=utf-8; header=present", body)
        }
        (UsageReply::NoRule, _) => {
            Wrong::NotFound.answer("the policy has no rule of this name that counts")
        }
        (UsageReply::Wrong { path, why }, _) => json_body::invalid(&path, why),
    })
}
