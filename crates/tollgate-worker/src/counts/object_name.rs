//! Names of objects.
//!
//! Invariant: data that a client sent never appears in a name, because the platform stores names in
//! clear. SHA-256 and not a 64-bit hash: two keys with one name would share one limit.

use sha2::{Digest, Sha256};

/// The name of the object that holds `key`: 64 hexadecimal digits.
///
/// With a `secret`, keys cannot be found by trying them against the names. The secret's length goes
/// first, so no other pair of secret and key gives the same input.
pub(crate) fn object_name(secret: &[u8], key: &[u8]) -> String {
    name_of(&object_hash(secret, key))
}

/// The name as bytes.
pub(crate) fn object_hash(secret: &[u8], key: &[u8]) -> [u8; 32] {
    let length = u64::try_from(secret.len()).unwrap_or(u64::MAX);
    let hash = Sha256::new().chain_update(length.to_le_bytes());
    hash.chain_update(secret).chain_update(key).finalize().into()
}

/// The name that has these bytes.
pub(crate) fn name_of(hash: &[u8; 32]) -> String {
    let digits = hash.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
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
