//! Values that have few of the records that they could have: those that something was charged to,
//! in any order.
//!
//! Invariant: what is missing decides like never seen, so a record may leave once it is idle and
//! comes again as zeros; each is found by its identity, which no other of the group or the tenant
//! has. Where every record has its place instead, `record` has it.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use tollgate_core::Timestamp;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::records::{
    RECORD_HEADER, filled, record_len, records, write_header, write_zeros,
};
use crate::policy::tenant::Tenant;

/// `stored` without the zeros that fill its last word, when all its records are of the group or the
/// tenant, in today's layout
/// and consistent.
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

/// Whose record says this: one of the group's sets, or of the tenant's. `next` is the place where
/// it is looked for first, behind the one before: most values are in the order of the sets.
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

/// Where the states of `set` begin in a sparse value, which has them from now on; searched for only
/// where they are not `located`.
#[cold] // beside values in which every record has its place
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

/// Forgets what of a sparse value decides at `now` like never seen: without it a value would have a
/// record of every rule in the end.
pub(crate) fn forget_idle(
    policy: &Policy,
    group: &Group,
    tenant: Option<&Tenant>,
    value: &mut Vec<u8>,
    now: Timestamp,
) {
    let (mut kept, mut next) = (Vec::with_capacity(value.len()), 0);
    for (id, states) in records(value) {
        // Of a rule that the policy does not have nobody can say here.
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
