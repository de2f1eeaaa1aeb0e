//! Holds: units that a request takes before it is known whether they are used, for GCRA, the token
//! bucket and the leaky bucket.
//!
//! State: the algorithm's own bytes, in which every unit counts from its request on and which alone
//! decide (`full`, the time at which they are paid off); `used`, the time at which all is paid off
//! if a held unit counts only from its settlement on; the latest time seen; and the units held, in
//! two generations of [`HOLD_AGE`]. With T the emission interval:
//!
//! ```text
//! hold(now, c)     what the algorithm does, and the generation of now += c
//! settle(c at, a)  the generation of `at` -= c; used = max(used, latest) + a x T where a > 0;
//!                  where full > latest: full = min(full, max(used, latest) + held x T), and
//!                  what has certainly not drained of c - a units comes back in any case,
//!                  but full >= min(full, used)
//! expiry           the units of a generation that ends are used:
//!                  used = max(used, its end) + units x T
//! debit(now, n)    what the algorithm does, and used = max(used, latest) + n x T
//! always           used <= max(full, latest)
//! ```
//!
//! Bound: as GCRA, any half-open window w allows at most `burst + ceil(w / T) - 1` units that were
//! not given back, each counted at its request. A settled unit drains from its settlement on, so as
//! much comes back as would be left in a limiter that was charged at that time; and never more than
//! the units held beyond it.
//!
//! Source: none; `tests/holds.rs` compares random schedules with the bound.
//!
//! Deliberately not here: a list of holds. The caller keeps the receipt, and a caller that settles
//! twice also takes another request's hold; a receipt of a generation that has ended gives nothing
//! back.

use crate::algorithms::gcra::{Gcra, GcraState};
use crate::algorithms::leaky_bucket::{LeakyBucket, LeakyBucketState};
use crate::algorithms::rate::Rate;
use crate::algorithms::step::{check, peek};
use crate::algorithms::token_bucket::{TokenBucket, TokenBucketState};
use crate::decision::{Charge, Decision};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::time::{ALLOWED_SKEW, LATEST, Span, Timestamp};

/// A generation of holds. A hold lives for one to two of them, 10 to 20 minutes; one that is not
/// settled by then is charged.
///
/// 10 minutes is longer than responses take, and equals the time within which a named cost can be
/// settled. A shorter generation would charge requests that are still in progress; a longer one
/// would keep the holds that clients and servers lost for longer.
pub const HOLD_AGE: Span = Span::from_secs(600);

/// The parameters of an algorithm whose units can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds(pub(crate) Meter);

/// The algorithms that keep one debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meter {
    Gcra(Gcra),
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
}

/// The state beyond that of its algorithm. All zero: nothing was ever held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoldsState {
    /// The time at which all certainly used units are paid off.
    pub(crate) used_until: Timestamp,
    /// The latest time at which units were held or settled.
    pub(crate) latest_at: Timestamp,
    /// The units held in the generation before that of `latest_at`.
    pub(crate) older: u64,
    /// The units held in the generation of `latest_at`.
    pub(crate) newer: u64,
}

impl Holds {
    /// Bytes of one state: the algorithm's own and 32.
    pub(crate) const fn state_len(&self) -> usize {
        self.own_len().saturating_add(HoldsState::LEN)
    }

    /// Decides on `cost` as the algorithm does, and holds it when it is allowed.
    #[inline(never)]
    pub(crate) fn check(&self, bytes: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        let Some((own, rest)) = self.split_mut(bytes) else {
            return Decision::of_no_state(self.rate().quota.limit());
        };
        let full_until = self.full_until(own);
        let decision = match &self.0 {
            Meter::Gcra(gcra) => check(gcra, own, now, cost),
            Meter::TokenBucket(bucket) => check(bucket, own, now, cost),
            Meter::LeakyBucket(bucket) => check(bucket, own, now, cost),
        };
        if decision.is_admitted() && cost > 0 {
            let now = now.min(LATEST);
            let mut holds = self.seen(HoldsState::decode(rest), full_until, now);
            holds.hold(now, cost);
            holds.encode(rest);
        }
        decision
    }

    /// The decision that [`Holds::check`] would return.
    #[inline(never)]
    pub(crate) fn peek(&self, bytes: &[u8], now: Timestamp, cost: u64) -> Decision {
        let Some((own, _)) = self.split(bytes) else {
            return Decision::of_no_state(self.rate().quota.limit());
        };
        self.peek_own(own, now, cost)
    }

    /// The decision of the algorithm on its own part of a state.
    fn peek_own(&self, own: &[u8], now: Timestamp, cost: u64) -> Decision {
        match &self.0 {
            Meter::Gcra(gcra) => peek(gcra, own, now, cost),
            Meter::TokenBucket(bucket) => peek(bucket, own, now, cost),
            Meter::LeakyBucket(bucket) => peek(bucket, own, now, cost),
        }
    }

