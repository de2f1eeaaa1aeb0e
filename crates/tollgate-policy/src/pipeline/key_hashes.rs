//! Hashes of a key that do not depend on where it is counted: the one reported to clients, and the
//! one for their jitter.
//!
//! Invariant: both are computed from the key of the request, the same on every surface, even when a
//! long key is replaced by its digest (`PlanMemory::trim`).

use alloc::string::String;
use core::hash::Hasher;

use base64ct::{Base64, Encoding};
use siphasher::sip::SipHasher13;

use crate::policy::settings::Response;
use crate::stable_hash::stable_hash;

/// The hashes of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHashes {
    /// The hash reported to clients as `pk`.
    pub(crate) pk: u64,
    /// The hash that selects its jitter.
    pub(crate) jitter: u64,
}

impl KeyHashes {
    pub(crate) fn new(key: &[u8], response: &Response) -> Self {
        Self { pk: pk(key, response), jitter: stable_hash(&[key]) }
    }
}

/// 64 bits of a keyed hash: enough for a client to distinguish its keys; too short, and too secret,
/// to find the hashed key.
pub(crate) fn pk(key: &[u8], response: &Response) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&response.hash_key.unwrap_or_default());
    hasher.write(key);
    hasher.finish()
}

/// The hash of a key as text: base64 with padding, the bytes of the field `pk`. There is one
/// spelling, so that the hash in a client's report or a log can be searched for in the history.
#[must_use]
pub fn pk_text(pk: u64) -> String {
    let mut text = String::new();
    push_pk_text(pk, &mut text);
    text
}

/// Appends [`pk_text`] to `out`.
pub fn push_pk_text(pk: u64, out: &mut String) {
    let mut buffer = [0; 12];
    // Eight bytes are twelve characters, so it always fits.
    out.push_str(Base64::encode(&pk.to_be_bytes(), &mut buffer).unwrap_or_default());
}
