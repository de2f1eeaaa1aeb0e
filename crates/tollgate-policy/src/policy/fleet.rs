//! The part of a policy that is counted for a fleet, by an authority that nodes ask.
//!
//! Invariant: nodes with the same identity here count by the same keys and quotas, whatever else
//! differs in their policies. A change of local rules, or another spelling, separates no node from
//! its authority.

use alloc::vec::Vec;
use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::policy::compiled::Policy;
use crate::policy::group::Group;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::sort::sort_by;

/// Derives the secret of a fleet from a text: SipHash-1-3 of 128 bits under a fixed key, so a text
/// of any length works. It is as strong as the text: use 16 random bytes or more.
#[must_use]
pub fn fleet_secret(text: &str) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_key(b"tollgate fleet 1");
    hasher.write(text.as_bytes());
    hasher.finish128().as_bytes()
}

/// Derives the secret with which a proxy reports keys (`hash_key` of its plugin) from a text, in
/// the same way as [`fleet_secret`]. The result for the same text is different.
#[must_use]
pub fn plugin_hash_key(text: &str) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_key(b"tollgate keys  1");
    hasher.write(text.as_bytes());
    hasher.finish128().as_bytes()
}

/// The rules of a policy that count for the fleet: [`Policy::fleet`].
#[derive(Clone, Copy, Debug)]
pub struct FleetRules<'p>(pub(crate) &'p Policy);

impl Policy {
    /// Its rules that count for the fleet: an authority keeps their counts.
    #[must_use]
    pub const fn fleet(&self) -> FleetRules<'_> {
        FleetRules(self)
    }
}

impl FleetRules<'_> {
    /// True when no rule counts for the fleet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.0.groups.iter().any(Group::is_fleet)
    }

    /// The identity of everything that is counted for the fleet: the definitions of the keys, and
    /// the name, quotas and scope of each rule and tier. It is the same on every surface and for
    /// every order of the rules. With tenants it is different: a node does not know which tenant's
    /// quotas apply.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let policy = self.0;
        let mut groups: Vec<&Group> =
            policy.groups.iter().filter(|group| group.is_fleet()).collect();
        sort_by(&mut groups, |one, other| one.identity().cmp(&other.identity()));
        let mut bytes = Vec::new();
        if policy.tenant.is_some() {
            bytes.push(1);
        }
        for group in groups {
            bytes.extend(group.identity().to_le_bytes());
            let sets = group.sets.iter().filter_map(|set| policy.sets.get(usize::from(*set)));
            let mut sets: Vec<_> = sets.collect();
            sort_by(&mut sets, |one, other| one.stable_id.cmp(&other.stable_id));
            for set in sets {
                set.write_parameters(&mut bytes);
            }
        }
        stable_hash(&[&bytes])
    }
}
