//! A policy as an isolate enforces it.
//!
//! Invariant: a document that could not be enforced here, because it does not compile or because of
//! the settings, is never one.

use tollgate_policy::{Policy, Problem, Problems, Surface};
use tollgate_service::deployment;
pub(crate) use tollgate_service::deployment::Active;

use crate::runtime::js;
use crate::settings::Settings;

/// The deployed policy: what was compiled when it was deployed, if that is of the deployed text. A
/// policy that was changed and not compiled again is never taken for the one in force.
pub(crate) fn deployed() -> Result<Policy, Problems> {
    let (text, compiled) = (js::policy_text(), js::compiled_policy());
    if compiled.is_empty() {
        return read(&text);
    }
    let why = match Policy::read_compiled(&compiled, Surface::Worker) {
        Ok(policy) if policy.is_of(&text) => return Ok(policy),
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
        let message = "is not JSON, and a Worker does not read YAML; `tollgate compile --json` makes JSON of it";
        return Err(Problems(vec![Problem::new("", message.to_owned())]));
    }
    Policy::compile(text, Surface::Worker)
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

/// What is wrong with a policy that compiles: rules that hold places which nobody would give back,
/// because a caller of `POST /check` reports a status, and nothing knows any more what the request
/// was charged.
pub(crate) fn objections(policy: &Policy, settings: &Settings) -> Problems {
    let is_service = settings.origin.is_none();
    let held =
        policy.rules().iter().enumerate().filter(|(_, rule)| is_service && rule.gives_back());
    let problem = |(i, _)| {
        let message = "needs ORIGIN, POST /check gives no place back; leave it out".to_owned();
        Problem::new(&format!("rules[{i}].charge.reserve"), message)
    };
    Problems(held.map(problem).collect())
}

/// What is certainly not meant, for the log.
pub(crate) fn warnings(policy: &Policy, settings: &Settings) -> Problems {
    deployment::warnings(policy, settings.hash_key.is_empty().then_some("HASH_KEY"))
}
