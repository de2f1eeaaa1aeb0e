//! A policy as an isolate enforces it.
//!
//! Invariant: whoever decides a request holds the policy that it was planned with until the request
//! is over, whatever comes into force meanwhile. A document that could not be enforced here,
//! because it does not compile or because of the settings, is never one.

use std::rc::Rc;

use tollgate_policy::{Policy, Problem, Problems, Surface};
use tollgate_service::Source;
use tollgate_service::metrics::{PolicyInForce, PolicySource};

use crate::object_name::pk_hash_key;
use crate::settings::Settings;

/// A policy, and which version it is.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) policy: Rc<Policy>,
    /// Its number; 0 where nothing is changed at run time, and while nobody said it.
    pub(crate) version: u64,
    pub(crate) source: Source,
}

/// The policy in `text`.
pub(crate) fn read(text: &str) -> Result<Policy, Problems> {
    if text.is_empty() {
        let message =
            "the policy is missing; policy.json is bundled as a text module, see wrangler.toml";
        return Err(Problems(vec![Problem::new("", message.to_owned())]));
    }
    Policy::compile(text, Surface::Worker)
}

/// The same as it would be enforced with these settings.
pub(crate) fn compile(text: &str, settings: &Settings) -> Result<Policy, Problems> {
    let mut policy = read(text)?;
    let problems = objections(&policy, settings);
    if !problems.0.is_empty() {
        return Err(problems);
    }
    policy.set_hash_key(pk_hash_key(&settings.hash_key));
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

/// What is certainly not meant, for the log. Not for the health report: everybody may read that,
/// and a warning may say how to get round a limit.
pub(crate) fn warnings(policy: &Policy, settings: &Settings) -> Problems {
    let mut warnings = policy.warnings().clone();
    let has_no_secret = settings.hash_key.is_empty();
    if policy.reports_partition_keys() && has_no_secret {
        let message = "pk can be guessed without the secret HASH_KEY; set it".to_owned();
        warnings.0.push(Problem::new("response.partition_key", message));
    }
    if policy.chooses_keys() && has_no_secret {
        let message = "without a salt or the secret HASH_KEY clients can compute which keys are not \
                       enforced; set one";
        warnings.0.push(Problem::new("enforce_percent", message.to_owned()));
    }
    warnings
}

impl Active {
    /// What metrics say about it.
    pub(crate) fn in_force(&self) -> PolicyInForce {
        let source = match self.source {
            Source::Deployed => PolicySource::File,
            Source::Written => PolicySource::Api,
        };
        let (version, fingerprint) = (self.policy.version(), self.policy.fingerprint());
        PolicyInForce { version, fingerprint, source }
    }

    /// The same policy, counted as of `generation`, with this number.
    pub(crate) fn counted_as(&self, generation: u64, version: u64) -> Self {
        let mut policy = Policy::clone(&self.policy);
        policy.set_version(generation);
        Self { policy: Rc::new(policy), version, source: self.source }
    }
}
