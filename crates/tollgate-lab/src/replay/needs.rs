//! Facts that a policy reads and a log does not contain.
//!
//! Invariant: they are computed before the first line is read, from everything the policy may ever
//! read (`Policy::reads`), not from the requests. A rule without its facts would limit no client,
//! and a report of no limited client would be false. So a replay must not start with a need left.

use serde::Serialize;
use tollgate_access_log::Field;
use tollgate_policy::Policy;
use tollgate_policy::explain::Read;
use tollgate_policy::spec::Fact;

use crate::reader::reader;
use crate::replay::assumed::{AssumedClient, AssumedValues};

/// One fact that the policy reads and the log does not contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The rule; `null` for an exemption from every rule.
    pub rule: Option<String>,
    /// The part of the rule that reads it: `key`, `when`, `unless`, `tier "gold"`, `cost`,
    /// `charge`, `limit_from`; or `exempt[0]`.
    pub part: String,
    /// The missing field, as `--map` and `--assume` name it.
    pub field: String,
    /// How to supply it.
    pub hint: String,
}

impl std::fmt::Display for Need {
    /// `rule "api": its key reads header.x-api-key, which is not in the log; use ...`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, part, field, hint } = self;
        match rule {
            Some(rule) => write!(f, "rule \"{rule}\": its {part}")?,
            None => f.write_str(part)?,
        }
        write!(f, " reads {field}, which is not in the log; {hint}")
    }
}

/// Every fact that `policy` reads, that the log does not contain (`contains` returns whether it
/// does) and that is not assumed: each once, in the order of the policy. Empty when a replay is
/// possible.
#[must_use]
pub fn needs(
    policy: &Policy,
    assumed: &AssumedValues,
    contains: impl Fn(&Field) -> bool,
) -> Vec<Need> {
    each_need(policy, assumed, contains, |read| !read.by.has_default())
}

/// One sentence for each fact without which a request has a default, that `policy` reads, the log
/// does not contain, and nothing assumes: a replay is possible, and its figures are those of the
/// defaults. Each once, in the order of the policy.
#[must_use]
pub fn defaults(
    policy: &Policy,
    assumed: &AssumedValues,
    contains: impl Fn(&Field) -> bool,
) -> Vec<String> {
    let needs = each_need(policy, assumed, contains, |read| read.by.has_default());
    needs.iter().map(|need| format!("{need}; without it the quota's own limit applies")).collect()
}

