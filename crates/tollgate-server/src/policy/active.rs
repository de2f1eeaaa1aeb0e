//! A policy as it is enforced here.
//!
//! Invariant: a document that cannot be enforced here never becomes one.

use tollgate_policy::explain::Reader;
use tollgate_policy::spec::Fact;
use tollgate_policy::{Policy, Problem, Problems, Surface};
use tollgate_service::deployment;
pub use tollgate_service::deployment::Active;

/// The restrictions that settings put on a policy: the protocols other than `POST /check`, each by
/// its name, and a secret that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtocolRestrictions {
    /// Callers of this protocol never report the response, so nothing could be charged by it.
    pub without_responses: Option<&'static str>,
    /// A response with a status from 200 to 299 allows the request, whatever it was meant to be.
    pub passes_success: Option<&'static str>,
    /// The setting without which no id can be sealed here, so that no caller could report that a
    /// request has ended.
    pub without_ids: Option<&'static str>,
}

/// The policy in `text`, as it is enforced here.
///
/// # Errors
/// All its mistakes.
pub fn compile(
    text: &str,
    hash_key: &[u8],
    spoken: ProtocolRestrictions,
) -> Result<Policy, Problems> {
    let mut policy = tollgate_language::compile(text, Surface::Server)?;
    let problems = objections(&policy, spoken);
    if !problems.0.is_empty() {
        return Err(problems);
    }
    deployment::set_secret(&mut policy, hash_key);
    Ok(policy)
}

/// The mistakes of a policy that compiles. Rules that hold places are mistakes, because the places
/// would never be given back: a caller of `POST /check` reports a status, and by then the charges
/// of the request are no longer known. Rules that the other protocols cannot carry out are
/// mistakes, too.
#[must_use]
pub fn objections(policy: &Policy, spoken: ProtocolRestrictions) -> Problems {
    let mut problems = Problems::default();
    for rule in policy.rules() {
        let i = rule.place();
        let mut wrong = |place: &str, message: String| {
            problems.0.push(Problem::new(&format!("rules[{i}].{place}"), message));
        };
        if rule.reserves() {
            let message = "is not for a server: POST /check gives no place back; leave it out";
            wrong("charge.reserve", message.to_owned());
        }
        if let Some(setting) = spoken.without_responses
            && rule.charges_by_response()
        {
            wrong(
                "charge",
                format!(
                    "is not for a server with {setting}: these callers do not report the \
                     response; leave it out, or let a server of its own without {setting} have the rule"
                ),
            );
        }
        if rule.limits_requests_in_flight() {
            if let Some(setting) = spoken.without_responses {
                wrong(
                    "concurrency",
                    format!(
                        "is not for a server with {setting}: its callers do not report the end of a request; leave it \
                         out, or let a server of its own without {setting} have the rule"
                    ),
                );
            }
            if let Some(setting) = spoken.without_ids {
                wrong(
                    "concurrency",
                    format!(
                        "needs {setting}, the same in every server of the store: callers of POST /check end a request \
                         by an id, which is sealed with it"
                    ),
                );
            }
        }
        if let Some(setting) = spoken.passes_success
            && let Some(status @ 200..=299) = rule.refusal_status()
        {
            wrong(
                "action",
                format!(
                    "has the status {status}, by which a proxy of {setting} allows the request; use \
                     one from 300 to 599"
                ),
            );
        }
    }
    problems
}

/// Certain mistakes that are only logged.
#[must_use]
pub fn warnings(policy: &Policy, has_secret: bool, spoken: ProtocolRestrictions) -> Problems {
    let mut warnings = deployment::warnings(policy, (!has_secret).then_some("hash_key"));
    // A protocol that takes any success for permission asks over HTTP, without the body.
    if let Some(setting) = spoken.passes_success {
        warnings.0.extend(unsaid_lengths(policy, setting));
    }
    warnings
}

/// Rules by the length of a body, which a proxy that asks over HTTP need not send. Without it the
/// request counts as one without a body, and if the proxy does not set the field, its client can.
fn unsaid_lengths(policy: &Policy, setting: &str) -> Vec<Problem> {
    let reads = policy.explain().reads();
    let by_length = reads.iter().filter(|read| read.fact == Fact::Header("content-length"));
    let mut rules: Vec<(usize, &str)> =
        by_length.filter_map(|read| reader(policy, &read.by)).collect();
    rules.dedup();
    let warn = |(place, name): (usize, &str)| {
        let message = format!(
            "{name:?} reads content-length: with {setting} among the protocols that is what the proxy sets as \
             x-tollgate-content-length (forward_auth has none), and a request without it has no length"
        );
        Problem::new(&format!("rules[{place}]"), message)
    };
    rules.into_iter().map(warn).collect()
}

/// The place in the document, and the name, of the rule that reads something.
fn reader<'p>(policy: &'p Policy, by: &Reader<'_>) -> Option<(usize, &'p str)> {
    if let Reader::Deny(name, _) = by {
        let rule = policy.deny_rules().iter().find(|rule| rule.name() == *name)?;
        return Some((rule.place(), rule.name()));
    }
    let rule = policy.rules().get(by.rule()?)?;
    Some((rule.place(), rule.name()))
}
