//! The speed of a line, from the latest decisions of its rule's quotas.
//!
//! Invariant: a time computed here is never later than the one at which the request is allowed if
//! the key has no other use and no refunds, so a request denied because of it could not have been
//! allowed in time. `Limiter::soonest` documents how much earlier the time may be.
//!
//! The end of a request in flight is not known. So a line that waits for a place has two times: the
//! soonest one by its quotas, and the time at which a full limit is looked at again. A place that
//! ends in the same process comes before that ([`Queue::place_freed`](super::Queue::place_freed)).

use alloc::vec::Vec;

use tollgate_core::{Decision, Limiter, Timestamp};

use crate::pipeline::in_flight::PLACE_LOOK;

/// Each look in vain doubles the time, at most this often: to 400 ms.
const MOST_DOUBLINGS: u8 = 2;

/// The latest decisions of one rule's quotas for one key.
#[derive(Clone, Debug)]
pub struct Pace {
    at: Timestamp,
    quotas: Vec<(Limiter, Decision)>,
    /// The denied cost, and the time until which it is denied.
    denied: Option<(u64, Timestamp)>,
    /// A request that is allowed is not charged yet, so none has to wait for those ahead.
    deferred: bool,
    /// Its limit on requests in flight, if it has one.
    places: Option<Places>,
}

/// A limit on requests in flight, as it was found.
#[derive(Clone, Copy, Debug)]
struct Places {
    is_full: bool,
    /// How often in a row it denied.
    vain_looks: u8,
}

impl Pace {
    pub(crate) fn new(
        at: Timestamp,
        cost: u64,
        deferred: bool,
        quotas: impl Iterator<Item = (Limiter, Decision)>,
    ) -> Self {
        let mut quotas: Vec<_> = quotas.collect();
        let waits = quotas.iter().filter_map(|(_, decision)| decision.retry_after);
        let denied = waits.max().map(|wait| (cost, at.saturating_add(wait)));
        let mut places: Option<Places> = None;
        quotas.retain(|(limiter, decision)| {
            let is_in_flight = limiter.max_age().is_some();
            if is_in_flight {
                let is_full = decision.remaining == 0 || places.is_some_and(|it| it.is_full);
                let vain_looks = u8::from(!decision.is_admitted());
                places = Some(Places { is_full, vain_looks });
            }
            !is_in_flight
        });
        Self { at, quotas, denied, deferred, places }
    }

    /// This pace after an earlier one of the same line. The look of a request that arrives does not
    /// count as one of the line.
    pub(super) fn after(mut self, earlier: Option<&Self>) -> Self {
        let looks = earlier.map_or(0, Self::vain_looks);
        if let Some(places) = self.places.as_mut().filter(|it| it.vain_looks > 0) {
            places.vain_looks = places.vain_looks.max(looks);
        }
        self
    }

    /// This pace of a request that was decided again, and had looked in vain this often before.
    pub(super) fn after_looks(mut self, looks: u8) -> Self {
        if let Some(places) = self.places.as_mut().filter(|it| it.vain_looks > 0) {
            places.vain_looks = looks.saturating_add(1);
        }
        self
    }

    /// How often in a row the line has looked for a place in vain.
    pub(super) fn vain_looks(&self) -> u8 {
        self.places.map_or(0, |places| places.vain_looks)
    }

    /// True when requests of the line need a place, too, so that their times are not known.
    pub(super) const fn needs_place(&self) -> bool {
        self.places.is_some()
    }

    /// True when no place was free at the latest look.
    pub(super) fn is_out_of_places(&self) -> bool {
        self.places.is_some_and(|places| places.is_full)
    }

    /// A place has ended: the first of the line need not wait for the next look.
    pub(super) const fn free_place(&mut self) {
        if let Some(places) = &mut self.places {
            *places = Places { is_full: false, vain_looks: 0 };
        }
    }

    /// When the first of the line is decided again, if it has this cost and deadline.
    pub(super) fn decides_at(&self, cost: u64, deadline: Timestamp) -> Timestamp {
        let fits_at = self.fits_at(0, cost);
        match self.places {
            Some(Places { is_full: true, vain_looks }) => {
                let doublings = vain_looks.saturating_sub(1).min(MOST_DOUBLINGS);
                let after = PLACE_LOOK.saturating_mul(1 << doublings);
                // The last look is at the end of its time.
                fits_at.max(self.at.saturating_add(after).min(deadline))
            }
            Some(Places { is_full: false, .. }) | None => fits_at,
        }
    }

    /// Before this time `cost` is not allowed, when costs of `ahead` in total go first.
    #[must_use]
    pub fn fits_at(&self, ahead: u64, cost: u64) -> Timestamp {
        let units = if self.deferred { cost } else { ahead.saturating_add(cost) };
        let soonest =
            self.quotas.iter().map(|(limiter, decision)| limiter.soonest(decision, units));
        let soonest = self.at.saturating_add(soonest.max().unwrap_or_default());
        match self.denied {
            Some((denied, until)) if ahead == 0 && cost >= denied => soonest.max(until),
            _ => soonest,
        }
    }

    /// Bytes that are used in addition to the value itself.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.quotas.capacity().saturating_mul(size_of::<(Limiter, Decision)>())
    }
}
