//! What this host cannot do, and so refuses by name when Envoy configures.
//!
//! Invariant: a policy that would be enforced otherwise than by the wasm module is refused, with
//! the place in the document and the reason. Not here: what no surface can do; the compiler refuses
//! that.

use tollgate_filter::config::Config;
use tollgate_policy::Policy;

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

fn of_policy(policy: &Policy, at: &str, problems: &mut Vec<String>) {
    let found = policy.explain().problems_in_dynamic_module();
    problems.extend(found.0.iter().map(|problem| format!("{at}{problem}")));
}
