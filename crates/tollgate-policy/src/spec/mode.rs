//! The mode of a rule: the keys for which it is enforced.
//!
//! Invariant: an enforced key is enforced every time, and a client cannot compute which keys are
//! enforced.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

/// The keys for which a rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For every key.
    Enforce,
    /// For no key: requests are decided and counted, never denied.
    Shadow,
    /// For a share of the keys, always the same ones.
    EnforcePercent(Share),
}

/// A percentage of keys, chosen by a hash that clients cannot compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The percentage of keys, 0 to 100.
    pub percent: u32,
    /// The hash key that is derived from the document's salt; without a salt, a secret of the
    /// surface is used.
    pub hash_key: Option<[u8; 16]>,
}

impl Share {
    /// True when `rule` is enforced for `key`. `secret` is the surface's. Without a secret no keys
    /// can be selected, so the rule is enforced for every key.
    pub fn holds(self, rule: &str, key: &[u8], secret: Option<[u8; 16]>) -> bool {
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
