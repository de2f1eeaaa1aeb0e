//! A state under other parameters: the used units of a key stay used when its quota is changed.
//!
//! Invariant: at the change no more is allowed than the new capacity less the units used under the
//! old quota, and all rounding is against the client; an idle key stays idle; equal parameters keep
//! every byte. Deliberately not here: which quota a state belongs to, and states of earlier
//! layouts: the store [converts](Limiter::convert) them first.

use crate::algorithms::gcra::Gcra;
use crate::algorithms::leaky_bucket::LeakyBucket;
use crate::algorithms::rate::Rate;
use crate::encoding::Encoded;
use crate::limiter::Limiter;
use crate::method::Method;
use crate::time::{LATEST, Timestamp};

impl Limiter {
    /// Writes to `state` the state that `old_state`, which `old` left, becomes under this limiter
    /// at `now`.
    ///
    /// With T' the emission interval of this limiter and T that of `old`, W' and W the windows:
    ///
    /// | from | to | kept |
    /// |---|---|---|
    /// | any | the same, with equal parameters | every byte |
    /// | `gcra`, `token-bucket`, `leaky-bucket` | any of the three | the debt in units: `min(ceil(debt x T' / T), burst' x T')` |
    /// | `leaky-queue` | `leaky-queue` | the next free slot; where T' > T the debt in units; at most two bursts |
    /// | `fixed-window` | `fixed-window`, W' = W | the count |
    /// | `fixed-window` by a calendar | the same by the same calendar | both counts |
    /// | `sliding-window` | `sliding-window`, W' = W | both counts |
    /// | `sliding-buckets` | `sliding-buckets`, W' = W, as many parts | all counts |
    /// | `sliding-log` | `sliding-log` | the newest limit' entries that have not left |
    /// | a limit on [requests in flight](Limiter::new_concurrency) | another one | all requests in flight |
    /// | a limit on requests in flight | any quota, and the other way | nothing, and nothing is charged |
    /// | one that [holds](Limiter::with_holds) | any | its debt including all held units, which then count as used |
    /// | any | any other | nothing |
    /// | one with a [penalty](Limiter::with_penalty) | another with one | besides the above, its end and its steps; at most this limiter's longest step from `now` |
    ///
    /// Here u is the number of units that `old` has used at `now`: its capacity less the remaining
    /// units. Where the kept part uses less than `min(u, capacity')`, the difference is charged at
    /// `now`: all of it in the last row, one unit where an estimate is no longer rounded up, the
    /// faded units where parts are weighted from now on, and entries that have left a shorter
    /// window.
    ///
    /// Call it once for a state and a change, and store the result, also when nothing is charged to
    /// it: a state that is carried again at every read continues by the old quota, and no
    /// `retry_after` becomes true.
    ///
    /// Never fails, whatever the bytes. A foreign state (see
    /// [`ALLOWED_SKEW`](crate::ALLOWED_SKEW)) has used nothing: as a count or an entry it is kept
    /// and stays foreign, otherwise it is gone. Where `old_state` is not as long as a state of
    /// `old`, nothing was used; where `state` is not as long as one of this limiter, nothing is
    /// written.
    pub fn carry(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        if state.len() != self.state_len() {
            return;
        }
        state.fill(0);
        if old_state.len() != old.state_len() {
            return;
        }
        if self == old {
            state.copy_from_slice(old_state);
            return;
        }
        let parts = self.split_mut(state).zip(old.split(old_state));
        let Some(((own, rest), (old_own, old_rest))) = parts else { return };
        self.method.carry(&old.method, old_own, now, own);
        self.carry_penalty(old, old_rest, now, rest);
    }
}

