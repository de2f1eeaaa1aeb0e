//! Values that have few of the records that they could have: those that something was charged to,
//! in any order.
//!
//! Invariant: what is missing decides like never seen, so a record may leave once it is idle and
//! comes again as zeros; each is found by its identity, which no other of the group or the tenant
//! has. Where every record has its place instead, `record` has it.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::records::{
    RECORD_HEADER, filled, record_len, records, write_header, write_zeros,
};
use crate::policy::tenant::Tenant;

/// `stored` without the zeros that fill its last word, when all its records are of the group or the
/// tenant, in today's layout.
pub(crate) fn current<'s>(
    policy: &Policy,
    group: &Group,
    tenant: Option<&Tenant>,
    stored: &'s [u8],
) -> Option<&'s [u8]> {
    let value = filled(stored, records(stored).map(|(_, states)| record_len(states)).sum())?;
    let is_own = |(id, states): (u32, &[u8])| {
        own_by_id(policy, group, tenant, id).is_some_and(|set| set.len == states.len())
    };
    records(value).all(is_own).then_some(value)
}

/// Whose record says this: one of the group's sets, or of the tenant's.
fn own_by_id<'a>(
    policy: &'a Policy,
    group: &Group,
    tenant: Option<&'a Tenant>,
    id: u32,
) -> Option<&'a QuotaSet> {
    let mut of_tenant = tenant.into_iter().flat_map(|tenant| &tenant.sets);
    let own = group.by_id(id).and_then(|set| policy.sets.get(set));
    own.or_else(|| of_tenant.find(|set| set.id_in(set.version) == id))
}

/// Where the states of `set` begin in a sparse value, which has them from now on.
#[cold] // beside values in which every record has its place
pub(crate) fn offset_of(set: &QuotaSet, value: &mut Vec<u8>) -> usize {
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
    let mut kept = Vec::with_capacity(value.len());
    for (id, states) in records(value) {
        // Of a rule that the policy does not have nobody can say here.
        let is_idle = own_by_id(policy, group, tenant, id).is_some_and(|set| {
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
