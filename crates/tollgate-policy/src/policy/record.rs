//! Stored values: the records of a group's rules, one after the other.
//!
//! A record's identity is that of the rule and its quotas, marked by the version of the states'
//! layout.
//!
//! Invariant: a record is read only by the quotas that wrote it, so a change of one rule never
//! resets or misreads another's states. Whatever bytes are loaded, decisions use states in the
//! current layout. States of an earlier version are converted wherever they are read, and written
//! back with the next charge. A value in the current layout has every record in its place or, when
//! the group [is sparse](Group::is_sparse), only the records that something was charged to.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use tollgate_core::{FULLY_USED, Limiter, Span, Timestamp};

use crate::policy::compiled::Policy;
use crate::policy::directory::Directory;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::records::{RECORD_HEADER, filled, record_header, records, write_header};
use crate::policy::sparse;
use crate::policy::tenant::Tenant;
use crate::spec::mode::Mode;

/// The share of its quotas that a value has used: the key with the smallest share is evicted first.
///
/// The greatest share of all quotas counts, not the number of units: 5 of 5 is denied, 500 of 1,000
/// is not. Shadow quotas come last, because evicting one allows no additional request: a client
/// that uses up a quota that denies no request must not outlast a client that is denied. Among the
/// clients that are denied now, the one that would be allowed soonest has the smallest share: else
/// one request under "1 a second" would weigh as much as a day's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedShare {
    /// The greatest share of the enforced quotas, in parts of [`FULLY_USED`].
    pub enforced: u32,
    /// The longest time for which a used-up enforced quota denies one more unit.
    pub refuses_for: Span,
    /// The greatest share of the quotas of rules in shadow.
    pub shadow: u32,
}

impl UsedShare {
    fn take_in(&mut self, is_shadow: bool, limiter: &Limiter, state: &[u8], now: Timestamp) {
        let used = limiter.used(state, now);
        if is_shadow {
            self.shadow = self.shadow.max(used);
            return;
        }
        self.enforced = self.enforced.max(used);
        if used == FULLY_USED {
            let wait = limiter.peek(state, now, 0).reset_after;
            self.refuses_for = self.refuses_for.max(wait);
        }
    }
}

/// The state of one quota in a value.
struct StateIn<'a> {
    /// The index of its rule, if the policy has it.
    rule: Option<u16>,
    limiter: &'a Limiter,
    state: &'a [u8],
}

impl Group {
    /// The time from which everything in `value` decides as for a key never seen, so that a store
    /// may drop it without loss. Any bytes are accepted; records of other rules do not count.
    #[must_use]
    pub fn idle_at(&self, policy: &Policy, value: &[u8]) -> Timestamp {
        self.idle_at_with(policy, &Directory::NONE, value)
    }

    /// The same with a directory: records of other quotas count by the parameters in it.
    #[must_use]
    pub fn idle_at_with(&self, policy: &Policy, known: &Directory, value: &[u8]) -> Timestamp {
        let mut latest = Timestamp::ZERO;
        self.each_state(policy, known, value, |StateIn { limiter, state, .. }| {
            latest = latest.max(limiter.idle_at(state));
        });
        latest
    }

    /// The share of its quotas that `value` has used at `now`. Any bytes are accepted; records of
    /// other rules do not count.
    #[must_use]
    pub fn used_share(&self, policy: &Policy, value: &[u8], now: Timestamp) -> UsedShare {
        self.used_share_with(policy, &Directory::NONE, value, now)
    }

    /// The same with a directory: records of other quotas count by the parameters in it, as
    /// enforced unless the policy has their rule in shadow.
    #[must_use]
    pub fn used_share_with(
        &self,
        policy: &Policy,
        known: &Directory,
        value: &[u8],
        now: Timestamp,
    ) -> UsedShare {
        let mut share = UsedShare::default();
        self.each_state(policy, known, value, |StateIn { rule, limiter, state }| {
            let rule = rule.and_then(|rule| policy.rules.get(usize::from(rule)));
            let is_shadow = rule.is_some_and(|rule| matches!(rule.terms.mode, Mode::Shadow));
            share.take_in(is_shadow, limiter, state, now);
        });
        share
    }

