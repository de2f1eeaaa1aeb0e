//! What follows from a key besides where it is counted: the hash reported to clients, and their
//! jitter.
//!
//! Invariant: both are made of the key as the request has it, the same on every surface, also where
//! a long key is kept as its digest (`Plan::trim`).

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::policy::settings::Response;
use crate::stable_hash::stable_hash;

/// The hashes of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHashes {
    /// What is reported to clients as `pk`.
    pub(crate) pk: u64,
    /// What its jitter is chosen by.
    pub(crate) jitter: u64,
}

impl KeyHashes {
    pub(crate) fn new(key: &[u8], response: &Response) -> Self {
        Self { pk: pk(key, response), jitter: stable_hash(&[key]) }
    }
}

/// 64 bits of a keyed hash: enough for a client to tell its keys apart, too little and too secret
/// to find out what was hashed.
pub(crate) fn pk(key: &[u8], response: &Response) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&response.hash_key.unwrap_or_default());
    hasher.write(key);
    hasher.finish()
}
