//! The hash for values that must never change: identities of groups, records and documents.
//!
//! Invariant: the same parts have the same hash on every target and in every version. Values that a
//! client may choose freely are never looked up by it, because its key is not secret.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

/// SipHash-1-3 with a zero key over length-prefixed parts: the same on every target and in every
/// version.
pub fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    for part in parts {
        hasher.write_u64(u64::try_from(part.len()).unwrap_or(u64::MAX));
        hasher.write(part);
    }
    hasher.finish()
}
