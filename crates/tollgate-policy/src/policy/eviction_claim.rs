//! The claim of a key's value to its place in a full bucket: the key with the least claim leaves.
//!
//! Invariant: an idle value has none, because forgetting it is no loss.

use tollgate_core::{FULLY_USED, Timestamp};

use crate::policy::compiled::Policy;
use crate::policy::directory::Directory;
use crate::policy::group::Group;
use crate::policy::record::UsedShare;

/// The claim of a value: the greatest share used, then the time at which it is forgotten anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictionClaim {
    share: UsedShare,
    idle_at: Timestamp,
}

impl Group {
    /// The claim of a value at `now`; `None` when it can be forgotten without loss. For records of
    /// other quotas than the policy's it follows the directory `known`.
    #[must_use]
    pub fn eviction_claim(
        &self,
        policy: &Policy,
        known: &Directory,
        value: &[u8],
        now: Timestamp,
    ) -> Option<EvictionClaim> {
        let idle_at = self.idle_at_with(policy, known, value);
        let share = || self.used_share_with(policy, known, value, now);
        (idle_at > now).then(|| EvictionClaim { share: share(), idle_at })
    }
}

impl EvictionClaim {
    /// True when the key had used half of a quota or more: a limited client, or one near its limit.
    #[must_use]
    pub const fn is_half_used(&self) -> bool {
        self.share.enforced.saturating_mul(2) >= FULLY_USED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Span;

    fn claim_of(enforced: u32, refuses_for: u64, shadow: u32, idle_at: u64) -> EvictionClaim {
        let refuses_for = Span::from_millis(refuses_for);
        let share = UsedShare { enforced, refuses_for, shadow };
        EvictionClaim { share, idle_at: Timestamp::from_millis(idle_at) }
    }

    #[test]
    fn the_share_counts_before_the_time_at_which_it_is_forgotten() {
        let rising = [
            claim_of(1, 0, 9, 9),
            claim_of(2, 0, 0, 1),
            claim_of(2, 0, 0, 2),
            claim_of(2, 0, 1, 1),
            claim_of(FULLY_USED, 5, 0, 1),
            claim_of(FULLY_USED, 6, 0, 0),
        ];
        assert!(rising.is_sorted_by(|one, other| one < other));
        assert!(rising.iter().all(|claim| Some(*claim) > None));
    }

    #[test]
    fn half_is_half_used() {
        assert!(claim_of(FULLY_USED / 2, 0, 0, 1).is_half_used());
        assert!(!claim_of(FULLY_USED / 2 - 1, 0, FULLY_USED, 1).is_half_used());
    }
}
