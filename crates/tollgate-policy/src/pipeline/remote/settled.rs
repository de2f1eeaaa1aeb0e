//! What is remembered of costs that were settled: so that no charge is given back twice.
//!
//! Invariant: an id is settled once. Who is remembered leaves after [`SETTLE_WITHIN`], or for a
//! later one when there are [`MAX_SETTLED`]; then nothing that was charged up to its time is given
//! back any more, so what is forgotten is on the strict side. The same holds where counts were
//! [lost](SettledCosts::lose): what is settled then is remembered like any other, so a higher cost
//! that is said again and again is charged once more and no oftener.

use alloc::vec::Vec;

use tollgate_core::{ALLOWED_SKEW, Span, Timestamp};

/// For how long a charge can be settled: 10 minutes, by the clock of whoever counts.
pub const SETTLE_WITHIN: Span = Span::from_secs(600);

/// The most that are remembered of one key: 32 KiB of its row. A key of which more are settled in
/// [`SETTLE_WITHIN`] is given back the later ones only.
pub const MAX_SETTLED: usize = 1024;

/// A settled charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// A random number of its request.
    pub(crate) id: u64,
    pub(crate) charged_at: Timestamp,
    /// What it was settled at.
    pub(crate) cost: u64,
    /// What stands of that.
    pub(crate) charged: u64,
}

/// What was settled of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledCosts {
    /// Nothing that was charged up to then is given back.
    pub(crate) kept_until: Timestamp,
    /// In the order of their charges.
    pub(crate) all: Vec<Settled>,
}

impl SettledCosts {
    /// The charge, if it is remembered.
    pub(crate) fn find(&self, id: u64, charged_at: Timestamp) -> Option<&Settled> {
        self.all.iter().find(|settled| (settled.id, settled.charged_at) == (id, charged_at))
    }

    /// True when what was charged then may be given back at `now`. A time that this clock has not
    /// reached is of another one.
    pub(crate) fn may_give_back(&self, charged_at: Timestamp, now: Timestamp) -> bool {
        charged_at > self.kept_until && charged_at <= now.saturating_add(ALLOWED_SKEW)
    }

    /// Remembers one, and forgets who is too old; false when there is no room for it, because as
    /// many were charged later, and of a time that this clock has not reached: it would be the last
    /// to leave.
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

    /// What was charged here up to `now` is no longer known. Nothing of it is given back any more:
    /// it may have been, and what is used since then is not its.
    pub(crate) fn lose(&mut self, now: Timestamp) {
        self.kept_until = self.kept_until.max(now.saturating_add(ALLOWED_SKEW));
    }

    /// When something was [lost](Self::lose) lately, as `now` has it; the beginning of time where
    /// nothing was, or longer ago than a lease may live.
    pub(crate) fn lost_at(&self, now: Timestamp) -> Timestamp {
        // Else it is the time of a charge, which is over.
        let is_lost = self.kept_until > now;
        if is_lost { self.kept_until.saturating_sub(ALLOWED_SKEW) } else { Timestamp::ZERO }
    }

    /// The time from which all of it may be forgotten, also by a clock that oscillates.
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
        // Full: the one that was charged first leaves, also when that is the one that came.
        costs.remember(one(most, at(1_300)), at(1_300));
        assert_eq!((costs.all.len(), costs.kept_until), (MAX_SETTLED, at(1_000)));
        assert!(costs.find(0, at(1_000)).is_none() && !costs.may_give_back(at(1_000), at(1_300)));
        assert!(costs.may_give_back(at(1_001), at(1_300)));
        // Too old: all of them leave, and a clock that goes back brings none of them back.
        costs.remember(one(1, at(2_000)), at(2_000));
        assert_eq!((costs.all.len(), costs.kept_until), (1, at(1_300)));
        assert!(
            !costs.may_give_back(at(1_300), at(1_301))
                && !costs.may_give_back(at(2_000), at(1_969))
        );
        assert_eq!(costs.idle_at(), at(2_630));
    }
}
