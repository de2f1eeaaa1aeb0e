//! A proxy's plugin configuration: a policy, with other policies for some routes, the servers that
//! the plugin sends requests to, or the key that it hashes keys with.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::policy::compiled::Policy;

/// The most policies that routes may name: each has tables of its own.
pub const MAX_NAMED: usize = 32;
/// The longest name of a policy.
pub const MAX_NAME: usize = 64;

/// The configuration of a plugin.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The policy; when there are others, the policy of the routes that name none.
    pub policy: Policy,
    /// The policies that routes name: none, or up to 32, each name once.
    pub named: Vec<NamedPolicy>,
    /// The authority for the counts of a fleet.
    pub fleet: Option<Fleet>,
    /// The server for later policies.
    pub policy_from: Option<PolicyFrom>,
}

/// A policy that a route chooses by its name.
#[derive(Clone, Debug)]
pub struct NamedPolicy {
    /// 1 to 64 letters, digits, `-` and `_`.
    pub name: String,
    /// The only policy that is enforced there.
    pub policy: Policy,
}

/// The server that a plugin takes its policy from, once that server responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFrom {
    /// The cluster, by its name in the proxy's configuration.
    pub cluster: String,
    /// The host of the request.
    pub authority: String,
    /// Its path.
    pub path: String,
    /// The token that authorizes it.
    pub token: Option<String>,
    /// The longest time between two requests: 1 s to 1 h.
    pub every: Span,
    /// How long to wait for a response: 1 ms to 10 s.
    pub timeout: Span,
}

/// The authority from which a node requests the counts of a fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The cluster, by its name in the proxy's configuration.
    pub cluster: String,
    /// The host of the request.
    pub authority: String,
    /// Its path.
    pub path: String,
    /// The token that authorizes it.
    pub token: Option<String>,
    /// The key that keys are hashed with: [`key_hash`](tollgate_storage::key_hash).
    pub secret: [u8; 16],
    /// How long to wait for a response: 1 ms to 10 s.
    pub timeout: Span,
}

impl Plugin {
    /// The same plugin, with this secret in all policies.
    #[must_use]
    pub fn with_hash_key(mut self, key: Option<[u8; 16]>) -> Self {
        if let Some(key) = key {
            self.policy.set_hash_key(key);
            self.named.iter_mut().for_each(|named| named.policy.set_hash_key(key));
        }
        self
    }

    /// A policy with no other settings.
    #[must_use]
    pub const fn alone(policy: Policy) -> Self {
        Self { policy, named: Vec::new(), fleet: None, policy_from: None }
    }
}

impl NamedPolicy {
    /// True for a valid name of a policy.
    pub fn is_name(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain)
    }

    /// True when there are at most as many as allowed, and each name occurs once.
    pub fn are_apart(all: &[Self]) -> bool {
        let mut rest = all;
        while let Some((one, others)) = rest.split_first() {
            if others.iter().any(|other| other.name == one.name) {
                return false;
            }
            rest = others;
        }
        (1..=MAX_NAMED).contains(&all.len())
    }
}

/// The shortest time-out: no server responds sooner, and no client waits longer than
/// [`MAX_TIMEOUT`] for the first byte.
pub const MIN_TIMEOUT: Span = Span::from_millis(1);
/// The longest time-out.
pub const MAX_TIMEOUT: Span = Span::from_secs(10);

/// True for a text of `min` to `max` visible characters.
pub fn is_visible(text: &str, min: usize, max: usize) -> bool {
    (min..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
