//! What follows from a key besides where it is counted: the hash that clients are told, and their jitter.
//!
//! Invariant: both are made of the key as the request has it, the same on every surface, also where a
//! long key is kept as its digest ([`Plan::trim`]).

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::compile::{Response, stable_hash};
use crate::pipeline::plan::Plan;

/// The hashes of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHashes {
    pk: u64,
    jitter: u64,
}

impl KeyHashes {
    pub(crate) fn new(key: &[u8], response: &Response) -> Self {
        Self { pk: pk(key, response), jitter: stable_hash(&[key]) }
    }
}

/// 64 bits of a keyed hash: enough for a client to tell its keys apart, too little and too secret to find
/// out what was hashed.
fn pk(key: &[u8], response: &Response) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&response.hash_key.unwrap_or_default());
    hasher.write(key);
    hasher.finish()
}

impl Plan {
    /// The hash of partition `i`'s key that clients are told as `pk`.
    pub(crate) fn pk(&self, response: &Response, i: usize) -> u64 {
        self.trimmed(i).map_or_else(|| pk(self.key(i), response), |hashes| hashes.pk)
    }

    /// The hash of partition `i`'s key that its jitter is chosen by.
    pub(crate) fn jitter_hash(&self, i: usize) -> u64 {
        self.trimmed(i).map_or_else(|| stable_hash(&[self.key(i)]), |hashes| hashes.jitter)
    }

    fn trimmed(&self, i: usize) -> Option<KeyHashes> {
        self.live().get(i).and_then(|partition| partition.trimmed)
    }
}
