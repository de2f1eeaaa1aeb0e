//! What of a policy is counted for a fleet, by an authority that nodes ask.
//!
//! Invariant: whoever has the same identity here counts by the same keys and quotas, whatever else
//! their policies say: a change of local rules, or another spelling, parts no node from its
//! authority.

use alloc::vec::Vec;
use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::policy::compiled::Policy;
use crate::policy::group::Group;
use crate::sort::sort_by;
use crate::stable_hash::stable_hash;

/// The secret of a fleet out of its text: SipHash-1-3 of 128 bits under a fixed key, so that a text
/// of any length will do. It is as good as the text: take 16 random bytes or more.
#[must_use]
pub fn fleet_secret(text: &str) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_key(b"tollgate fleet 1");
    hasher.write(text.as_bytes());
    hasher.finish128().as_bytes()
}

/// The secret that a proxy reports keys with (`hash_key` of its plugin) out of its text, in the
/// same way as [`fleet_secret`]; another one for the same text.
#[must_use]
pub fn plugin_hash_key(text: &str) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_key(b"tollgate keys  1");
    hasher.write(text.as_bytes());
    hasher.finish128().as_bytes()
}

impl Policy {
    /// True when a rule's count is the fleet's: an authority keeps it.
    #[must_use]
    pub fn has_fleet(&self) -> bool {
        self.groups.iter().any(Group::is_fleet)
    }

    /// The identity of all that is counted for the fleet: of the keys' definitions, and of each
    /// rule's and tier's name, quotas and scope. The same on every surface, in whatever order the
    /// rules stand. With tenants it is another one: a node does not know whose quotas hold.
    #[must_use]
    pub fn fleet_fingerprint(&self) -> u64 {
        let mut groups: Vec<&Group> = self.groups.iter().filter(|group| group.is_fleet()).collect();
        sort_by(&mut groups, |one, other| one.identity.cmp(&other.identity));
        let mut bytes = Vec::new();
        if self.has_tenants() {
            bytes.push(1);
        }
        for group in groups {
            bytes.extend(group.identity.to_le_bytes());
            let sets = group.sets.iter().filter_map(|set| self.sets.get(usize::from(*set)));
            let mut sets: Vec<_> = sets.collect();
            sort_by(&mut sets, |one, other| one.stable_id.cmp(&other.stable_id));
            for set in sets {
                set.write_parameters(&mut bytes);
            }
        }
        stable_hash(&[&bytes])
    }
}
