//! The parts of a key's use that a decision does not show: units held until they are settled, units
//! above the limit, and requests in flight.
//!
//! Invariant: a view reads a state and changes nothing. Deliberately not here: how many requests
//! hold the units. A state has their sum alone.

use crate::algorithms::holds::Holds;
use crate::encoding::Encoded;
use crate::limiter::Limiter;
use crate::method::Method;
use crate::time::{LATEST, Timestamp};

/// The held units of a key, its debt, and its requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Units that are held for responses that have not ended. They count as used until they are
    /// settled. `None` for a limiter that does not hold units separately.
    pub held: Option<u64>,
    /// Units recorded above what the limiter allows at once, by [`Limiter::debit`]: they must come
    /// back before one is allowed. Rounded up; 0 for `sliding-log`, which has room for its limit
    /// alone.
    pub debt: u64,
    /// Requests in flight; `None` for a limiter that counts no requests in flight.
    pub in_flight: Option<u64>,
}

impl Limiter {
    /// What `state` holds and owes at `now`. Limit 1,000 per hour with 900 used and a debit of 300:
    /// a debt of 200. A foreign state, and bytes that are not a state of this limiter, hold and owe
    /// nothing. Never fails.
    #[must_use]
    pub fn holding(&self, state: &[u8], now: Timestamp) -> Holding {
        let Some((own, _)) = self.split(state) else { return Holding::default() };
        self.method.holding(own, now.min(LATEST))
    }
}

impl Method {
    fn holding(&self, state: &[u8], now: Timestamp) -> Holding {
        let counted = |used: u64| used.saturating_sub(self.quota().limit());
        let debt = match self {
            Self::Gcra(_) | Self::TokenBucket(_) | Self::LeakyBucket(_) => {
                self.rate_debt(state, now)
            }
            Self::LeakyQueue(queue) => {
                queue.rate().units_above_burst(self.idle_at(state).since(now))
            }
            Self::FixedWindow(window) => counted(window.counted(Encoded::decode(state), now)),
            Self::CalendarWindow(window) => {
                counted(window.counted(Encoded::decode(state), now).count)
            }
            Self::SlidingWindow(window) => counted(window.counted(Encoded::decode(state), now)),
            Self::SlidingBuckets(buckets) => counted(buckets.counted(state, now)),
            Self::SlidingLog(_) => 0,
            Self::Holds(holds) => return self.holding_of_holds(holds, state, now),
            Self::InFlight(in_flight) => {
                let in_flight = in_flight.counted(Encoded::decode(state), now);
                let debt = counted(in_flight);
                return Holding { held: None, debt, in_flight: Some(in_flight) };
            }
        };
        Holding { debt, ..Holding::default() }
    }

    fn holding_of_holds(&self, holds: &Holds, state: &[u8], now: Timestamp) -> Holding {
        let own = holds.split(state).map(|(own, _)| own).unwrap_or_default();
        let debt = self.without_holds().rate_debt(own, now);
        Holding { held: Some(holds.held(state, now)), debt, in_flight: None }
    }

    fn rate_debt(&self, state: &[u8], now: Timestamp) -> u64 {
        let debt = self.idle_at(state).since(now);
        self.meter().map_or(0, |rate| rate.units_above_burst(debt))
    }
}
