//! What a policy reads that a log cannot tell.
//!
//! Invariant: worked out before the first line is read, from what the policy may ever read
//! (`Policy::reads`), not from what requests happen to ask. A rule that is blind would limit
//! nobody, and a report that says "nobody" would be a lie; so whoever has a need left must not
//! replay.

use serde::Serialize;
use tollgate_access_log::Field;
use tollgate_policy::{Fact, Policy, Read, Reader};

use crate::given::{Given, GivenClient};

/// One thing that the policy reads and the log cannot tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The rule; `null` for what lets requests off every rule.
    pub rule: Option<String>,
    /// What of the rule reads it: `key`, `when`, `unless`, `tier "gold"`, `cost`, `charge`; or
    /// `exempt[0]`.
    pub part: String,
    /// The field that is missing, as `--map` and `--assume` call it.
    pub field: String,
    /// What would give it.
    pub hint: String,
}

impl std::fmt::Display for Need {
    /// `rule "api": its key reads header.x-api-key, which the log does not tell; use ...`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, part, field, hint } = self;
        match rule {
            Some(rule) => write!(f, "rule \"{rule}\": its {part}")?,
            None => f.write_str(part)?,
        }
        write!(f, " reads {field}, which the log does not tell; {hint}")
    }
}

/// Everything that `policy` reads, that a log does not tell (`tells` says whether it does) and that
/// is not given either: each once, in the order of the policy. Empty when it can be replayed.
#[must_use]
pub fn needs(policy: &Policy, given: &Given, tells: impl Fn(&Field) -> bool) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    for read in policy.reads() {
        let sources = sources(policy, given, read.fact);
        let is_there = |all: &Vec<Field>| all.iter().all(|f| given.has(f) || tells(f));
        let is_given = sources.is_empty() || sources.iter().any(is_there);
        if is_given && !is_never_logged(read.fact) {
            continue;
        }
        let need = need(policy, &read, &sources);
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs
}

/// The fields that a replay of `policy` wants of a log that tells them.
#[must_use]
pub fn wanted(policy: &Policy, given: &Given, tells: impl Fn(&Field) -> bool) -> Vec<Field> {
    // Who it was and how it ended is of use for every report.
    let mut wanted = vec![Field::Client, Field::Peer, Field::Status];
    for read in policy.reads() {
        let sources = sources(policy, given, read.fact);
        let found = sources.into_iter().find(|all| all.iter().all(|f| given.has(f) || tells(f)));
        wanted.extend(found.into_iter().flatten());
        if matches!(read.fact, Fact::Query(_)) {
            // The parameter may stand in a column of its own, in the target, or in both.
            wanted.push(Field::Target);
        }
    }
    wanted.retain(|field| tells(field));
    wanted
}

/// The cookies and query parameters that `policy` reads: where the log has a column for one, the
/// header or the target is made of it.
pub(crate) fn columns(policy: &Policy) -> Vec<Field> {
    let column = |read: Read<'_>| match read.fact {
        Fact::Cookie(name) => Some(Field::Cookie(name.to_owned())),
        Fact::Query(name) => Some(Field::Query(name.to_owned())),
        Fact::Client | Fact::Method | Fact::Host | Fact::Path | Fact::Header(_) => None,
        Fact::Route | Fact::Country | Fact::Asn | Fact::Claim(_) | Fact::Status => None,
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => None,
    };
    let mut columns: Vec<Field> = policy.reads().into_iter().filter_map(column).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// True for what a rate limit service is asked with: an access log is of requests, and says nothing
/// of the descriptors that a proxy made of one.
const fn is_never_logged(fact: Fact<'_>) -> bool {
    matches!(fact, Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside)
}

/// The ways to come by a fact, the best first: all fields of one way are needed. Empty when nothing
/// is.
fn sources(policy: &Policy, given: &Given, fact: Fact<'_>) -> Vec<Vec<Field>> {
    let one = |field| vec![vec![field]];
    match fact {
        Fact::Client => match given.client {
            GivenClient::Address(_) => Vec::new(),
            GivenClient::TheLogs => one(Field::Client),
            GivenClient::AsThePolicySays => match policy.client_header() {
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
        Fact::Status => one(Field::Status),
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => Vec::new(),
    }
}

fn need(policy: &Policy, read: &Read<'_>, sources: &[Vec<Field>]) -> Need {
    let rule = read.by.rule().and_then(|i| policy.rules().get(i));
    let part = match read.by {
        Reader::Exempt(i) => format!("exempt[{i}]"),
        Reader::Tenant => "tenant".to_owned(),
        Reader::Condition(_, name) => name.to_owned(),
        Reader::Key(_) => "key".to_owned(),
        Reader::Tier(_, name) => format!("tier \"{name}\""),
        Reader::Cost(_) => "cost".to_owned(),
        Reader::Charge(_) => "charge".to_owned(),
    };
    let field = sources.iter().flatten().next().map(ToString::to_string);
    let field = field.unwrap_or_else(|| read.fact.to_string());
    let hint = hint(read.fact, &field);
    Need { rule: rule.map(|rule| rule.name().to_owned()), part, field, hint }
}

/// What would give a field.
fn hint(fact: Fact<'_>, field: &str) -> String {
    let map = format!("use --map {field}=COLUMN");
    match fact {
        Fact::Client if field == "client" => format!("{map} or --assume client=ADDRESS"),
        Fact::Client => format!(
            "{map}, or --assume client=log if the log's client is who sent the request, not a proxy"
        ),
        Fact::Host => format!("{map}, or --assume host=NAME if the log is of one host"),
        Fact::Cookie(_) => format!("{map} or --map header.cookie=COLUMN"),
        Fact::Query(_) => format!("{map}, or a target with its query"),
        Fact::Method | Fact::Path | Fact::Header(_) | Fact::Route | Fact::Country => {
            format!("{map} or --assume {field}=VALUE")
        }
        Fact::Asn | Fact::Claim(_) | Fact::Status => format!("{map} or --assume {field}=VALUE"),
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => {
            "no access log does, because only a rate limit service is asked with it".to_owned()
        }
    }
}