    /// True when `value` has a record that is neither in the policy nor in the directory.
    #[must_use]
    pub fn has_unknown(&self, policy: &Policy, known: &Directory, value: &[u8]) -> bool {
        current(policy, self, None, value).is_none()
            && records(value).any(|(id, _)| self.by_id(id).is_none() && known.find(id).is_none())
    }

    fn sets_in<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = &'a QuotaSet> {
        self.sets.iter().filter_map(|i| policy.sets.get(usize::from(*i)))
    }

    /// Calls `each` with every state of `value` whose quota is known.
    fn each_state(
        &self,
        policy: &Policy,
        known: &Directory,
        value: &[u8],
        mut each: impl FnMut(StateIn<'_>),
    ) {
        let mut each_of = |set: &QuotaSet, states: &[u8]| {
            for quota in &set.quotas {
                if let Some(state) = quota.state(states) {
                    each(StateIn { rule: Some(set.rule), limiter: &quota.limiter, state });
                }
            }
        };
        if self.is_sparse() {
            for (id, states) in records(value) {
                let set = self.by_id(id).and_then(|place| sparse::set_at(policy, self, place));
                let read = set.and_then(|set| Some((set, read_as(set, id, states)?.1)));
                read.into_iter().for_each(|(set, states)| each_of(set, &states));
            }
        }
        let current = current(policy, self, None, value);
        for set in self.sets_in(policy).filter(|_| !self.is_sparse()) {
            // At any position: a value may have an earlier policy's layout.
            let states = states(set, value).map(Cow::Borrowed);
            let states = states.or_else(|| find(value, set));
            states.into_iter().for_each(|states| each_of(set, &states));
        }
        if known.is_empty() || current.is_some() {
            return;
        }
        for (id, states) in records(value) {
            if self.by_id(id).is_some() {
                continue;
            }
            let Some((known, version)) = known.find(id) else { continue };
            let Some(states) = known.set.states_of(version, states) else { continue };
            let of_rule = |set: &&QuotaSet| set.stable_id == known.set.stable_id();
            let rule = self.sets_in(policy).find(of_rule).map(|set| set.rule);
            for quota in known.set.quotas() {
                if let Some(state) = quota.state(&states) {
                    each(StateIn { rule, limiter: quota.limiter(), state });
                }
            }
        }
    }
}

/// The states of `set` in a value of the current layout.
pub(crate) fn states<'v>(set: &QuotaSet, value: &'v [u8]) -> Option<&'v [u8]> {
    let Some(offset) = set.offset else { return appended(set, value) };
    let header = offset.checked_sub(RECORD_HEADER)?;
    let (id, _) = record_header(value.get(header..)?)?;
    if id != set.id_in(set.version) {
        return None;
    }
    value.get(offset..offset.checked_add(set.len)?)
}

/// The states of `set` in a value of the current layout, for writing. A sparse value may have them
/// `located`; missing states are added as zeros.
#[inline]
pub(crate) fn states_mut<'v>(
    set: &QuotaSet,
    located: Option<NonZeroU32>,
    value: &'v mut Vec<u8>,
) -> Option<&'v mut [u8]> {
    let offset = set.offset.unwrap_or_else(|| sparse::offset_of(set, located, value));
    value.get_mut(offset..offset.checked_add(set.len)?)
}

/// Appends the record of `set` with these states, which are in the current layout, to `value`.
pub(crate) fn append(set: &QuotaSet, states: &[u8], value: &mut Vec<u8>) {
    write_header(set.id_in(set.version), set.len, value);
    value.extend_from_slice(states);
}

/// The states of `set` among records that were [appended](append), in any order.
pub(crate) fn appended<'v>(set: &QuotaSet, value: &'v [u8]) -> Option<&'v [u8]> {
    record(value, set.id_in(set.version), set.len)
}

/// `stored` without the zeros that fill its last word, when every record has its place in the
/// current layout and is consistent; for a sparse group, when every record belongs to it.
pub(crate) fn current<'s>(
    policy: &Policy,
    group: &Group,
    tenant: Option<&Tenant>,
    stored: &'s [u8],
) -> Option<&'s [u8]> {
    if group.is_sparse() {
        return sparse::current(policy, group, tenant, stored);
    }
    let len = match tenant {
        None => group.value_len,
        Some(_) => sets(policy, group, tenant).map(QuotaSet::record_len).sum(),
    };
    let value = filled(stored, len)?;
    let is_current = |set| states(set, value).is_some_and(|states| set.is_consistent(states));
    sets(policy, group, tenant).all(is_current).then_some(value)
}

