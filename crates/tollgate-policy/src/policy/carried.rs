//! Values with records of other policies: what a client used goes on under the quotas of today.
//!
//! Invariant: of all records that say what one rule or tier has used, one is kept, the one that the
//! latest configuration wrote. One of an earlier configuration becomes the policy's own record; one
//! of a later one stays as it is, and is decided by its own quotas; one of a rule that this policy
//! does not have stays until it is idle. Nobody's count is lost to another's configuration, and
//! none is read by quotas that did not write it. Values in the policy's own layout, which are all
//! but the first of each key after a change, never come here.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::iter;

use tollgate_core::Timestamp;

use crate::policy::directory::{Directory, KnownSet};
use crate::policy::group::{Group, QuotaSet};
use crate::policy::record::read_as;
use crate::policy::records::{RECORD_HEADER, records, write_header};
use crate::policy::stored_set::carry_set;
use crate::policy::table_size::MAX_VALUE_LEN;

/// Where the record of a set lies in a value that is not in the policy's layout.
pub(crate) struct Moved<'k> {
    /// Where its states begin; `None` where values are sparse.
    pub(crate) offset: Option<usize>,
    /// The newer quotas that wrote it; `None` for the policy's own.
    pub(crate) newer: Option<&'k KnownSet>,
}

/// A value in the making.
#[derive(Default)]
pub(crate) struct Carried<'k> {
    /// Where the record of each of the policy's sets lies, in their order; nothing when they lie as
    /// in the policy's layout, with records of other rules behind them.
    pub(crate) moved: Vec<Moved<'k>>,
    /// True when what was used under earlier quotas became the policy's own record.
    pub(crate) is_carried: bool,
}

/// What is stored of one of the policy's sets, or is a record of a rule that it does not have.
#[derive(Clone)]
struct Found<'s, 'k> {
    known: &'k KnownSet,
    /// In today's layout.
    states: Cow<'s, [u8]>,
}

/// Brings `stored` into a value of the sets `own`, which are those of `group` and then a tenant's,
/// with what others wrote.
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
                carry_set(&found.known.set, &found.states, &set.to_stored(), now, out);
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

/// What is stored of one of the policy's sets.
#[derive(Default)]
struct Slot<'s, 'k> {
    /// Its own states of the latest version, in today's layout.
    own: Option<(u8, Cow<'s, [u8]>)>,
    /// What others wrote and is not idle: the latest.
    found: Option<Found<'s, 'k>>,
}

/// What `stored` holds, record by record: of each of the sets `own`, in their order, and of rules
/// that the policy does not have.
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
        // Of another length than its quotas' states: damaged, and nobody's.
        let Some(states) = known.set.states_of(version, states) else { continue };
        if known.set.idle_at(&states) <= now {
            continue; // as good as none, whoever's
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

/// The place among `own`, which are the sets of `group` and then a tenant's, of the one whose
/// record says this, in any version of its states.
pub(crate) fn place_of(group: &Group, own: &[&QuotaSet], id: u32) -> Option<usize> {
    place(group, own, group.by_id(id), |set| set.ids().any(|its| its == id))
}

/// The place that was `found` among the group's sets, else among the tenant's.
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

/// Appends the records of rules that the policy does not have. Of more than one value can hold the
/// last ones are left out.
fn keep(others: &[Found<'_, '_>], value: &mut Vec<u8>) {
    for Found { known, states } in others {
        let len = value.len().saturating_add(RECORD_HEADER).saturating_add(states.len());
        if len <= MAX_VALUE_LEN {
            write_header(known.set.id_in(known.set.version()), states.len(), value);
            value.extend_from_slice(states);
        }
    }
}
