//! The head of an allowed request: the parts that are needed later.
//!
//! Invariant: a value of this type comes from an allowed caller, and everything in it is bounded
//! and decoded.

use alloc::format;
use alloc::string::String;

use tollgate_language::MAX_DOCUMENT;

use crate::access::{Access, Actor, Tokens};
use crate::api_response::ApiResponse;
use crate::check::MAX_BODY;
use crate::entity_tag::Tags;
use crate::media_type::is_media_type;
use crate::problem::Wrong;
use crate::query::{MAX_TARGET, Query};
use crate::routes::{Operation, Permission, Route, find};
use crate::service::Call;

/// The longest field that is read: 4 KiB.
const MAX_FIELD: usize = 4096;

/// The longest name of the author of a change, in characters.
const MAX_ACTOR: usize = 128;

/// The head of an allowed request.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) operation: Operation,
    /// The parameter in the path.
    pub(crate) parameter: String,
    pub(crate) query: Query,
    pub(crate) actor: Option<Actor>,
    pub(crate) now_ms: u64,
    pub(crate) if_match: Option<Tags>,
    pub(crate) if_none_match: Option<Tags>,
    /// The accepted forms of metrics and of reports.
    pub(crate) accept: Option<String>,
    pub(crate) is_head: bool,
    /// It needs the right to write.
    pub(crate) is_write: bool,
}

impl RequestHead {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// The response to a request that is not allowed.
    pub(crate) fn read(
        tokens: &Tokens,
        actor_header: Option<&str>,
        call: &Call<'_>,
    ) -> Result<Self, ApiResponse> {
        if call.target.len() > MAX_TARGET {
            let detail = format!("use at most {MAX_TARGET} bytes of path and query");
            return Err(Wrong::UriTooLong.answer(&detail));
        }
        let (path, query) = call.target.split_once('?').unwrap_or((call.target, ""));
        let found = find(path)
            .map_err(|()| Wrong::Malformed.answer("the path is not percent-encoded UTF-8"))?;
        let (route, parameter) = found.ok_or_else(|| Wrong::NotFound.answer("nothing is here"))?;
        is_on(tokens, route)?;
        let Some(method) = route.method(call.method) else {
            let allow = route.allow();
            let detail = format!("use {allow}");
            return Err(Wrong::MethodNotAllowed.answer(&detail).with("allow", &allow));
        };
        let access = access(tokens, method.right, call)?;
        if body_limit(method.operation).is_some() {
            is_json(call)?;
        }
        let (known, repeated) = parameters(method.operation);
        let query = Query::parse(query, known, repeated);
        let actor = access.map(|token| Actor { name: actor_name(actor_header, call), token });
        Ok(Self {
            operation: method.operation,
            parameter,
            query: query.map_err(|detail| Wrong::Malformed.answer(&detail))?,
            actor,
            now_ms: call.now_ms,
            if_match: tags(call, "if-match")?,
            if_none_match: tags(call, "if-none-match")?,
            accept: (call.field)("accept").filter(|accept| accept.len() <= MAX_FIELD),
            is_head: call.method == "HEAD",
            is_write: method.right == Permission::Write,
        })
    }
}

/// The parameters that a query may have: those that may occur once, and those that may occur any
/// number of times.
const fn parameters(operation: Operation) -> (&'static [&'static str], &'static [&'static str]) {
    match operation {
        Operation::PutPolicy | Operation::DeletePolicy | Operation::RollBack => (&["dry_run"], &[]),
        Operation::ReadHistory | Operation::ReadKeyHistory => (&["before", "limit"], &[]),
        Operation::ListTenants => (&["after", "limit"], &[]),
        Operation::ReadKey | Operation::ReadUsage => (&["rule", "tenant"], &["key"]),
        Operation::ReadPolicy
        | Operation::ReadVersion
        | Operation::ReadTenant
        | Operation::PutTenant
        | Operation::DeleteTenant
        | Operation::Explain
        | Operation::ResetKey
        | Operation::BlockKey
        | Operation::UnblockKey
        | Operation::ReadMetrics
        | Operation::ReadOpenApi => (&[], &[]),
    }
}

