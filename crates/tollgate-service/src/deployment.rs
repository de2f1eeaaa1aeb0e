//! What a deployment makes of a policy: its number, its secret, and what its operator should know.
//!
//! Invariant: whoever decides a request holds the policy that it was planned with until the request
//! is over, whatever comes into force meanwhile. Of the secret nothing gets out but what is hashed
//! with a part of its hash. Deliberately absent: where the secret and the text come from.

use alloc::format;
use alloc::sync::Arc;

use sha2::{Digest, Sha256};
use tollgate_policy::{Policy, Problem, Problems};

use crate::metrics::PolicyInForce;
use crate::store::policy::Source;

/// A policy, and which version it is.
#[derive(Clone, Debug)]
pub struct Active {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its number; 0 where nothing is changed at run time, and while nobody said it.
    pub version: u64,
    /// Where it comes from.
    pub source: Source,
}

impl Active {
    /// What metrics say about it.
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

/// What a store knows a policy file by: the first bytes of its SHA-256.
#[must_use]
pub fn fingerprint(text: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Gives `policy` the `secret`, empty where there is none: what keys are hashed with before they
/// are reported to clients (`pk`), which is no part of any count's name.
pub fn set_secret(policy: &mut Policy, secret: &[u8]) {
    let digest: [u8; 32] = Sha256::digest(secret).into();
    let key = digest.first_chunk().copied().unwrap_or_default();
    policy.set_hash_key(key);
    if !secret.is_empty() {
        policy.key_public_fingerprint(key);
    }
}

/// What is certainly not meant, for the log; `unset` is what the secret is called where there is
/// none. Not for the health report: everybody may read that, and a warning may say how to get round
/// a limit.
#[must_use]
pub fn warnings(policy: &Policy, unset: Option<&str>) -> Problems {
    let mut warnings = policy.warnings().clone();
    let Some(secret) = unset else { return warnings };
    if policy.reports_partition_keys() {
        let message = format!("pk can be guessed without the secret {secret}; set it");
        warnings.0.push(Problem::new("response.partition_key", message));
    }
    if policy.chooses_keys() {
        let message = format!(
            "without a salt or the secret {secret} clients can compute which keys are not \
             enforced; set one"
        );
        warnings.0.push(Problem::new("enforce_percent", message));
    }
    warnings
}