fn each_need(
    policy: &Policy,
    assumed: &AssumedValues,
    contains: impl Fn(&Field) -> bool,
    is_meant: impl Fn(&Read<'_>) -> bool,
) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    for read in policy.explain().reads().iter().filter(|read| is_meant(read)) {
        let sources = sources(policy, assumed, read.fact);
        let is_there = |all: &Vec<Field>| all.iter().all(|f| assumed.has(f) || contains(f));
        let is_given = sources.is_empty() || sources.iter().any(is_there);
        if is_given && !is_never_logged(read.fact) {
            continue;
        }
        let need = need(policy, read, &sources);
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs
}

/// The log fields that a replay of `policy` needs, where the log contains them.
#[must_use]
pub fn wanted(
    policy: &Policy,
    assumed: &AssumedValues,
    contains: impl Fn(&Field) -> bool,
) -> Vec<Field> {
    // Every report uses the client and the status.
    let mut wanted = vec![Field::Client, Field::Peer, Field::Status];
    for read in policy.explain().reads() {
        let sources = sources(policy, assumed, read.fact);
        let found =
            sources.into_iter().find(|all| all.iter().all(|f| assumed.has(f) || contains(f)));
        wanted.extend(found.into_iter().flatten());
        if matches!(read.fact, Fact::Query(_)) {
            // The parameter may be in its own column, in the target, or in both.
            wanted.push(Field::Target);
        }
    }
    wanted.retain(|field| contains(field));
    wanted
}

/// The cookies and query parameters that `policy` reads. Where the log has a column for one, the
/// header or the target is built from it.
pub(crate) fn columns(policy: &Policy) -> Vec<Field> {
    let column = |read: Read<'_>| match read.fact {
        Fact::Cookie(name) => Some(Field::Cookie(name.to_owned())),
        Fact::Query(name) => Some(Field::Query(name.to_owned())),
        Fact::Client | Fact::Method | Fact::Host | Fact::Path | Fact::Header(_) => None,
        Fact::Route | Fact::Country | Fact::Asn | Fact::Claim(_) | Fact::Metadata(_) => None,
        Fact::Certificate(_) | Fact::Cloudflare(_) | Fact::Status => None,
        Fact::Actual | Fact::Duration => None,
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => None,
    };
    let mut columns: Vec<Field> = policy.explain().reads().into_iter().filter_map(column).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// True for facts about a request to a rate limit service. An access log describes requests, and
/// not the descriptors that a proxy made from them.
const fn is_never_logged(fact: Fact<'_>) -> bool {
    matches!(fact, Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside)
}

/// The ways to derive a fact, the best first: all fields of one way are needed. Empty when there is
/// no way.
fn sources(policy: &Policy, assumed: &AssumedValues, fact: Fact<'_>) -> Vec<Vec<Field>> {
    let one = |field| vec![vec![field]];
    match fact {
        Fact::Client => match assumed.client {
            AssumedClient::Address(_) => Vec::new(),
            AssumedClient::OfLog => one(Field::Client),
            AssumedClient::ByPolicy => match policy.explain().client_header() {
                None => one(Field::Client),
                Some(header) => one(Field::header(header)),
            },
        },
        Fact::Method => one(Field::Method),
        Fact::Host => one(Field::Host),
        Fact::Path => one(Field::Target),
        Fact::Query(name) => one(Field::Query(name.to_owned())),
        Fact::Header(name) => one(Field::header(name)),
        Fact::Cookie(name) => {
            vec![vec![Field::Cookie(name.to_owned())], vec![Field::header("cookie")]]
        }
        Fact::Route => one(Field::Route),
        Fact::Country => one(Field::Country),
        Fact::Asn => one(Field::Asn),
        Fact::Claim(name) => one(Field::Claim(name.to_owned())),
        Fact::Metadata(path) => one(Field::Metadata(path.to_string())),
        Fact::Cloudflare(field) => one(Field::Cloudflare(field.name().to_owned())),
        Fact::Certificate(field) => one(Field::Certificate(field.name().to_owned())),
        Fact::Status => one(Field::Status),
        Fact::Actual => one(Field::Actual),
        Fact::Duration => one(Field::Duration),
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => Vec::new(),
    }
}

fn need(policy: &Policy, read: &Read<'_>, sources: &[Vec<Field>]) -> Need {
    let (rule, part) = reader(policy, read);
    let field = sources.iter().flatten().next().map(ToString::to_string);
    let field = field.unwrap_or_else(|| read.fact.to_string());
    let hint = hint(read.fact, &field);
    Need { rule: rule.map(str::to_owned), part, field, hint }
}

/// How to supply a field.
fn hint(fact: Fact<'_>, field: &str) -> String {
    let map = format!("use --map {field}=COLUMN");
    match fact {
        Fact::Client if field == "client" => format!("{map} or --assume client=ADDRESS"),
        Fact::Client => format!(
            "{map}, or --assume client=log if the log's client is the sender of the request, not a proxy"
        ),
        Fact::Host => format!("{map}, or --assume host=NAME if the log is of one host"),
        Fact::Cookie(_) => format!("{map} or --map header.cookie=COLUMN"),
        Fact::Query(_) => format!("{map}, or a target with its query"),
        Fact::Method | Fact::Path | Fact::Header(_) | Fact::Route | Fact::Country => {
            format!("{map} or --assume {field}=VALUE")
        }
        Fact::Asn | Fact::Claim(_) | Fact::Metadata(_) | Fact::Certificate(_) => {
            format!("{map} or --assume {field}=VALUE")
        }
        Fact::Cloudflare(_) | Fact::Status | Fact::Actual | Fact::Duration => {
            format!("{map} or --assume {field}=VALUE")
        }
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => {
            "no access log has it; only calls to a rate limit service carry it".to_owned()
        }
    }
}