/// The longest body, in bytes, of an operation with a body.
pub(crate) const fn body_limit(operation: Operation) -> Option<usize> {
    match operation {
        Operation::PutPolicy => Some(MAX_DOCUMENT),
        Operation::RollBack
        | Operation::PutTenant
        | Operation::Explain
        | Operation::ResetKey
        | Operation::BlockKey
        | Operation::UnblockKey => Some(MAX_BODY),
        Operation::ReadPolicy
        | Operation::DeletePolicy
        | Operation::ReadHistory
        | Operation::ReadVersion
        | Operation::ListTenants
        | Operation::ReadTenant
        | Operation::DeleteTenant
        | Operation::ReadKey
        | Operation::ReadKeyHistory
        | Operation::ReadUsage
        | Operation::ReadMetrics
        | Operation::ReadOpenApi => None,
    }
}

/// Rejects a body whose content type is not JSON, as a form of another site would send it.
fn is_json(call: &Call<'_>) -> Result<(), ApiResponse> {
    let value = field(call, "content-type")?.unwrap_or_default();
    if is_media_type(&value, "application/json") {
        return Ok(());
    }
    Err(Wrong::UnsupportedType.answer("send \"content-type: application/json\""))
}

/// Rejects an operation that has no secret.
fn is_on(tokens: &Tokens, route: &Route) -> Result<(), ApiResponse> {
    let is_metrics = route.methods.iter().any(|method| method.right == Permission::Metrics);
    if tokens.admin.is_some() || (is_metrics && tokens.metrics.is_some()) {
        return Ok(());
    }
    let secret = if is_metrics { "METRICS_TOKEN" } else { "ADMIN_TOKEN" };
    Err(Wrong::NotFound.answer(&format!("this is off: it needs the secret {secret}")))
}

/// The access of a request's token, if the operation needs one.
fn access(
    tokens: &Tokens,
    right: Permission,
    call: &Call<'_>,
) -> Result<Option<Access>, ApiResponse> {
    if right == Permission::Public {
        return Ok(None);
    }
    let authorization = field(call, "authorization")?;
    let Some(access) = tokens.access(authorization.as_deref()) else {
        let challenge = match authorization {
            None => "Bearer",
            Some(_) => "Bearer error=\"invalid_token\"", // RFC 6750, 3.1
        };
        let detail = "send \"authorization: Bearer\" with a token of this service";
        return Err(Wrong::Unauthorized.answer(detail).with("www-authenticate", challenge));
    };
    let is_allowed = match right {
        Permission::Public => true,
        Permission::Metrics => access != Access::Follow,
        Permission::Follow => access != Access::Metrics,
        Permission::Read => matches!(access, Access::Admin | Access::Read),
        Permission::Write => access == Access::Admin,
    };
    if is_allowed {
        return Ok(Some(access));
    }
    let detail = match (right, access) {
        (Permission::Write, _) => "this token may not write; use ADMIN_TOKEN",
        (_, Access::Follow) => {
            "this token may read the policy in force only; use READ_TOKEN or ADMIN_TOKEN"
        }
        (_, Access::Metrics | Access::Read | Access::Admin) => {
            "this token may read metrics only; use READ_TOKEN or ADMIN_TOKEN"
        }
    };
    let challenge = "Bearer error=\"insufficient_scope\"";
    Err(Wrong::Forbidden.answer(detail).with("www-authenticate", challenge))
}

/// The tags in the field `name`.
fn tags(call: &Call<'_>, name: &str) -> Result<Option<Tags>, ApiResponse> {
    let Some(value) = field(call, name)? else { return Ok(None) };
    let wrong = || {
        let detail = format!(
            "{name} is not a list of entity tags; use one such as \"1-0123\", with its quotes"
        );
        Wrong::Malformed.answer(&detail)
    };
    Tags::parse(&value).map(Some).ok_or_else(wrong)
}

/// The value of the field `name`.
pub(crate) fn field(call: &Call<'_>, name: &str) -> Result<Option<String>, ApiResponse> {
    let value = (call.field)(name);
    if value.as_ref().is_some_and(|value| value.len() > MAX_FIELD) {
        let detail = format!("{name} has at most {MAX_FIELD} bytes");
        return Err(Wrong::FieldTooLarge.answer(&detail));
    }
    Ok(value)
}

/// The author of a change, in one line without misleading characters.
fn actor_name(header: Option<&str>, call: &Call<'_>) -> Option<String> {
    let value = (call.field)(header?)?;
    let plain = |c: char| if c.is_control() || turns(c) { '\u{fffd}' } else { c };
    let name: String = value.trim().chars().take(MAX_ACTOR).map(plain).collect();
    (!name.is_empty()).then_some(name)
}

/// True for invisible characters that change how others are read: line and paragraph separators,
/// and those that turn the direction of writing (UAX #9, 2).
const fn turns(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
