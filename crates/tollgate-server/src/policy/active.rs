//! A policy as it is enforced here.
//!
//! Invariant: a document that could not be enforced here is never one.

use tollgate_policy::{Fact, Policy, Problem, Problems, Rule, Surface};
use tollgate_service::deployment;
pub use tollgate_service::deployment::Active;

/// Who asks here otherwise than by `POST /check`, and what a policy can therefore not have. Each
/// is the name of the setting that turns it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spoken {
    /// Who asks so never tells the response, so that nothing could be charged by it.
    pub without_responses: Option<&'static str>,
    /// An answer from 200 to 299 lets the request through, whatever it was meant to be.
    pub passes_success: Option<&'static str>,
}

/// The policy in `text`, as it is enforced here.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(text: &str, hash_key: &[u8], spoken: Spoken) -> Result<Policy, Problems> {
    let mut policy = Policy::compile(text, Surface::Server)?;
    let problems = objections(&policy, spoken);
    if !problems.0.is_empty() {
        return Err(problems);
    }
    deployment::set_secret(&mut policy, hash_key);
    Ok(policy)
}

/// What is wrong with a policy that compiles: rules that hold places which nobody would give back,
/// because a caller of `POST /check` reports a status, and nothing knows any more what the request
/// was charged; and what the protocols cannot do that are spoken beside it.
#[must_use]
pub fn objections(policy: &Policy, spoken: Spoken) -> Problems {
    let mut problems = Problems::default();
    for (i, rule) in policy.rules().iter().enumerate() {
        let mut wrong = |place: &str, message: String| {
            problems.0.push(Problem::new(&format!("rules[{i}].{place}"), message));
        };
        if rule.gives_back() {
            let message = "is not for a server: POST /check gives no place back; leave it out";
            wrong("charge.reserve", message.to_owned());
        }
        if let Some(setting) = spoken.without_responses
            && rule.charges_by_response()
        {
            wrong(
                "charge",
                format!(
                    "is not for a server with {setting}: who asks so never tells how the response \
                     ended; leave it out, or let a server of its own without {setting} have the rule"
                ),
            );
        }
        if let Some(setting) = spoken.passes_success
            && let Some(status @ 200..=299) = rule.refusal_status()
        {
            wrong(
                "action",
                format!(
                    "has the status {status}, by which a proxy of {setting} lets the request through; use \
                     one from 300 to 599"
                ),
            );
        }
    }
    problems
}

/// What is certainly not meant, for the log.
#[must_use]
pub fn warnings(policy: &Policy, has_secret: bool, spoken: Spoken) -> Problems {
    let mut warnings = deployment::warnings(policy, (!has_secret).then_some("hash_key"));
    // What takes any success for leave asks over HTTP, without the body.
    if let Some(setting) = spoken.passes_success {
        warnings.0.extend(unsaid_lengths(policy, setting));
    }
    warnings
}

/// Rules by the length of a body, which a proxy that asks over HTTP does not have to say: without
/// it the request has none, and with a proxy that does not set the field its client says it.
fn unsaid_lengths(policy: &Policy, setting: &str) -> Vec<Problem> {
    let reads = policy.reads();
    let by_length = reads.iter().filter(|read| read.fact == Fact::Header("content-length"));
    let mut rules: Vec<usize> = by_length.filter_map(|read| read.by.rule()).collect();
    rules.dedup();
    let warn = |rule: usize| {
        let name = policy.rules().get(rule).map(Rule::name).unwrap_or_default();
        let message = format!(
            "{name:?} reads content-length: with {setting} among the protocols that is what the proxy sets as \
             x-tollgate-content-length (forward_auth has none), and a request without it has no length"
        );
        Problem::new(&format!("rules[{rule}]"), message)
    };
    rules.into_iter().map(warn).collect()
}
