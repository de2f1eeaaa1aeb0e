//! A report of what clients of a rule have used in the periods of a calendar: reads the count of
//! each client, one after the other.
//!
//! Invariant: each count is described and nothing else is asked of it, so a report changes nothing.
//! A key goes no further than to its count, which is found by the key's hash, and into the report
//! of the caller that named it. Deliberately absent: the permissions, how a count is called, and a
//! list of clients, which no store has.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_policy::{GivenKey, NoKey, Policy, Problem, Rule, Tenant};
use tollgate_storage::{KeyOperation, KeyState};

use crate::key_work::OperatorRequest;
use crate::query::digits;
use crate::store::StoreReply;
use crate::store::usage::{UsageCall, UsageReply};
use crate::usage_report::{Counted, KeyUsage, UsageReport, by_calendar};

/// The most clients in one report: each is a request to a count.
pub const MAX_CLIENTS: usize = 100;
/// The most quotas of all its clients; each is two lines.
const MAX_LINES: usize = 5_000;

/// Makes the report that `call` requests, under the policy in force.
///
/// `entry` returns the entry of the tenant with this name, if it has one. `count` sends a request
/// to a key's count. Both return a message if there is no reply.
pub async fn carry_out<E, R>(
    policy: &Policy,
    call: &UsageCall,
    entry: impl FnMut(String) -> E,
    count: impl FnMut(OperatorRequest) -> R,
) -> StoreReply
where
    E: Future<Output = Result<Option<String>, String>>,
    R: Future<Output = Result<Vec<u8>, String>>,
{
    let work = match UsageWork::begin(policy, call) {
        Ok(work) => work,
        Err(wrong) => return StoreReply::Usage(wrong),
    };
    match work.carry_out(entry, count).await {
        Ok(reply) => StoreReply::Usage(reply),
        Err(why) => StoreReply::Failed(why),
    }
}

/// A report in progress.
struct UsageWork<'a> {
    policy: &'a Policy,
    call: &'a UsageCall,
    rule: &'a Rule,
    clients: Vec<Client<'a>>,
}

struct Client<'a> {
    /// The parts of its key, as they were given.
    parts: &'a [String],
    key: GivenKey,
    /// The tenant that may have quotas of its own.
    tenant: Option<String>,
}

fn wrong(path: &str, why: String) -> UsageReply {
    UsageReply::Wrong { path: path.to_string(), why }
}

impl<'a> UsageWork<'a> {
    fn begin(policy: &'a Policy, call: &'a UsageCall) -> Result<Self, UsageReply> {
        let rule = policy.rules().iter().find(|rule| rule.name() == call.rule);
        let rule = rule.ok_or(UsageReply::NoRule)?;
        let quotas = by_calendar(policy, rule);
        if quotas == 0 {
            let why = "has no quota by a calendar, so it has no periods; GET admin/keys shows the \
                       use of its other quotas";
            return Err(wrong("rule", why.to_string()));
        }
        let parts = rule.key_parts(policy).len();
        // Without values it is the key without parts, or that of requests that lack one.
        let lists: Vec<&[String]> = match call.keys.as_slice() {
            [] => [&[][..]].into(),
            keys => keys.chunks(parts.max(1)).collect(),
        };
        if lists.len() > MAX_CLIENTS {
            return Err(wrong(
                "key",
                format!("has more than {MAX_CLIENTS} clients; ask again for the others"),
            ));
        }
        if lists.len().saturating_mul(quotas) > MAX_LINES {
            let most = MAX_LINES.checked_div(quotas).unwrap_or(0);
            return Err(wrong(
                "key",
                format!(
                    "has more than {most} clients, which is the most for a rule with {quotas} quotas by calendar"
                ),
            ));
        }
        let each = lists.iter().enumerate();
        let clients = each.map(|(i, parts)| Client::new(policy, call, (i, parts)));
        Ok(Self { policy, call, rule, clients: clients.collect::<Result<_, _>>()? })
    }

    async fn carry_out<E, R>(
        &self,
        mut entry: impl FnMut(String) -> E,
        mut count: impl FnMut(OperatorRequest) -> R,
    ) -> Result<UsageReply, String>
    where
        E: Future<Output = Result<Option<String>, String>>,
        R: Future<Output = Result<Vec<u8>, String>>,
    {
        let policy = self.policy;
        let mut known: Option<(&str, Option<Tenant>)> = None;
        let mut keys = Vec::with_capacity(self.clients.len());
        for client in &self.clients {
            if let Some(name) = client.tenant.as_deref()
                && known.as_ref().is_none_or(|(known, _)| *known != name)
            {
                let read = entry(name.to_string()).await?;
                known = Some((name, read.map(|text| compiled(policy, name, &text)).transpose()?));
            }
            let tenant = client.tenant.as_ref().and(known.as_ref()).and_then(|(_, it)| it.as_ref());
            let is_apart = self.call.tenant.is_some();
            let counted = Counted { key: &client.key, tenant, is_apart };
            let mut request = Vec::new();
            client.key.request(policy, KeyOperation::Describe, &mut request);
            let operation = KeyOperation::Describe;
            let reply =
                count(OperatorRequest { key: client.key.clone(), operation, request }).await?;
            let state = KeyState::read(&reply).map_err(|why| why.to_string())?;
            let named = (client.parts, client.tenant.as_deref());
            let used = KeyUsage::new(policy, &counted, named, &state);
            if is_apart && used.is_empty() {
                let why = "has no quotas of its own by a calendar in this rule; leave it out";
                return Ok(wrong("tenant", why.to_string()));
            }
            keys.push(used);
        }
        let report = UsageReport { rule: self.rule.name(), unit: self.rule.unit(), keys };
        Ok(UsageReply::Report(report.text(self.call.format)))
    }
}

impl<'a> Client<'a> {
    /// The client with these parts of a key, the `number`-th of the call.
    fn new(
        policy: &Policy,
        call: &UsageCall,
        (number, parts): (usize, &'a [String]),
    ) -> Result<Self, UsageReply> {
        let key = GivenKey::new(policy, &call.rule, parts);
        let key = key.and_then(|key| match &call.tenant {
            Some(tenant) => key.of_tenant(policy, tenant),
            None => Ok(key),
        });
        let key = key.map_err(|none| match none {
            NoKey::NoRule => UsageReply::NoRule,
            NoKey::Wrong(Problem { path, message, .. }) => {
                let first = number.saturating_mul(parts.len());
                wrong(&counted_from(first, &path), message)
            }
        })?;
        let named = call.tenant.as_deref().and_then(|name| {
            let tenants = policy.tenants()?;
            tenants.name_of(&tenants.id(name)?)
        });
        let tenant = named.or_else(|| key.tenant_name(policy));
        Ok(Self { parts, key, tenant })
    }
}

/// The place in the call of `key[1]`, which is counted from this value on.
fn counted_from(first: usize, path: &str) -> String {
    let index = path.strip_prefix("key[").and_then(|rest| rest.strip_suffix(']'));
    let index = index.and_then(digits).and_then(|index| usize::try_from(index).ok());
    index.map_or_else(|| path.to_string(), |index| format!("key[{}]", first.saturating_add(index)))
}

/// The entry of a tenant, compiled.
fn compiled(policy: &Policy, name: &str, entry: &str) -> Result<Tenant, String> {
    let entry = tollgate_language::tenant_entry(entry.as_bytes());
    let entry = entry.map_err(|_| "a tenant's entry cannot be read".to_string())?;
    let id = policy.tenants().and_then(|tenants| tenants.id(name)).unwrap_or_default();
    Ok(Tenant::new(policy, &id, &entry))
}
