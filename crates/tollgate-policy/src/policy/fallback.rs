//! The local counts that a node uses while no authority keeps the count of the fleet.
//!
//! Invariant: they have their own groups and records, after all others. No value is shared with the
//! fleet, and no other index depends on them. A surface that keeps the count of the fleet has none.

use alloc::vec::Vec;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::spec::policy::{Fixed, GroupSpec};
use crate::spec::rule::FALLBACK;
use crate::stable_hash::stable_hash;

impl Policy {
    /// Adds the set that replaces the set `of`, once all rules are added; `None` when there is no
    /// such set.
    pub(crate) fn add_fallback(
        &mut self,
        of: u16,
        record_id: u32,
        quotas: Vec<CompiledQuota>,
    ) -> Option<()> {
        let whole = self.sets.get(usize::from(of))?;
        let (rule, tier) = (whole.rule, whole.tier.clone());
        let compiled = self.rules.get(usize::from(rule))?;
        let (name, group) = (compiled.terms.name.as_bytes(), compiled.terms.group);
        let tier_name = tier.as_deref().unwrap_or_default().as_bytes();
        let stable_id = stable_hash(&[name, tier_name, FALLBACK]);
        let set = QuotaSet {
            stable_id,
            ..QuotaSet::new((rule, &compiled.terms.name), tier, record_id, quotas)
        };
        let place = u16::try_from(self.sets.len()).ok()?;
        self.sets.push(set);
        self.sets.get_mut(usize::from(of))?.fallback = Some(place);
        let group = self.own_group(group)?;
        self.groups.get_mut(usize::from(group))?.sets.push(place);
        Some(())
    }

    /// The group of a node's local counts for a group of the fleet; a new one for its first rule.
    fn own_group(&mut self, fleet: u16) -> Option<u16> {
        let whole = self.groups.get(usize::from(fleet))?;
        if let Some(group) = whole.fallback {
            return Some(group);
        }
        let identity = stable_hash(&[&whole.identity().to_le_bytes(), FALLBACK]);
        let own = Group::new(GroupSpec {
            identity: Fixed(identity),
            is_fleet: false,
            shards: None,
            ..whole.spec.clone()
        });
        let place = u16::try_from(self.groups.len()).ok()?;
        self.groups.push(own);
        self.groups.get_mut(usize::from(fleet))?.fallback = Some(place);
        Some(place)
    }
}
