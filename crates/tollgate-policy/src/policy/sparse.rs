//! Sparse values: they contain only the records that something was charged to, in any order.
//!
//! Invariant: a missing record decides as for a key never seen, so a record may be removed once it
//! is idle, and is added again as zeros. Each is found by its identity, which is unique in the
//! group and the tenant. Values in which every record has its place are in `record`.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use tollgate_core::Timestamp;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::records::{
    RECORD_HEADER, filled, record_len, records, write_header, write_zeros,
};
use crate::policy::tenant::Tenant;

/// `stored` without the zeros that fill its last word, when all its records belong to the group or
/// the tenant, are in the current layout and are consistent.
pub(crate) fn current<'s>(
    policy: &Policy,
    group: &Group,
    tenant: Option<&Tenant>,
    stored: &'s [u8],
) -> Option<&'s [u8]> {
    let value = filled(stored, records(stored).map(|(_, states)| record_len(states)).sum())?;
    let mut next = 0;
    let is_own = |(id, states): (u32, &[u8])| {
        let own = own_by_id(policy, group, tenant, id, &mut next);
        own.is_some_and(|set| set.len == states.len() && set.is_consistent(states))
    };
    records(value).all(is_own).then_some(value)
}

/// The set with this record identity: one of the group's sets, or of the tenant's. `next` is the
/// place that is tried first, the one after the previous record: most values are in the order of
/// the sets.
fn own_by_id<'a>(
    policy: &'a Policy,
    group: &Group,
    tenant: Option<&'a Tenant>,
    id: u32,
    next: &mut usize,
) -> Option<&'a QuotaSet> {
    let is_its = |set: &&QuotaSet| set.id_in(set.version) == id;
    let at = |place: usize| Some((place, set_at(policy, group, place).filter(is_its)?));
    if let Some((place, set)) = at(*next).or_else(|| at(group.by_id(id)?)) {
        *next = place.saturating_add(1);
        return Some(set);
    }
    tenant.into_iter().flat_map(|tenant| &tenant.sets).find(is_its)
}

/// The set of `group` in this place.
pub(crate) fn set_at<'p>(policy: &'p Policy, group: &Group, place: usize) -> Option<&'p QuotaSet> {
    policy.sets.get(usize::from(*group.sets.get(place)?))
}

/// The offset of the states of `set` in a sparse value, to which they are added if missing. They
/// are searched for only when they are not `located`.
#[cold] // compared with values in which every record has its place
pub(crate) fn offset_of(set: &QuotaSet, located: Option<NonZeroU32>, value: &mut Vec<u8>) -> usize {
    if let Some(offset) = located.and_then(|offset| usize::try_from(offset.get()).ok()) {
        return offset;
    }
    let mut offset = RECORD_HEADER;
    for (id, states) in records(value) {
        if id == set.id_in(set.version) && states.len() == set.len {
            return offset;
        }
        offset = offset.saturating_add(record_len(states));
    }
    write_zeros(set.id_in(set.version), set.len, value);
    value.len().saturating_sub(set.len)
}

/// Removes the records of a sparse value that decide at `now` as for a key never seen; otherwise a
/// value would eventually have a record of every rule.
pub(crate) fn forget_idle(
    policy: &Policy,
    group: &Group,
    tenant: Option<&Tenant>,
    value: &mut Vec<u8>,
    now: Timestamp,
) {
    let (mut kept, mut next) = (Vec::with_capacity(value.len()), 0);
    for (id, states) in records(value) {
        // The policy cannot decide this for a record of a rule that it does not have.
        let is_idle = own_by_id(policy, group, tenant, id, &mut next).is_some_and(|set| {
            let mut all = set.quotas.iter();
            all.all(|it| it.state(states).is_some_and(|state| it.limiter.idle_at(state) <= now))
        });
        if !is_idle {
            write_header(id, states.len(), &mut kept);
            kept.extend_from_slice(states);
        }
    }
    *value = kept;
}
