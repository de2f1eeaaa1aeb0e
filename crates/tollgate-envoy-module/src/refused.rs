//! What this host cannot do, and so refuses by name when Envoy configures.
//!
//! Invariant: a policy that would be enforced otherwise than by the wasm module is refused, with
//! the place in the document and the reason. Not here: what no surface can do; the compiler refuses
//! that.

use tollgate_filter::config::Config;
use tollgate_policy::spec::{ActualCost, Fact};
use tollgate_policy::{Policy, Rule};

/// Every problem, one line each.
pub(crate) fn problems(text: &[u8], scope: &[u8]) -> Result<(), Vec<String>> {
    let config = Config::compile(text, scope)?;
    let mut problems = Vec::new();
    if config.fleet.is_some() {
        problems.push(CALLS.replace("{}", "fleet"));
    }
    if config.policy_from.is_some() {
        problems.push(CALLS.replace("{}", "policy_from"));
    }
    of_policy(&config.policy, "", &mut problems);
    for (name, named) in &config.named {
        of_policy(&named.policy, &format!("policies.{name}."), &mut problems);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

const CALLS: &str =
    "{}: the dynamic module sends no requests of its own; use the wasm module tollgate-envoy.wasm";
const METADATA: &str =
    "Envoy does not give a dynamic module the metadata of other filters; use the wasm module";

fn of_policy(policy: &Policy, at: &str, problems: &mut Vec<String>) {
    for read in policy.explain().reads() {
        let what = match read.fact {
            Fact::Claim(name) => format!("the claim \"{name}\""),
            Fact::Metadata(path) => format!("metadata {path}"),
            Fact::Client | Fact::Method | Fact::Host | Fact::Path | Fact::Query(_) => continue,
            Fact::Header(_) | Fact::Cookie(_) | Fact::Route | Fact::Certificate(_) => continue,
            Fact::Country | Fact::Asn | Fact::Cloudflare(_) => continue,
            Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => continue,
            Fact::Status | Fact::Actual | Fact::Duration => continue,
        };
        let rule = read.by.rule().and_then(|index| policy.rules().get(index));
        let place = rule.map_or_else(|| at.to_owned(), |rule| place(at, rule));
        let line = format!("{place}{what}: {METADATA}");
        if !problems.contains(&line) {
            problems.push(line);
        }
    }
    for rule in policy.rules() {
        if let Some(ActualCost::Metadata(_)) = rule.settled_cost().map(|cost| &cost.actual) {
            problems.push(format!("{}cost.actual: {METADATA}", place(at, rule)));
        }
    }
}

fn place(at: &str, rule: &Rule) -> String {
    format!("{at}rules[{}].", rule.place())
}
