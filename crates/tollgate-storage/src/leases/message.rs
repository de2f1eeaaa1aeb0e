//! A node's requests to an authority about keys, and the responses: the body of `/lease`.
//!
//! Binary, little-endian, `application/octet-stream`. Only machines write and read it. It has
//! numbers of 64 and 128 bits, which JSON parsers round, and a proxy builds it while requests wait.
//!
//! Request: `QUESTION`; the fingerprint of the fleet's part of the node's policy `u64`; the node
//! `u128`; the number of keys that follow `u8`, per key: the identity of its group `u64`, the hash
//! of the key ([`key_hash`]) 16 bytes, the number of rules that follow `u8`, per rule: 1 if it is
//! enforced, 0 in shadow `u8`; its direct cost `u64`; then the lease part, as in `ask`.
//!
//! Response: `ANSWER`; the number of keys `u8`, per key: the result `u8` (0 decided, 1 failed, 2
//! overloaded), the length of the reply `u32`, the reply, as in `ask`.
//!
//! Invariant: a message contains no key and nothing that a client sent. It contains no quotas
//! either: they are those of a policy that both sides have. Any bytes are accepted: the result is a
//! message or an error, in memory bounded by [`MAX_LEASE_MESSAGE`].

use alloc::vec::Vec;

use siphasher::sip128::{Hasher128, SipHasher13};

use core::hash::Hasher;

use crate::leases::ask::{LeaseAsk, MAX_LEASE_SETS};
use crate::wire::{Reader, WireError};

const QUESTION: [u8; 8] = *b"tollgt\x00Q";
const ANSWER: [u8; 8] = *b"tollgt\x00A";

/// The most bytes of a message: 64 KiB.
pub const MAX_LEASE_MESSAGE: usize = 65_536;
/// The most keys of one message: those of one request, or of a node's tick.
pub const MAX_LEASE_KEYS: usize = 64;

/// A node's request to an authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseQuestion {
    /// `FleetRules::fingerprint` of the policy with which it was planned. An authority accepts
    /// two of them, the current and the previous one, and responds with 409 to others.
    pub policy: u64,
    /// See [`LeaseId::table`](crate::LeaseId::table).
    pub table: u128,
    /// At most [`MAX_LEASE_KEYS`].
    pub keys: Vec<LeaseKey>,
}

/// The part of the request for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseKey {
    /// `Group::identity`.
    pub group: u64,
    /// See [`key_hash`].
    pub hash: [u8; 16],
    /// At most [`MAX_LEASE_SETS`], none of them twice.
    pub rules: Vec<LeaseRule>,
}

/// The part of the request for one rule or tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRule {
    /// False in shadow: it denies no request.
    pub is_binding: bool,
    /// The cost of the client request that waits for the response; 0 when none waits.
    pub cost: u64,
    /// The lease part.
    pub ask: LeaseAsk,
}

/// The result for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// For [`read_leased`](crate::read_leased), and the rest of it for
    /// `PartitionMut::accept`.
    Decided(Vec<u8>),
    /// It could not be counted: `on_failure` decides.
    Failed,
    /// Too many requests are in progress: 503, whatever `on_failure` is.
    Overloaded,
}

/// The key of a fleet's message: SipHash-1-3 of 128 bits, keyed by the fleet's secret, of the
/// group's identity and the key. Without the secret it is not possible to identify the client, or
/// to find another one with the same hash.
#[must_use]
pub fn key_hash(secret: [u8; 16], group: u64, key: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_key(&secret);
    hasher.write_u64(group);
    hasher.write(key);
    hasher.finish128().as_bytes()
}

impl LeaseQuestion {
    /// Appends the message to `out`, without the parts that exceed the bounds.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(QUESTION);
        out.extend(self.policy.to_le_bytes());
        out.extend(self.table.to_le_bytes());
        let keys = || self.keys.iter().take(MAX_LEASE_KEYS);
        out.push(u8::try_from(keys().count()).unwrap_or(u8::MAX));
        for key in keys() {
            out.extend(key.group.to_le_bytes());
            out.extend(key.hash);
            let rules = || key.rules.iter().take(MAX_LEASE_SETS);
            out.push(u8::try_from(rules().count()).unwrap_or(u8::MAX));
            for rule in rules() {
                out.push(rule.is_binding.into());
                out.extend(rule.cost.to_le_bytes());
                rule.ask.write(out);
            }
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The bytes are not a message, or are too long.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = within(body, QUESTION)?;
        let (policy, table) = (bytes.u64()?, bytes.u128()?);
        let mut keys = Vec::new();
        for _ in 0..count(&mut bytes, MAX_LEASE_KEYS)? {
            let (group, hash) = (bytes.u64()?, bytes.u128()?.to_le_bytes());
            let mut rules = Vec::new();
            for _ in 0..count(&mut bytes, MAX_LEASE_SETS)? {
                let is_binding = match bytes.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(WireError::Malformed),
                };
                let cost = bytes.u64()?;
                rules.push(LeaseRule { is_binding, cost, ask: LeaseAsk::read(&mut bytes)? });
            }
            keys.push(LeaseKey { group, hash, rules });
        }
        bytes.end()?;
        Ok(Self { policy, table, keys })
    }
}

impl LeaseReply {
    /// Appends a response with these replies to `out`, in the order of the request's keys.
    pub fn write(replies: &[Self], out: &mut Vec<u8>) {
        out.extend(ANSWER);
        let replies = || replies.iter().take(MAX_LEASE_KEYS);
        out.push(u8::try_from(replies().count()).unwrap_or(u8::MAX));
        for reply in replies() {
            let (what, bytes) = match reply {
                Self::Decided(reply) => (0, reply.as_slice()),
                Self::Failed => (1, &[][..]),
                Self::Overloaded => (2, &[][..]),
            };
            out.push(what);
            out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }

    /// Reads a response.
    ///
    /// # Errors
    /// The bytes are not a response, or are too long.
    pub fn read(body: &[u8]) -> Result<Vec<Self>, WireError> {
        let mut bytes = within(body, ANSWER)?;
        let mut replies = Vec::new();
        for _ in 0..count(&mut bytes, MAX_LEASE_KEYS)? {
            let what = bytes.u8()?;
            let len = usize::try_from(bytes.u32()?).map_err(|_| WireError::Malformed)?;
            let reply = bytes.bytes(len)?;
            replies.push(match what {
                0 => Self::Decided(reply.to_vec()),
                1 if reply.is_empty() => Self::Failed,
                2 if reply.is_empty() => Self::Overloaded,
                _ => return Err(WireError::Malformed),
            });
        }
        bytes.end()?;
        Ok(replies)
    }
}

/// The rest after `head` of a body that is not too long.
fn within(body: &[u8], head: [u8; 8]) -> Result<Reader<'_>, WireError> {
    let is_short = body.len() <= MAX_LEASE_MESSAGE;
    body.strip_prefix(&head).filter(|_| is_short).map(Reader).ok_or(WireError::Malformed)
}

fn count(bytes: &mut Reader<'_>, most: usize) -> Result<u8, WireError> {
    let count = bytes.u8()?;
    if usize::from(count) > most { Err(WireError::Malformed) } else { Ok(count) }
}
