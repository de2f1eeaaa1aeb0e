//! The settled costs that are remembered, so that no charge is refunded twice.
//!
//! Invariant: an id is settled once. A settled cost is dropped after [`SETTLE_WITHIN`], or in
//! favour of a later one when there are [`MAX_SETTLED`]; then no charge up to its time is refunded
//! any more, so dropping is on the strict side. The same holds when counts were
//! [lost](SettledCosts::lose): later settlements are remembered as usual, so a higher cost that is
//! reported repeatedly is charged one more time at most.

use alloc::vec::Vec;

use tollgate_core::{ALLOWED_SKEW, Span, Timestamp};

/// How long a charge can be settled: 10 minutes, by the clock of the process that counts.
pub const SETTLE_WITHIN: Span = Span::from_secs(600);

/// The most settled costs that are remembered per key: 32 KiB of its row. When more are settled in
/// [`SETTLE_WITHIN`], only the later ones are refunded.
pub const MAX_SETTLED: usize = 1024;

/// A settled charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// A random number of its request.
    pub(crate) id: u64,
    pub(crate) charged_at: Timestamp,
    /// The cost at which it was settled.
    pub(crate) cost: u64,
    /// The charged units of that cost.
    pub(crate) charged: u64,
}

/// The settled costs of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledCosts {
    /// No charge up to this time is refunded.
    pub(crate) kept_until: Timestamp,
    /// In the order of their charges.
    pub(crate) all: Vec<Settled>,
}

impl SettledCosts {
    /// The settled cost, if it is remembered.
    pub(crate) fn find(&self, id: u64, charged_at: Timestamp) -> Option<&Settled> {
        self.all.iter().find(|settled| (settled.id, settled.charged_at) == (id, charged_at))
    }

    /// True when a charge of that time may be refunded at `now`. A time that this clock has not
    /// reached comes from another clock.
    pub(crate) fn may_give_back(&self, charged_at: Timestamp, now: Timestamp) -> bool {
        charged_at > self.kept_until && charged_at <= now.saturating_add(ALLOWED_SKEW)
    }

    /// Adds a settled cost, and drops those that are too old. False when it is not kept: as many
    /// were charged later, or its time is one that this clock has not reached, so that it would be
    /// the last one to be dropped.
    pub(crate) fn remember(&mut self, settled: Settled, now: Timestamp) -> bool {
        if settled.charged_at > now.saturating_add(ALLOWED_SKEW) {
            return false;
        }
        let place = self.all.partition_point(|other| other.charged_at <= settled.charged_at);
        self.all.insert(place, settled);
        let old = self.all.partition_point(|it| now.since(it.charged_at) > SETTLE_WITHIN);
        let beyond = self.all.len().saturating_sub(MAX_SETTLED);
        let gone = self.all.drain(..old.max(beyond)).next_back();
        if let Some(gone) = gone {
            self.kept_until = self.kept_until.max(gone.charged_at);
        }
        place >= old.max(beyond)
    }

    /// Charges up to `now` are no longer known. None of them is refunded any more: it may have been
    /// refunded already, and later usage is not part of it.
    pub(crate) fn lose(&mut self, now: Timestamp) {
        self.kept_until = self.kept_until.max(now.saturating_add(ALLOWED_SKEW));
    }

    /// The time of a recent [loss](Self::lose), as of `now`; time 0 when there was none, or when it
    /// is longer ago than the longest life of a lease.
    pub(crate) fn lost_at(&self, now: Timestamp) -> Timestamp {
        // Otherwise it is the time of a charge, which has passed.
        let is_lost = self.kept_until > now;
        if is_lost { self.kept_until.saturating_sub(ALLOWED_SKEW) } else { Timestamp::ZERO }
    }

    /// The time from which all of it may be dropped, even by a clock that oscillates.
    pub(crate) fn idle_at(&self) -> Timestamp {
        let last = self.all.last().map_or(Timestamp::ZERO, |settled| settled.charged_at);
        match self.kept_until.max(last) {
            Timestamp::ZERO => Timestamp::ZERO,
            last => last.saturating_add(SETTLE_WITHIN).saturating_add(ALLOWED_SKEW),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    fn one(id: u64, charged_at: Timestamp) -> Settled {
        Settled { id, charged_at, cost: 1, charged: 1 }
    }

    #[test]
    fn who_is_forgotten_is_not_given_back() {
        let mut costs = SettledCosts::default();
        let most = u64::try_from(MAX_SETTLED).unwrap();
        for i in 0..most {
            costs.remember(one(i, at(1_000 + i / 4)), at(1_300));
        }
        assert!(costs.find(0, at(1_000)).is_some() && costs.may_give_back(at(1_000), at(1_300)));
        // Full: the earliest charge is dropped, even if it is the new one.
        costs.remember(one(most, at(1_300)), at(1_300));
        assert_eq!((costs.all.len(), costs.kept_until), (MAX_SETTLED, at(1_000)));
        assert!(costs.find(0, at(1_000)).is_none() && !costs.may_give_back(at(1_000), at(1_300)));
        assert!(costs.may_give_back(at(1_001), at(1_300)));
        // Too old: all of them are dropped, and a clock that goes back restores none of them.
        costs.remember(one(1, at(2_000)), at(2_000));
        assert_eq!((costs.all.len(), costs.kept_until), (1, at(1_300)));
        assert!(
            !costs.may_give_back(at(1_300), at(1_301))
                && !costs.may_give_back(at(2_000), at(1_969))
        );
        assert_eq!(costs.idle_at(), at(2_630));
    }
}
