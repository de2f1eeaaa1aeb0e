//! The deployment's part of a policy: its number, its secret, and the warnings for its operator.
//!
//! Invariant: a request keeps the policy that it was planned with until it is over, even if another
//! comes into force meanwhile. Only values that are hashed with a part of the secret's hash leave
//! the process. Deliberately absent: the source of the secret and of the text.

use alloc::format;
use alloc::sync::Arc;

use sha2::{Digest, Sha256};
use tollgate_policy::{Policy, Problem, Problems, Rule};

use crate::metrics::PolicyInForce;
use crate::store::policy::Source;

/// The generation of deployed files before the first change at run time; 0 is for deployments that
/// do not count generations.
pub const FIRST_GENERATION: u64 = 1;

/// A policy, and its version.
#[derive(Clone, Debug)]
pub struct Active {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its number; 0 where nothing is changed at run time, and while it is unknown.
    pub version: u64,
    /// Its source.
    pub source: Source,
}

impl Active {
    /// Its form in metrics.
    #[must_use]
    pub fn in_force(&self) -> PolicyInForce {
        let (version, fingerprint) = (self.policy.version(), self.policy.public_fingerprint());
        PolicyInForce { version, fingerprint, source: self.source }
    }

    /// The same policy, counted as of `generation`, with this number.
    #[must_use]
    pub fn counted_as(&self, generation: u64, version: u64) -> Self {
        let mut policy = Policy::clone(&self.policy);
        policy.set_version(generation);
        Self { policy: Arc::new(policy), version, source: self.source }
    }
}

/// The store's identifier of a policy file: the first bytes of its SHA-256.
#[must_use]
pub fn fingerprint(text: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Sets the `secret` of `policy`, empty for none. Keys are hashed with it before they are reported
/// to clients (`pk`); it is not part of any count's name.
pub fn set_secret(policy: &mut Policy, secret: &[u8]) {
    let digest: [u8; 32] = Sha256::digest(secret).into();
    let key = digest.first_chunk().copied().unwrap_or_default();
    policy.set_hash_key(key);
    if !secret.is_empty() {
        policy.key_public_fingerprint(key);
    }
}

/// Certain mistakes, for the log; `unset` is the name of the secret where there is none. Not for
/// the health report: it is public, and a warning may show how to get round a limit.
#[must_use]
pub fn warnings(policy: &Policy, unset: Option<&str>) -> Problems {
    let mut warnings = policy.warnings().clone();
    let Some(secret) = unset else { return warnings };
    if policy.response().partition_key {
        let message = format!("pk can be guessed without the secret {secret}; set it");
        warnings.0.push(Problem::new("response.partition_key", message));
    }
    if policy.rules().iter().any(Rule::chooses_keys) {
        let message = format!(
            "without a salt or the secret {secret} clients can compute which keys are not \
             enforced; set one"
        );
        warnings.0.push(Problem::new("enforce_percent", message));
    }
    warnings
}
