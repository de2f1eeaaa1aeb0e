//! Values with records of other policies: the usage of a client continues under the current quotas.
//!
//! Invariant: of all records with usage of one rule or tier, one is kept, the one that the latest
//! configuration wrote. A record of an earlier configuration is converted to the policy's own
//! record. A record of a later configuration is unchanged, and its own quotas decide. A record of a
//! rule that this policy does not have is kept until it is idle. No count is lost to the
//! configuration of another writer, and no quota reads a record that it did not write. Values in
//! the policy's own layout, which are all values except the first of each key after a change, never
//! come here.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::iter;

use tollgate_core::Timestamp;

use crate::policy::directory::{Directory, KnownSet};
use crate::policy::group::{Group, QuotaSet};
use crate::policy::record::read_as;
use crate::policy::records::{RECORD_HEADER, records, write_header};
use crate::spec::bounds::MAX_VALUE_LEN;
use tollgate_storage::carry_set;

/// The position of a set's record in a value that is not in the policy's layout.
pub(crate) struct Moved<'k> {
    /// The offset of its states; `None` for sparse values.
    pub(crate) offset: Option<usize>,
    /// The newer quotas that wrote it; `None` for the policy's own.
    pub(crate) newer: Option<&'k KnownSet>,
}

/// A value under construction.
#[derive(Default)]
pub(crate) struct Carried<'k> {
    /// The position of the record of each of the policy's sets, in their order; empty when the
    /// records are in the policy's layout, with records of other rules after them.
    pub(crate) moved: Vec<Moved<'k>>,
    /// True when usage under earlier quotas was converted to the policy's own record.
    pub(crate) is_carried: bool,
}

/// The stored states of one of the policy's sets, or a record of a rule that the policy does not
/// have.
#[derive(Clone)]
struct Found<'s, 'k> {
    known: &'k KnownSet,
    /// In the current layout.
    states: Cow<'s, [u8]>,
}

/// Converts `stored` to a value of the sets `own`, which are those of `group` followed by a
/// tenant's, and keeps the records of other writers.
pub(crate) fn load<'k>(
    group: &Group,
    own: &[&QuotaSet],
    known: &'k Directory,
    stored: &[u8],
    now: Timestamp,
    value: &mut Vec<u8>,
) -> Carried<'k> {
    let Carried { mut moved, mut is_carried } = Carried::default();
    let (slots, others) = read(group, own, known, stored, now);
    value.clear();
    let mut has_newer = false;
    for (set, Slot { own, mut found }) in own.iter().zip(slots) {
        let own_states = own.map(|(_, states)| states);
        let generation = found.as_ref().map_or(0, |_| known.generation_of(set));
        found = found.filter(|it| own_states.is_none() || it.known.generation > generation);
        let newer = found.as_ref().map(|found| found.known);
        let newer = newer.filter(|newer| newer.generation > generation);
        has_newer |= newer.is_some();
        if own_states.is_none() && found.is_none() && set.offset.is_none() {
            moved.push(Moved { offset: None, newer });
            continue;
        }
        let (id, len) = newer.map_or_else(
            || (set.id_in(set.version), set.len),
            |newer| (newer.set.id_in(newer.set.version()), newer.set.states_len()),
        );
        write_header(id, len, value);
        let offset = value.len();
        moved.push(Moved { offset: set.offset.map(|_| offset), newer });
        match (own_states, &found) {
            (Some(states), None) => value.extend_from_slice(&states),
            (_, Some(found)) if newer.is_some() => value.extend_from_slice(&found.states),
            (_, Some(found)) => {
                value.extend(iter::repeat_n(0, set.len));
                let out = value.get_mut(offset..).unwrap_or_default();
                is_carried = true;
                carry_set(&found.known.set, &found.states, set.limiters(), now, out);
            }
            (None, None) => value.extend(iter::repeat_n(0, set.len)),
        }
    }
    if !has_newer {
        moved.clear();
    }
    keep(&others, value);
    Carried { moved, is_carried }
}

/// The stored records of one of the policy's sets.
#[derive(Default)]
struct Slot<'s, 'k> {
    /// Its own states of the latest version, in the current layout.
    own: Option<(u8, Cow<'s, [u8]>)>,
    /// The latest record of another writer that is not idle.
    found: Option<Found<'s, 'k>>,
}

/// Reads `stored` record by record: the records of each of the sets `own`, in their order, and
/// those of rules that the policy does not have.
fn read<'s, 'k>(
    group: &Group,
    own: &[&QuotaSet],
    known: &'k Directory,
    stored: &'s [u8],
    now: Timestamp,
) -> (Vec<Slot<'s, 'k>>, Vec<Found<'s, 'k>>) {
    let mut slots: Vec<Slot<'_, '_>> = own.iter().map(|_| Slot::default()).collect();
    let mut others = Vec::new();
    for (id, states) in records(stored) {
        if let Some(place) = place_of(group, own, id) {
            let read = own.get(place).and_then(|set| read_as(set, id, states));
            if let (Some(slot), Some(read)) = (slots.get_mut(place), read)
                && slot.own.as_ref().is_none_or(|(version, _)| *version < read.0)
            {
                slot.own = Some(read);
            }
            continue;
        }
        let Some((known, version)) = known.find(id) else { continue };
        // The length differs from that of its quotas' states: the record is damaged and is ignored.
        let Some(states) = known.set.states_of(version, states) else { continue };
        if known.set.idle_at(&states) <= now {
            continue; // an idle record equals none
        }
        let name = known.set.stable_id();
        let place = place(group, own, group.by_name.find(name), |set| set.stable_id == name);
        match place.and_then(|place| slots.get_mut(place)) {
            Some(Slot { found: Some(other), .. }) if other.known.generation >= known.generation => {
            }
            Some(slot) => slot.found = Some(Found { known, states }),
            None => others.push(Found { known, states }),
        }
    }
    (slots, others)
}

/// The place of the set whose record has this identity, in any version of its states. `own` are the
/// sets of `group` followed by a tenant's.
pub(crate) fn place_of(group: &Group, own: &[&QuotaSet], id: u32) -> Option<usize> {
    place(group, own, group.by_id(id), |set| set.ids().any(|its| its == id))
}

/// The place `found` among the group's sets, else the place among the tenant's.
fn place(
    group: &Group,
    own: &[&QuotaSet],
    found: Option<usize>,
    is_it: impl Fn(&QuotaSet) -> bool,
) -> Option<usize> {
    found.or_else(|| {
        let of_tenant = own.get(group.sets.len()..)?.iter().position(|set| is_it(set))?;
        group.sets.len().checked_add(of_tenant)
    })
}

/// Appends the records of rules that the policy does not have. Records that exceed the longest
/// value are left out, the last ones first.
fn keep(others: &[Found<'_, '_>], value: &mut Vec<u8>) {
    for Found { known, states } in others {
        let len = value.len().saturating_add(RECORD_HEADER).saturating_add(states.len());
        if len <= MAX_VALUE_LEN {
            write_header(known.set.id_in(known.set.version()), states.len(), value);
            value.extend_from_slice(states);
        }
    }
}
