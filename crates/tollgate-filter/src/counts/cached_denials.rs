//! Denials that are repeated without reading the tables.
//!
//! Invariant: a denial is remembered on a value that was read after the number under which it is
//! remembered, and is repeated only while that number is unchanged: so no charge that was in the
//! value has been taken back since. The number is read only for a key that was denied before: a
//! request that is allowed does not pay for it, and its value has no bytes, which are the expensive
//! part of a read.
//!
//! Deliberately absent: which denials these are; see `final_denials`.

use core::num::NonZeroU64;
use std::borrow::Cow;

use crate::counts::enforce::Enforcement;
use crate::host::shared_data::{Change, SharedCell, SharedData, Stored};

impl<S: SharedData> Enforcement<'_, S> {
    /// The number under which a denial of this request may be remembered; `None` where none may, or
    /// the number was not read because the key was not denied before.
    pub(crate) fn refund_version(&self) -> Option<u32> {
        let (group, key) = self.only_key()?;
        if !self.config.final_denials.are_taken_back() {
            return Some(0);
        }
        if !self.scratch.denials.contains(group, key) {
            return None;
        }
        match self.shared.get(&self.config.tables.get(group)?.refunds_name()) {
            Stored::Absent => Some(0),
            Stored::Value(_, number) => Some(number),
            Stored::Unreachable => None,
        }
    }

    /// Decides on the value of an earlier denial, if there is one; true when that still denies.
    pub(crate) fn is_denied_from_cache(&mut self, since: Option<u32>) -> bool {
        let (Some((group, key)), Some(since)) = (self.only_key(), since) else { return false };
        let Some(value) = self.scratch.denials.get(group, key, since) else { return false };
        let Some(mut partition) = self.plan.partition_mut(0) else { return false };
        partition.load(&self.config.policy, Some(value));
        self.plan.decide(&self.config.policy, self.now);
        // A denial that starts a penalty must be written.
        !self.is_changed(0) && self.config.final_denials.has(self.plan.outcome(&self.config.policy))
    }

    /// Remembers the value of a denial by a quota, and forgets it after the key was allowed.
    pub(crate) fn remember_denial(&mut self, since: Option<u32>) {
        let Some((group, key)) = self.only_key() else { return };
        let is_final = || self.config.final_denials.has(self.plan.outcome(&self.config.policy));
        let partition = if self.is_changed(0) { None } else { self.plan.partition(0) };
        match partition.filter(|_| is_final()) {
            Some(partition) => self.scratch.denials.put(group, key, partition.value(), since),
            None => self.scratch.denials.forget(group, key),
        }
    }

    /// Records that a charge was taken back. A worker that loses the race for this record loses it
    /// to a worker that records it after this charge was taken back.
    pub(crate) fn record_refund(&self, index: usize) {
        let table = self.plan.partition(index).and_then(|it| self.config.tables.get(it.group()));
        let Some(table) = table.filter(|_| self.config.final_denials.are_taken_back()) else {
            return;
        };
        let name = table.refunds_name();
        let cell = SharedCell::new(self.shared, &name);
        let _ = cell.change_once(|_| Change::Write(Cow::Borrowed(&[]), ()));
    }

    /// The group and the key of a request that has one.
    fn only_key(&self) -> Option<(usize, NonZeroU64)> {
        if !self.config.final_denials.is_any() || self.plan.len() != 1 {
            return None;
        }
        Some((self.plan.partition(0)?.group(), self.read(0)?.fingerprint?))
    }
}
