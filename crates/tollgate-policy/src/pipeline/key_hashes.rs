//! What follows from a key besides where it is counted: the hash reported to clients, and their
//! jitter.
//!
//! Invariant: both are made of the key as the request has it, the same on every surface, also where
//! a long key is kept as its digest (`Plan::trim`).

use alloc::string::String;
use core::hash::Hasher;

use base64ct::{Base64, Encoding};
use siphasher::sip::SipHasher13;

use crate::policy::compiled::Policy;
use crate::policy::settings::Response;
use crate::request::given_key::GivenKey;
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

impl Policy {
    /// The hash that the key is reported by to clients and in logs; [`pk_text`] writes it. Only as
    /// secret as the policy's hash key ([`Policy::set_hash_key`]).
    #[must_use]
    pub fn pk_of(&self, key: &GivenKey) -> u64 {
        pk(key.bytes(), &self.response)
    }
}

/// The hash of a key as everybody is told it: base64 with padding, the bytes of the field `pk`. One
/// spelling, so that what a client or a log names is found in the history.
#[must_use]
pub fn pk_text(pk: u64) -> String {
    let mut buffer = [0; 12];
    // Eight bytes are twelve characters, so it always fits.
    Base64::encode(&pk.to_be_bytes(), &mut buffer).map(String::from).unwrap_or_default()
}
