//! The times that a `leaky-queue` has assigned for one key and one cost.
//!
//! Invariant: there is one taken time for every waiter; the first of the line has the soonest, and
//! so on. A spare time, which is charged but has no waiter, is never before a taken one.

use tollgate_core::Timestamp;

use crate::slab_map::SlabMap;

/// The times of a line.
#[derive(Debug, Default)]
pub(super) struct Places {
    taken: Times,
    spare: Times,
}

impl Places {
    /// Adds a waiter, with a time that was charged for it.
    pub(super) fn add(&mut self, at: Timestamp) {
        self.taken.add(at);
        if self.spare.first().is_some_and(|spare| spare < at)
            && let (Some(later), Some(sooner)) = (self.taken.pop_last(), self.spare.pop_first())
        {
            self.taken.add(sooner);
            self.spare.add(later);
        }
    }

    /// Adds a waiter, with a time that is spare.
    pub(super) fn take_spare(&mut self) -> Option<Timestamp> {
        let at = self.spare.pop_first()?;
        self.taken.add(at);
        Some(at)
    }

    /// Removes a waiter; returns the time that has no waiter now.
    pub(super) fn leave(&mut self) -> Option<Timestamp> {
        self.taken.pop_last()
    }

    /// Adds a time that could not be refunded.
    pub(super) fn keep(&mut self, at: Timestamp) {
        self.taken.add(at);
        if let Some(last) = self.taken.pop_last() {
            self.spare.add(last);
        }
    }

    /// The soonest time, with a waiter or without.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.taken.first().or_else(|| self.spare.first())
    }

    /// The time of the waiter after `ahead` others.
    pub(super) fn nth(&self, ahead: usize) -> Option<Timestamp> {
        self.taken.nth(ahead)
    }

    /// The taken times, from the last to the first.
    pub(super) fn last_first(&self) -> impl Iterator<Item = Timestamp> {
        let times = self.taken.numbers.iter().rev();
        times.flat_map(|(at, number)| {
            core::iter::repeat_n(*at, usize::try_from(*number).unwrap_or(usize::MAX))
        })
    }

    /// Removes the soonest time; false when it has no waiter.
    pub(super) fn go(&mut self) -> bool {
        self.taken.pop_first().is_some() || {
            self.spare.pop_first();
            false
        }
    }

    pub(super) const fn spare_len(&self) -> usize {
        self.spare.count
    }

    pub(super) fn next_spare(&self) -> Option<Timestamp> {
        self.spare.first()
    }
}

/// A multiset of times.
#[derive(Debug, Default)]
struct Times {
    numbers: SlabMap<Timestamp, u64>,
    count: usize,
}

impl Times {
    fn add(&mut self, at: Timestamp) {
        match self.numbers.get_mut(&at) {
            Some(number) => *number = number.saturating_add(1),
            None => self.numbers.insert(at, 1),
        }
        self.count = self.count.saturating_add(1);
    }

    fn first(&self) -> Option<Timestamp> {
        self.numbers.first().map(|(at, _)| *at)
    }

    fn nth(&self, before: usize) -> Option<Timestamp> {
        let mut before = u64::try_from(before).unwrap_or(u64::MAX);
        let mut times = self.numbers.iter();
        let found = times.find(|(_, number)| match before.checked_sub(**number) {
            Some(rest) => {
                before = rest;
                false
            }
            None => true,
        });
        found.map(|(at, _)| *at)
    }

    fn pop_first(&mut self) -> Option<Timestamp> {
        let at = self.first()?;
        self.take(at);
        Some(at)
    }

    fn pop_last(&mut self) -> Option<Timestamp> {
        let at = *self.numbers.last()?.0;
        self.take(at);
        Some(at)
    }

    fn take(&mut self, at: Timestamp) {
        let Some(number) = self.numbers.get_mut(&at) else { return };
        *number = number.saturating_sub(1);
        if *number == 0 {
            self.numbers.remove(&at);
        }
        self.count = self.count.saturating_sub(1);
    }
}
