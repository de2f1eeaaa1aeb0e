//! Names of objects, and the key of the hash that clients see of their own.
//!
//! Invariant: what a client sent never appears in a name, because the platform stores names in
//! clear. SHA-256 and not a 64-bit hash: two keys with one name would share one limit.

use sha2::{Digest, Sha256};

/// The name of the object that holds `key`: 64 hexadecimal digits.
///
/// With a `secret` nobody who reads the names can find the keys by trying them. The secret's length
/// goes first, so no other pair of secret and key gives the same input.
pub(crate) fn object_name(secret: &[u8], key: &[u8]) -> String {
    let length = u64::try_from(secret.len()).unwrap_or(u64::MAX);
    let hash = Sha256::new().chain_update(length.to_le_bytes());
    let digest = hash.chain_update(secret).chain_update(key).finalize();
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// What the policy object knows a deployed file by: the first bytes of its SHA-256.
pub(crate) fn fingerprint(text: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// What keys are hashed with before they are reported to clients (`pk`): of the same secret, but no
/// part of any name.
pub(crate) fn pk_hash_key(secret: &[u8]) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(secret).into();
    digest.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sha256_of_length_secret_and_key() {
        // printf '\0\0\0\0\0\0\0\0key' | sha256sum
        let expected = "733a4d5f0f701b95d29e46faf2b7a77bea47b77158d3686ac661f8df6291ee0a";
        assert_eq!(object_name(b"", b"key"), expected);
        assert_ne!(object_name(b"", b"key"), object_name(b"k", b"ey"));
        assert_ne!(object_name(b"a", b"key"), object_name(b"b", b"key"));
        assert_eq!(object_name(b"a", b"key"), object_name(b"a", b"key"));
    }
}