impl Method {
    /// Carries the algorithm's part of a state; `state` is all zero.
    fn carry(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        if self == old {
            state.copy_from_slice(old_state);
            return;
        }
        match (self, old) {
            (Self::InFlight(to), Self::InFlight(from)) => {
                to.carried(from, Encoded::decode(old_state), now.min(LATEST)).encode(state);
                return;
            }
            (Self::InFlight(_), _) | (_, Self::InFlight(_)) => return,
            (Self::Holds(holds), _) => {
                if let Some((own, _)) = holds.split_mut(state) {
                    self.without_holds().carry(old, old_state, now, own);
                }
                holds.begin(state, now);
                return;
            }
            (_, Self::Holds(holds)) => {
                if let Some((own, _)) = holds.split(old_state) {
                    self.carry(&old.without_holds(), own, now, state);
                }
                return;
            }
            _ => {}
        }
        self.keep(old, old_state, now.min(LATEST), state);
        let used = old.units_used(old_state, now).min(self.quota().burst());
        let lost = used.saturating_sub(self.units_used(state, now));
        if lost > 0 {
            self.check(state, now, lost);
        }
    }

    /// Writes to `state`, which is all zero, the part of `old_state` that means the same here.
    fn keep(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        match (self, old) {
            _ if self.counts_as(old) => state.copy_from_slice(old_state),
            (Self::LeakyQueue(queue), Self::LeakyQueue(old)) => {
                queue.carried(old, Encoded::decode(old_state), now).encode(state);
            }
            (Self::SlidingLog(log), Self::SlidingLog(old)) => log.carry(old, old_state, now, state),
            _ => self.keep_debt(old, old_state, now, state),
        }
    }

    /// True where the counts of `old` are this limiter's, too.
    fn counts_as(&self, old: &Self) -> bool {
        match (self, old) {
            (Self::FixedWindow(_), Self::FixedWindow(_))
            | (Self::SlidingWindow(_), Self::SlidingWindow(_)) => {
                self.quota().window() == old.quota().window()
            }
            (Self::CalendarWindow(window), Self::CalendarWindow(old)) => {
                window.calendar() == old.calendar()
            }
            (Self::SlidingBuckets(buckets), Self::SlidingBuckets(old)) => buckets.has_parts_of(old),
            (
                Self::Gcra(_)
                | Self::TokenBucket(_)
                | Self::LeakyBucket(_)
                | Self::LeakyQueue(_)
                | Self::FixedWindow(_)
                | Self::SlidingWindow(_)
                | Self::SlidingBuckets(_)
                | Self::SlidingLog(_)
                | Self::Holds(_)
                | Self::CalendarWindow(_)
                | Self::InFlight(_),
                _,
            ) => false,
        }
    }

    fn keep_debt(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        let (Some(rate), Some(old_rate)) = (self.meter(), old.meter()) else { return };
        let paid_off_at = rate.carried(old_rate, old.idle_at(old_state), now);
        match self {
            Self::Gcra(_) => Gcra::paid_off(paid_off_at).encode(state),
            Self::TokenBucket(bucket) => bucket.paid_off(paid_off_at, now).encode(state),
            Self::LeakyBucket(_) => LeakyBucket::paid_off(paid_off_at, now).encode(state),
            // They have no rate.
            Self::LeakyQueue(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingBuckets(_)
            | Self::SlidingLog(_)
            | Self::Holds(_)
            | Self::CalendarWindow(_)
            | Self::InFlight(_) => {}
        }
    }

    /// The rate of the three algorithms that keep one debt, each in its own way; `None` for the
    /// others.
    pub(crate) const fn meter(&self) -> Option<&Rate> {
        match self {
            Self::Gcra(gcra) => Some(gcra.rate()),
            Self::TokenBucket(bucket) => Some(bucket.rate()),
            Self::LeakyBucket(bucket) => Some(bucket.rate()),
            Self::LeakyQueue(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingBuckets(_)
            | Self::SlidingLog(_)
            | Self::Holds(_)
            | Self::CalendarWindow(_)
            | Self::InFlight(_) => None,
        }
    }

    /// The units of the capacity that do not remain at `now`.
    fn units_used(&self, state: &[u8], now: Timestamp) -> u64 {
        self.quota().burst().saturating_sub(self.peek(state, now, 0).remaining)
    }
}