    /// Ends the hold of `charge`: `used` of its units, at most all, are used, and the others come
    /// back. Once its generation has ended they are all used, and nothing changes.
    pub(crate) fn settle(&self, bytes: &mut [u8], charge: Charge, used: u64, now: Timestamp) {
        let Some((own, rest)) = self.split_mut(bytes) else { return };
        let now = now.min(LATEST);
        let full_until = self.full_until(own);
        let mut holds = self.seen(HoldsState::decode(rest), full_until, now);
        let Some(generation) = holds.generation_of(charge.at.min(LATEST)) else { return };
        *generation = generation.saturating_sub(charge.cost);
        let latest_at = holds.latest_at;
        if used > 0 {
            let span = self.rate().span_of(used.min(charge.cost));
            holds.used_until = holds.used_until.max(latest_at).saturating_add(span);
        }
        let unused = charge.cost.saturating_sub(used);
        if full_until > latest_at && unused > 0 {
            // The used units drain first.
            let delay = charge.delay.saturating_add(self.rate().span_of(used));
            let unused = Charge { cost: unused, delay, ..charge };
            let undrained = self.rate().owed(&unused, latest_at);
            let held = self.rate().span_of(holds.held());
            let lower = holds.used_until.max(latest_at).saturating_add(held);
            let lower = lower.min(full_until.saturating_sub(undrained));
            // A debit that reached its cap has forgiven units that may be these.
            let lower = lower.max(holds.used_until);
            self.set_full_until(own, lower.min(full_until), latest_at);
        }
        holds.clip(self.full_until(own));
        holds.encode(rest);
    }

    /// Records `units` that were used at `now` and not held, which `debit` records in the
    /// algorithm's own state.
    pub(crate) fn debit(
        &self,
        bytes: &mut [u8],
        units: u64,
        now: Timestamp,
        debit: impl FnOnce(&mut [u8]),
    ) {
        let Some((own, rest)) = self.split_mut(bytes) else { return };
        let mut holds = self.seen(HoldsState::decode(rest), self.full_until(own), now);
        debit(own);
        let span = self.rate().span_of(units);
        holds.used_until = holds.used_until.max(holds.latest_at).saturating_add(span);
        holds.clip(self.full_until(own));
        holds.encode(rest);
    }

    /// The state in which the debt of the algorithm's own state is used, and nothing is held.
    pub(crate) fn begin(&self, bytes: &mut [u8], now: Timestamp) {
        let Some((own, rest)) = self.split_mut(bytes) else { return };
        let (used_until, latest_at) = (self.full_until(own), now.min(LATEST));
        if used_until > Timestamp::ZERO {
            HoldsState { used_until, latest_at, ..HoldsState::default() }.encode(rest);
        }
    }

    /// The time from which the state decides like one never seen, and no receipt names a hold in
    /// it.
    pub(crate) fn idle_at(&self, bytes: &[u8]) -> Timestamp {
        let Some((own, rest)) = self.split(bytes) else { return Timestamp::ZERO };
        let HoldsState { latest_at, older, newer, .. } = HoldsState::decode(rest);
        let lives_for = match (older, newer) {
            (0, 0) => return self.full_until(own),
            (_, 0) => 1,
            (_, _) => 2,
        };
        let ends_at = start_of(generation_at(latest_at).saturating_add(lives_for));
        self.full_until(own).max(ends_at)
    }

    /// The units held at `now`, without those that have expired.
    pub(crate) fn held(&self, bytes: &[u8], now: Timestamp) -> u64 {
        self.split(bytes).map_or(0, |(own, rest)| {
            self.seen(HoldsState::decode(rest), self.full_until(own), now).held()
        })
    }

    /// True where `cost` is denied even if every held unit comes back.
    pub(crate) fn denies_used(&self, bytes: &[u8], now: Timestamp, cost: u64) -> bool {
        let Some((own, rest)) = self.split(bytes) else { return true };
        let holds = self.seen(HoldsState::decode(rest), self.full_until(own), now);
        let mut used = [0; TokenBucketState::LEN];
        let Some(used) = used.get_mut(..own.len()) else { return true };
        self.set_full_until(used, holds.used_until, now);
        !self.peek_own(used, now, cost).is_admitted()
    }

    /// The rate by which the algorithm decides.
    pub(crate) const fn rate(&self) -> &Rate {
        match &self.0 {
            Meter::Gcra(gcra) => gcra.rate(),
            Meter::TokenBucket(bucket) => bucket.rate(),
            Meter::LeakyBucket(bucket) => bucket.rate(),
        }
    }

