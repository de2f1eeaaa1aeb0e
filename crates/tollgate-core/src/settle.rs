//! Units whose use is known after the request: limiters that hold them, and the end of a charge.
//!
//! Invariant: a charge is settled once, and only a limiter with holds has to settle it.
//! Deliberately not here: when a response ends, and which requests are charged.

use crate::algorithms::holds::{Holds, Meter};
use crate::decision::Charge;
use crate::limiter::Limiter;
use crate::method::Method;
use crate::time::{Span, Timestamp};

impl Limiter {
    /// The same quota by the same algorithm, for requests whose used units are known afterwards:
    /// the units that [`Limiter::check`] allows are held until [`Limiter::settle`]. States of
    /// `gcra`, `token-bucket` and `leaky-bucket` are then 32 bytes longer; the window counters and
    /// the log need nothing for it. `None` for `leaky-queue`, whose slots are taken permanently.
    #[must_use]
    pub const fn with_holds(self) -> Option<Self> {
        let method = match self.method {
            Method::Gcra(gcra) => Method::Holds(Holds(Meter::Gcra(gcra))),
            Method::TokenBucket(bucket) => Method::Holds(Holds(Meter::TokenBucket(bucket))),
            Method::LeakyBucket(bucket) => Method::Holds(Holds(Meter::LeakyBucket(bucket))),
            Method::LeakyQueue(_) => return None,
            other => other,
        };
        Some(Self { method, ..self })
    }

    /// True when it keeps held units separately, in a longer state.
    #[must_use]
    pub const fn keeps_holds(&self) -> bool {
        matches!(self.method, Method::Holds(_))
    }

    /// Settles `charge` at `now`, of which `used` units turned out to be used: the others come
    /// back, and a use above its cost is a [`Limiter::debit`]. A charge is settled once.
    ///
    /// A limiter [with holds](Limiter::with_holds) has to settle every charge, also one that is
    /// used as it was charged: until then its units are held, and units that other requests did not
    /// use come back later. Any other limiter [gives back](Limiter::refund) the
    /// [last units](Limiter::last_of).
    pub fn settle(&self, state: &mut [u8], charge: Charge, used: u64, now: Timestamp) {
        match &self.method {
            Method::Holds(holds) => {
                if let Some((own, _)) = self.split_mut(state) {
                    holds.settle(own, charge, used, now);
                }
            }
            Method::Gcra(_)
            | Method::TokenBucket(_)
            | Method::LeakyBucket(_)
            | Method::LeakyQueue(_)
            | Method::FixedWindow(_)
            | Method::SlidingWindow(_)
            | Method::SlidingBuckets(_)
            | Method::SlidingLog(_)
            | Method::CalendarWindow(_)
            | Method::InFlight(_) => {
                if used < charge.cost {
                    let unused = charge.cost.saturating_sub(used);
                    self.refund(state, self.last_of(charge, unused), now);
                }
            }
        }
        self.debit(state, used.saturating_sub(charge.cost), now);
    }

    /// The last `units` of `charge`, at most all of it, for [`Limiter::refund`]: a cost that turned
    /// out lower gives the difference back. Draining over time takes the units that stay first, so
    /// that no more is left than if only these had been charged. Cost 10 at one a second, settled
    /// at 4 after 5 s: 5 units are owed, 6 too many, so all 5 come back.
    #[must_use]
    pub const fn last_of(&self, charge: Charge, units: u64) -> Charge {
        let units = if units < charge.cost { units } else { charge.cost };
        let before = charge.cost.saturating_sub(units);
        let before = match &self.method {
            Method::Gcra(gcra) => gcra.rate().span_of(before),
            Method::TokenBucket(bucket) => bucket.rate().span_of(before),
            Method::LeakyBucket(bucket) => bucket.rate().span_of(before),
            Method::LeakyQueue(queue) => queue.rate().span_of(before),
            Method::Holds(holds) => holds.rate().span_of(before),
            Method::FixedWindow(_)
            | Method::CalendarWindow(_)
            | Method::SlidingWindow(_)
            | Method::SlidingBuckets(_)
            | Method::SlidingLog(_)
            | Method::InFlight(_) => Span::ZERO,
        };
        Charge { cost: units, delay: charge.delay.saturating_add(before), ..charge }
    }
}

impl Method {
    /// The method without its holds.
    pub(crate) const fn without_holds(&self) -> Self {
        match self {
            Self::Holds(holds) => match holds.0 {
                Meter::Gcra(gcra) => Self::Gcra(gcra),
                Meter::TokenBucket(bucket) => Self::TokenBucket(bucket),
                Meter::LeakyBucket(bucket) => Self::LeakyBucket(bucket),
            },
            other => *other,
        }
    }
}