/// The sets that may count in a value of `group`, in the order of its records: the group's quotas,
/// then those of the tenant that the value belongs to.
pub(crate) fn sets<'a>(
    policy: &'a Policy,
    group: &'a Group,
    tenant: Option<&'a Tenant>,
) -> impl Iterator<Item = &'a QuotaSet> {
    let of_group = group.sets.iter().filter_map(|i| policy.sets.get(usize::from(*i)));
    let own = tenant.into_iter().flat_map(|tenant| &tenant.sets);
    let is_in_group = |set: &&QuotaSet| {
        let rule = policy.rules.get(set.rule());
        rule.is_some_and(|rule| {
            policy
                .groups
                .get(rule.group())
                .is_some_and(|other| other.spec.identity == group.spec.identity)
        })
    };
    of_group.chain(own.filter(is_in_group))
}

impl Tenant {
    /// The time from which the tenant's own quotas in `value`, of the group with this index, decide
    /// as for a key never seen.
    pub(crate) fn idle_at(&self, policy: &Policy, group: usize, value: &[u8]) -> Timestamp {
        let is_in = |set: &&QuotaSet| {
            policy.rules.get(set.rule()).is_some_and(|rule| rule.group() == group)
        };
        let mut latest = Timestamp::ZERO;
        for set in self.sets.iter().filter(is_in) {
            let Some(states) = states(set, value) else { continue };
            for quota in &set.quotas {
                if let Some(state) = quota.state(states) {
                    latest = latest.max(quota.limiter.idle_at(state));
                }
            }
        }
        latest
    }
}

/// The states of `set` from a record at any position and of any version, converted to the current
/// layout.
pub(crate) fn find<'s>(stored: &'s [u8], set: &QuotaSet) -> Option<Cow<'s, [u8]>> {
    (1..=set.version).rev().find_map(|version| {
        let id = set.id_in(version);
        Some(read_as(set, id, record(stored, id, set.len_in(version)?)?)?.1)
    })
}

/// The states of `set` in a record with the identity `id`, converted to the current layout and
/// repaired, and the version in which they were stored.
pub(crate) fn read_as<'s>(
    set: &QuotaSet,
    id: u32,
    states: &'s [u8],
) -> Option<(u8, Cow<'s, [u8]>)> {
    let version = (1..=set.version).rev().find(|version| set.id_in(*version) == id)?;
    if version == set.version {
        return (states.len() == set.len).then(|| (version, repaired(set, states)));
    }
    let states = Some(states).filter(|states| set.len_in(version) == Some(states.len()))?;
    Some((version, Cow::Owned(converted(set, version, states)?)))
}

/// The states of the record with this identity and this length, at any position.
fn record(stored: &[u8], wanted_id: u32, wanted_len: usize) -> Option<&[u8]> {
    let is_wanted = |(id, states): &(u32, &[u8])| *id == wanted_id && states.len() == wanted_len;
    records(stored).find(is_wanted).map(|(_, states)| states)
}

/// The states of `set`, repaired when they are inconsistent.
fn repaired<'s>(set: &QuotaSet, states: &'s [u8]) -> Cow<'s, [u8]> {
    let mut states = Cow::Borrowed(states);
    if !set.is_consistent(&states) {
        for quota in &set.quotas {
            if let Some(state) = quota.state_mut(states.to_mut()) {
                quota.limiter.repair(state);
            }
        }
    }
    states
}

/// The states of `set`, converted from `earlier`, which are in the layout of `version`.
fn converted(set: &QuotaSet, version: u8, earlier: &[u8]) -> Option<Vec<u8>> {
    let (mut states, mut rest) = (vec![0; set.len], earlier);
    for quota in &set.quotas {
        let (state, others) = rest.split_at_checked(quota.limiter.state_len_in(version)?)?;
        let is_state = quota.limiter.convert(version, state, quota.state_mut(&mut states)?);
        rest = is_state.then_some(others)?;
    }
    Some(states)
}