    /// The algorithm's own part of a state; `None` for bytes that are not a state.
    pub(crate) fn split<'s>(&self, bytes: &'s [u8]) -> Option<(&'s [u8], &'s [u8])> {
        let (own, rest) = bytes.split_at_checked(self.own_len())?;
        (rest.len() == HoldsState::LEN).then_some((own, rest))
    }

    /// The same, writable.
    pub(crate) fn split_mut<'s>(
        &self,
        bytes: &'s mut [u8],
    ) -> Option<(&'s mut [u8], &'s mut [u8])> {
        let (own, rest) = bytes.split_at_mut_checked(self.own_len())?;
        (rest.len() == HoldsState::LEN).then_some((own, rest))
    }

    const fn own_len(&self) -> usize {
        match &self.0 {
            Meter::Gcra(_) => GcraState::LEN,
            Meter::TokenBucket(_) => TokenBucketState::LEN,
            Meter::LeakyBucket(_) => LeakyBucketState::LEN,
        }
    }

    fn full_until(&self, own: &[u8]) -> Timestamp {
        match &self.0 {
            Meter::Gcra(gcra) => gcra.idle_at(Encoded::decode(own)),
            Meter::TokenBucket(bucket) => bucket.idle_at(Encoded::decode(own)),
            Meter::LeakyBucket(bucket) => bucket.idle_at(Encoded::decode(own)),
        }
    }

    fn set_full_until(&self, own: &mut [u8], at: Timestamp, now: Timestamp) {
        match &self.0 {
            Meter::Gcra(_) => Gcra::paid_off(at).encode(own),
            Meter::TokenBucket(bucket) => bucket.paid_off(at, now).encode(own),
            Meter::LeakyBucket(_) => LeakyBucket::paid_off(at, now).encode(own),
        }
    }

    /// The units held at `now`, with ended generations charged. A foreign state holds nothing, and
    /// its whole debt is used: one that is ahead of `now` by more than the skew, and one that holds
    /// more than can have been allowed.
    fn seen(&self, mut holds: HoldsState, full_until: Timestamp, now: Timestamp) -> HoldsState {
        let is_ahead = holds.latest_at.since(now) > ALLOWED_SKEW;
        if is_ahead || holds.held() > self.most_held() {
            return HoldsState { used_until: full_until, latest_at: now, older: 0, newer: 0 };
        }
        let (from, to) = (generation_at(holds.latest_at), generation_at(now));
        if to > from {
            let next = from.saturating_add(1);
            self.charge_ended(&mut holds, start_of(next));
            if to > next {
                self.charge_ended(&mut holds, start_of(next.saturating_add(1)));
            }
        }
        holds.latest_at = holds.latest_at.max(now);
        holds.clip(full_until);
        holds
    }

    /// Charges the older generation, which ended at `at`; the newer one becomes the older.
    fn charge_ended(&self, holds: &mut HoldsState, at: Timestamp) {
        if holds.older > 0 {
            let span = self.rate().span_of(holds.older);
            holds.used_until = holds.used_until.max(at).saturating_add(span);
        }
        (holds.older, holds.newer) = (holds.newer, 0);
    }

    /// The most units that two generations and the skew can have allowed.
    fn most_held(&self) -> u64 {
        let span = HOLD_AGE.saturating_mul(2).saturating_add(ALLOWED_SKEW);
        self.rate().quota.burst().saturating_add(span.div_ceil(self.rate().emission_interval()))
    }
}

impl HoldsState {
    /// Holds `units` from `now` on, which is in the generation of the latest time or, on a late
    /// clock, in the one before it.
    fn hold(&mut self, now: Timestamp, units: u64) {
        if let Some(generation) = self.generation_of(now) {
            *generation = generation.saturating_add(units);
        }
    }

    /// The generation of units held since `at`; `None` when it has ended, or never began.
    fn generation_of(&mut self, at: Timestamp) -> Option<&mut u64> {
        match generation_at(self.latest_at).checked_sub(generation_at(at))? {
            0 => Some(&mut self.newer),
            1 => Some(&mut self.older),
            _ => None,
        }
    }

    const fn held(&self) -> u64 {
        self.older.saturating_add(self.newer)
    }

    /// The used units are at most the used and the held ones together.
    fn clip(&mut self, full_until: Timestamp) {
        self.used_until = self.used_until.min(full_until.max(self.latest_at));
    }
}

/// The number of the generation that `at` is in.
const fn generation_at(at: Timestamp) -> u64 {
    at.index_of(HOLD_AGE)
}

/// When a generation begins.
const fn start_of(generation: u64) -> Timestamp {
    Timestamp::start_of(generation, HOLD_AGE)
}

impl Encoded for HoldsState {
    const LEN: usize = 32;

    fn decode(bytes: &[u8]) -> Self {
        Self {
            used_until: Timestamp::from_nanos(read_u64(bytes, 0)),
            latest_at: Timestamp::from_nanos(read_u64(bytes, 1)),
            older: read_u64(bytes, 2),
            newer: read_u64(bytes, 3),
        }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.used_until.as_nanos());
        write_u64(bytes, 1, self.latest_at.as_nanos());
        write_u64(bytes, 2, self.older);
        write_u64(bytes, 3, self.newer);
    }
}
