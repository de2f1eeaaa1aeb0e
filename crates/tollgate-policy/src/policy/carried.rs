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
use crate::policy::group::QuotaSet;
use crate::policy::record::find;
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

/// Brings `stored` into a value of the sets `own`, with what others wrote.
pub(crate) fn load<'k>(
    own: &[&QuotaSet],
    known: &'k Directory,
    stored: &[u8],
    now: Timestamp,
    value: &mut Vec<u8>,
) -> Carried<'k> {
    let Carried { mut moved, mut is_carried } = Carried::default();
    let (mut found, others) = of_others(own, known, stored, now);
    value.clear();
    let mut has_newer = false;
    for (set, found) in own.iter().zip(&mut found) {
        let own_states = find(stored, set);
        *found = found.take().filter(|found| {
            own_states.is_none() || found.known.generation > known.generation_of(set)
        });
        let newer = found.as_ref().map(|found| found.known);
        let newer = newer.filter(|newer| newer.generation > known.generation_of(set));
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

/// The records in `stored` that others wrote and that are not idle: the latest of each of the sets
/// `own`, in their order, and those of rules that the policy does not have.
fn of_others<'s, 'k>(
    own: &[&QuotaSet],
    known: &'k Directory,
    stored: &'s [u8],
    now: Timestamp,
) -> (Vec<Option<Found<'s, 'k>>>, Vec<Found<'s, 'k>>) {
    let mut found: Vec<Option<Found<'_, '_>>> = own.iter().map(|_| None).collect();
    let mut others = Vec::new();
    for (id, states) in records(stored) {
        if own.iter().any(|set| set.is_written_as(id)) {
            continue;
        }
        let Some((known, version)) = known.find(id) else { continue };
        // Of another length than its quotas' states: damaged, and nobody's.
        let Some(states) = known.set.states_of(version, states) else { continue };
        if known.set.idle_at(&states) <= now {
            continue; // as good as none, whoever's
        }
        let is_same = |set: &&QuotaSet| set.stable_id == known.set.stable_id();
        match own.iter().position(is_same).and_then(|i| found.get_mut(i)) {
            Some(Some(other)) if other.known.generation >= known.generation => {}
            Some(slot) => *slot = Some(Found { known, states }),
            None => others.push(Found { known, states }),
        }
    }
    (found, others)
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
