//! Writes rules as a policy document for people to read and to edit.
//!
//! Invariant: the result is a valid policy document, or the findings contain a problem. Names are
//! made of the limits' names, or of keys and values, and all names differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tollgate_language::MAX_DOCUMENT;
use tollgate_policy::Surface;

use super::config::Unit;
use super::finding::{Finding, Kind, shown};
use super::rules::Candidate;

/// The longest name of a rule.
const MAX_NAME: usize = 64;
/// The most rules of a policy: beyond it no policy is written, and the compiler reports it.
const MAX_RULES: usize = 1000;

/// The limits of one file.
pub(super) struct Domain {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) candidates: Vec<Candidate>,
}

/// Writes the policy of these domains as text and adds remarks to the `findings`. The rules named
/// in `reported` get that cost.
pub(super) fn write(
    domains: &[Domain],
    reported: &[String],
    findings: &mut Vec<Finding>,
) -> Option<String> {
    let limits = domains.iter().flat_map(|domain| &domain.candidates);
    let count = limits.filter(|candidate| candidate.quota.is_some()).count();
    if count > MAX_RULES {
        let message = format!("has {count} limits; a policy has at most {MAX_RULES} rules");
        findings.push(Finding { kind: Kind::Problem, file: None, place: None, message });
        return None;
    }
    let mut names = BTreeSet::new();
    let (mut rules, mut len) = (Vec::new(), 0_usize);
    for domain in domains {
        let replacing = replacing(domain);
        for candidate in &domain.candidates {
            let Some(quota) = candidate.quota else { continue };
            if len > MAX_DOCUMENT {
                let message = "makes a policy of more than 1 MiB, the longest one".to_owned();
                findings.push(Finding { kind: Kind::Problem, file: None, place: None, message });
                return None;
            }
            let name = name_of(domain, candidate, domains.len() > 1, &mut names);
            if quota.0 == 0 {
                findings.push(refused(&domain.file, candidate));
            }
            let is_reported = reported.contains(&name);
            let limit = Limit { name, quota, is_reported };
            let rule = rule(&limit, domain, candidate, &replacing);
            len = len.saturating_add(rule.len());
            rules.push(rule);
        }
    }
    let unknown = reported.iter().filter(|name| !names.contains(*name));
    for name in unknown {
        let message = format!("--reported: no rule is called {}", shown(name));
        findings.push(Finding { kind: Kind::Problem, file: None, place: None, message });
    }
    let policy = match rules.as_slice() {
        [] => "{\n  \"version\": 1,\n  \"rules\": []\n}\n".to_owned(),
        rules => format!("{{\n  \"version\": 1,\n  \"rules\": [\n{}\n  ]\n}}\n", rules.join(",\n")),
    };
    findings.extend(compiled(&policy));
    Some(policy)
}

/// The compiler's findings about the policy: none, unless the configuration is too large for one
/// policy.
fn compiled(policy: &str) -> Vec<Finding> {
    let (kind, problems) = match tollgate_language::compile(policy, Surface::Server) {
        Ok(policy) => (Kind::Written, policy.warnings().clone()),
        Err(problems) => (Kind::Problem, problems),
    };
    let finding = |problem: tollgate_policy::Problem| Finding {
        kind,
        file: None,
        place: None,
        message: format!("in the policy: {problem}"),
    };
    problems.0.into_iter().map(finding).collect()
}

fn refused(file: &str, candidate: &Candidate) -> Finding {
    Finding {
        kind: Kind::Written,
        file: Some(file.to_owned()),
        place: Some(candidate.at),
        message: "a limit of 0 is a key part that no such descriptor has, with \"on_missing\": \"deny\": all are denied, nothing is counted and no Retry-After is sent"
            .to_owned(),
    }
}

/// A limit in the form in which a rule is written.
struct Limit {
    name: String,
    quota: (u32, Unit),
    /// Its hits are reported after the response.
    is_reported: bool,
}

fn rule(
    Limit { name, quota, is_reported }: &Limit,
    domain: &Domain,
    candidate: &Candidate,
    replacing: &Replacing<'_>,
) -> String {
    let (limit, Unit { window, .. }) = *quota;
    let mut fields = vec![
        format!("\"name\": {}", json!(name)),
        format!(
            "\"when\": {{ \"domain\": {}, \"entries\": [{}] }}",
            json!(domain.name),
            candidate.entries
        ),
    ];
    let own = candidate.name.as_deref().and_then(|name| replacing.get(name));
    if let Some(others) = own {
        fields.push(format!("\"unless\": {{ \"beside\": [{}] }}", others.join(", ")));
    }
    if limit == 0 {
        fields.push(format!("\"key\": [{{ \"descriptor\": {} }}]", json!(absent(candidate))));
        fields.push("\"on_missing\": \"deny\"".to_owned());
    } else {
        let part = |key: &String| format!("{{ \"descriptor\": {} }}", json!(key));
        let parts: Vec<String> = candidate.counted.iter().map(part).collect();
        fields.push(format!("\"key\": [{}]", parts.join(", ")));
    }
    if *is_reported {
        fields.push("\"cost\": \"reported\"".to_owned());
    }
    fields.push(format!(
        "\"quotas\": [{{ \"limit\": {}, \"window\": \"{window}\", \"algorithm\": \"fixed-window\" }}]",
        limit.max(1)
    ));
    if candidate.is_shadow {
        fields.push("\"mode\": \"shadow\"".to_owned());
    }
    format!("    {{\n      {}\n    }}", fields.join(",\n      "))
}

/// By the name of a limit: the descriptors with which it does not apply.
type Replacing<'d> = BTreeMap<&'d str, Vec<&'d str>>;

fn replacing(domain: &Domain) -> Replacing<'_> {
    let mut replacing = Replacing::new();
    for candidate in &domain.candidates {
        for name in candidate.replaces.iter().collect::<BTreeSet<_>>() {
            replacing.entry(name.as_str()).or_default().push(candidate.entries.as_str());
        }
    }
    replacing
}

/// A key that no descriptor of this limit has.
fn absent(candidate: &Candidate) -> String {
    let mut key = "nobody".to_owned();
    while candidate.entries.contains(&key) {
        key.push('_');
    }
    key
}

/// An unused name for a rule: the limit's own, or its keys and values.
fn name_of(
    domain: &Domain,
    candidate: &Candidate,
    is_one_of_several: bool,
    names: &mut BTreeSet<String>,
) -> String {
    let own = candidate.name.as_ref().unwrap_or(&candidate.path);
    let whole = if is_one_of_several { format!("{}/{own}", domain.name) } else { own.clone() };
    let printable = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
    let whole: String = whole.chars().map(printable).collect();
    let mut name: String = whole.chars().take(MAX_NAME).collect();
    let mut number = 1_usize;
    while !names.insert(name.clone()) {
        number = number.saturating_add(1);
        let end = format!(" {number}");
        let room = MAX_NAME.saturating_sub(end.len());
        name = whole.chars().take(room).chain(end.chars()).collect();
    }
    name
}
