//! The mode of a rule: the keys for which it is enforced.
//!
//! Invariant: an enforced key is enforced every time, and a client cannot compute which keys are
//! enforced.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::document::scalar::{Bounded, Salt};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};

/// The keys for which a rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// For every key.
    Enforce,
    /// For no key: requests are decided and counted, never denied.
    Shadow,
    /// For a share of the keys, always the same ones.
    EnforcePercent(Share),
}

/// A percentage of keys, chosen by a hash that clients cannot compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) percent: u32,
    /// The hash key that is derived from the document's salt; without a salt, a secret of the
    /// surface is used.
    pub(crate) hash_key: Option<[u8; 16]>,
}

impl Share {
    /// True when `rule` is enforced for `key`. `secret` is the surface's. Without a secret no keys
    /// can be selected, so the rule is enforced for every key.
    pub(crate) fn holds(self, rule: &str, key: &[u8], secret: Option<[u8; 16]>) -> bool {
        let Some(hash_key) = self.hash_key.or(secret) else { return self.percent > 0 };
        let mut hasher = SipHasher13::new_with_key(&hash_key);
        // Each rule selects different keys; else a key that one rule spares would be spared by
        // every rule.
        hasher.write_u64(u64::try_from(rule.len()).unwrap_or(u64::MAX));
        hasher.write(rule.as_bytes());
        hasher.write(key);
        hasher.finish().checked_rem(100).is_some_and(|slot| slot < u64::from(self.percent))
    }
}

record! {
    /// Enforcement for a percentage of the keys.
    PercentDoc {
        /// The percentage of keys for which the rule is enforced; the same keys every time.
        enforce_percent: Bounded<0, 100>,
        /// A secret that selects the keys, the same keys on every surface. Keep it secret. By
        /// default a secret of the surface selects the keys.
        salt: Option<Salt>,
    }
}

impl FromNode for Mode {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "enforce" => Some(Self::Enforce),
            Node::Text(text) if text == "shadow" => Some(Self::Shadow),
            Node::Object(_) => {
                let doc = PercentDoc::read(node, at)?;
                let hash_key = doc.salt.map(|salt| salt.hash_key());
                Some(Self::EnforcePercent(Share { percent: doc.enforce_percent.0, hash_key }))
            }
            _ => at
                .not_text(node, "a mode; use \"enforce\", \"shadow\" or {\"enforce_percent\": 10}"),
        }
    }

    schema!({"anyOf": [{"enum": ["enforce", "shadow"]}, PercentDoc::schema()]});
}
