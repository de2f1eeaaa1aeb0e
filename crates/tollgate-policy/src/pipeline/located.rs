//! The positions of the records of a request's rules in a long value.
//!
//! Invariant: a position belongs to the current bytes of the value. Every decision and every refund
//! locates first, and records are added to a value at its end. One search for all rules takes time
//! in proportion to their number, one search per rule would take the square of it. A few rules are
//! searched one by one.

use core::num::NonZeroU32;

use tollgate_core::Timestamp;

use crate::pipeline::applied::{AppliedRule, AppliedSet};
use crate::pipeline::partition::PartitionMut;
use crate::pipeline::partitions::Stored;
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, PLACED_UP_TO, QuotaSet};
use crate::policy::record;
use crate::policy::records::{RECORD_HEADER, record_len, records, write_zeros};
use crate::policy::sparse;

/// With more rules than this, one search locates all.
const FEW: usize = 16;

impl PartitionMut<'_> {
    /// Finds the records of many rules. Before another record is added to a long value, idle
    /// records are removed.
    #[inline]
    pub(crate) fn locate(&mut self, policy: &Policy, now: Timestamp) {
        let is_long = self.stored.value.len() > PLACED_UP_TO;
        if is_long || self.applied.len() > FEW {
            self.locate_in_long(policy, now);
        }
    }

    #[cold]
    fn locate_in_long(&mut self, policy: &Policy, now: Timestamp) {
        let Self { index, stored, applied, .. } = self;
        let Stored { group, tenant, value, status, .. } = &mut **stored;
        let group = policy.groups.get(usize::from(*group));
        let Some(group) = group.filter(|it| it.is_sparse() && status.is_loaded()) else { return };
        let of_many = applied.len() > FEW;
        if of_many {
            locate_all(policy, group, *index, value, applied);
        }
        let own = applied.iter().filter(|it| it.counts_in(*index) && it.located.is_none());
        let is_new = |set: &QuotaSet| record::states(set, value).is_none();
        let mut missing = own.filter_map(|it| policy.applied_set(it));
        if value.len() > PLACED_UP_TO && missing.any(|set| of_many || is_new(set)) {
            sparse::forget_idle(policy, group, tenant.as_deref(), value, now);
            if of_many {
                locate_all(policy, group, *index, value, applied);
            }
        }
        if of_many {
            let own = applied.iter_mut().filter(|it| it.counts_in(*index));
            for applied in own.filter(|it| it.located.is_none()) {
                let set = policy.applied_set(applied).map(|set| (set.id_in(set.version), set.len));
                let Some((id, len)) = set else { continue };
                applied.located = at(value.len().saturating_add(RECORD_HEADER));
                write_zeros(id, len, value);
            }
        }
    }
}

/// Stores the offset of its states for each rule that counts in the partition `index`, a value of
/// `group`.
fn locate_all(
    policy: &Policy,
    group: &Group,
    index: usize,
    value: &[u8],
    applied: &mut [AppliedRule],
) {
    applied.iter_mut().filter(|it| it.counts_in(index)).for_each(|it| it.located = None);
    let mut offset = RECORD_HEADER;
    for (id, states) in records(value) {
        let counts_by = |applied: &AppliedRule| {
            let set = policy.applied_set(applied).filter(|_| applied.counts_in(index));
            set.is_some_and(|set| set.id_in(set.version) == id && set.len == states.len())
        };
        let is_other = |it: &AppliedRule| !matches!(it.set, AppliedSet::OfPolicy(_));
        let own = group.by_id(id).and_then(|place| sparse::set_at(policy, group, place));
        let place = match own {
            Some(set) => applied.binary_search_by_key(&set.rule, |it| it.rule).ok(),
            None => applied.iter().position(|it| is_other(it) && counts_by(it)),
        };
        if let Some(applied) = place.and_then(|place| applied.get_mut(place))
            && counts_by(applied)
        {
            applied.located = applied.located.or(at(offset));
        }
        offset = offset.saturating_add(record_len(states));
    }
}

/// An offset after a record's header; every value is shorter than the maximum of this type.
fn at(offset: usize) -> Option<NonZeroU32> {
    u32::try_from(offset).ok().and_then(NonZeroU32::new)
}
