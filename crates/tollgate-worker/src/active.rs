//! A policy as an isolate enforces it.
//!
//! Invariant: a document that cannot be enforced here never becomes an active policy, whether it
//! does not compile or conflicts with the settings.

use tollgate_language::fingerprint;
use tollgate_policy::{Policy, Problem, Problems, Surface};
use tollgate_service::deployment;
pub(crate) use tollgate_service::deployment::Active;

use crate::runtime::js;
use crate::settings::Settings;

/// The deployed policy. The compiled form is used only if it was compiled from the deployed text,
/// so a policy that was changed but not compiled again is never taken for the one in force.
pub(crate) fn deployed() -> Result<Policy, Problems> {
    let (text, compiled) = (js::policy_text(), js::compiled_policy());
    if compiled.is_empty() {
        return read(&text);
    }
    let why = match Policy::read_compiled(&compiled, Surface::Worker) {
        Ok(policy) if policy.fingerprint() == fingerprint(&text) => return Ok(policy),
        Ok(_) => "is of another text".to_owned(),
        Err(why) => why.to_string(),
    };
    js::warn(&format!("policy.json is compiled at every start: what was deployed with it {why}"));
    read(&text)
}

/// The policy in `text`.
pub(crate) fn read(text: &str) -> Result<Policy, Problems> {
    if text.is_empty() {
        let message =
            "the policy is missing; policy.json is bundled as a text module, see wrangler.toml";
        return Err(Problems(vec![Problem::new("", message.to_owned())]));
    }
    if !text.trim_start_matches('\u{feff}').trim_ascii_start().starts_with(['{', '[']) {
        let message = "is not JSON, and a Worker does not read YAML; `tollgate compile --json` converts it to JSON";
        return Err(Problems(vec![Problem::new("", message.to_owned())]));
    }
    tollgate_language::compile(text, Surface::Worker)
}

/// The policy in `text` as it would be enforced with these settings.
pub(crate) fn compile(text: &str, settings: &Settings) -> Result<Policy, Problems> {
    enforced(read(text)?, settings)
}

/// A policy as it would be enforced with these settings.
pub(crate) fn enforced(mut policy: Policy, settings: &Settings) -> Result<Policy, Problems> {
    let problems = objections(&policy, settings);
    if !problems.0.is_empty() {
        return Err(problems);
    }
    deployment::set_secret(&mut policy, &settings.hash_key);
    Ok(policy)
}

/// Problems of a policy that compiles, for a deployment that only answers `POST /check`: rules that
/// hold places which would never be given back, because a caller reports a status, and by then the
/// charge of the request is no longer known; and limits on requests in flight without the secret
/// that seals the ids by which callers end them.
pub(crate) fn objections(policy: &Policy, settings: &Settings) -> Problems {
    let mut problems = Problems::default();
    let is_service = settings.origin.is_none();
    for rule in policy.rules().iter().filter(|_| is_service) {
        let mut wrong = |field: &str, message: &str| {
            let path = format!("rules[{}].{field}", rule.place());
            problems.0.push(Problem::new(&path, message.to_owned()));
        };
        if rule.reserves() {
            wrong("charge.reserve", "needs ORIGIN, POST /check gives no place back; leave it out");
        }
        if rule.limits_requests_in_flight() && settings.hash_key.is_empty() {
            let message = "needs the secret HASH_KEY, or ORIGIN: callers of POST /check end a request by an id, \
                           which is sealed with it";
            wrong("concurrency", message);
        }
    }
    problems
}

/// Parts of the policy that are certainly not intended, for the log.
pub(crate) fn warnings(policy: &Policy, settings: &Settings) -> Problems {
    deployment::warnings(policy, settings.hash_key.is_empty().then_some("HASH_KEY"))
}
