//! One enum over the algorithms, working on the bytes of their states.
//!
//! Invariant: `check` writes the state only when it allows a cost above zero; a denial and a peek
//! leave every byte as it was. Dispatch is a `match`: the set of algorithms is closed. Deliberately
//! not here: what a limiter means to its users, and penalties; `limiter` has both.

use crate::algorithms::Algorithm;
use crate::algorithms::calendar_window::{CalendarWindow, CalendarWindowState};
use crate::algorithms::fixed_window::{FixedWindow, FixedWindowState};
use crate::algorithms::gcra::{Gcra, GcraState};
use crate::algorithms::holds::{Holds, Meter};
use crate::algorithms::in_flight::{InFlight, InFlightState};
use crate::algorithms::leaky_bucket::{LeakyBucket, LeakyBucketState};
use crate::algorithms::leaky_queue::{LeakyQueue, LeakyQueueState};
use crate::algorithms::sliding_buckets::SlidingBuckets;
use crate::algorithms::sliding_log::SlidingLog;
use crate::algorithms::sliding_window::{SlidingWindow, SlidingWindowState};
use crate::algorithms::step::{check, check_slow, peek, peek_slow};
use crate::algorithms::token_bucket::{TokenBucket, TokenBucketState};
use crate::calendar::Calendar;
use crate::decision::{Charge, Decision};
use crate::encoding::Encoded;
use crate::quota::{Quota, QuotaError};
use crate::time::{Span, Timestamp};

/// The compiled parameters of an algorithm for one quota.
// The tag is a separate field: hidden in a field that has room for it, it takes five instructions
// more to read.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// See [`Algorithm::Gcra`].
    Gcra(Gcra),
    /// See [`Algorithm::TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`Algorithm::LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`Algorithm::LeakyQueue`].
    LeakyQueue(LeakyQueue),
    /// See [`Algorithm::FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`Algorithm::SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`Algorithm::SlidingBuckets`].
    SlidingBuckets(SlidingBuckets),
    /// See [`Algorithm::SlidingLog`].
    SlidingLog(SlidingLog),
    /// One of the first three that holds the units that it allows.
    Holds(Holds),
    /// A fixed window whose windows are those of a calendar.
    CalendarWindow(CalendarWindow),
    /// Not an algorithm of quotas: a limit on requests in flight.
    InFlight(InFlight),
}

/// `Ok(value)` in the variant, or the error: `Result::map` is not const.
macro_rules! variant {
    ($variant:ident, $result:expr) => {
        match $result {
            Ok(limiter) => Ok(Self::$variant(limiter)),
            Err(error) => Err(error),
        }
    };
}

impl Method {
    /// See [`Limiter::new`](crate::Limiter::new).
    pub(crate) const fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, QuotaError> {
        match algorithm {
            Algorithm::Gcra => variant!(Gcra, Gcra::new(quota)),
            Algorithm::TokenBucket => variant!(TokenBucket, TokenBucket::new(quota)),
            Algorithm::LeakyBucket => variant!(LeakyBucket, LeakyBucket::new(quota)),
            Algorithm::LeakyQueue => variant!(LeakyQueue, LeakyQueue::new(quota)),
            Algorithm::FixedWindow => variant!(FixedWindow, FixedWindow::new(quota)),
            Algorithm::SlidingWindow => variant!(SlidingWindow, SlidingWindow::new(quota)),
            Algorithm::SlidingBuckets { buckets, weighted } => {
                variant!(SlidingBuckets, SlidingBuckets::new(quota, buckets, weighted))
            }
            Algorithm::SlidingLog => variant!(SlidingLog, SlidingLog::new(quota)),
        }
    }

    /// See [`Limiter::new_calendar_window`](crate::Limiter::new_calendar_window).
    pub(crate) const fn new_calendar_window(
        limit: u64,
        calendar: Calendar,
    ) -> Result<Self, QuotaError> {
        variant!(CalendarWindow, CalendarWindow::new(limit, calendar))
    }

    /// See [`Limiter::new_concurrency`](crate::Limiter::new_concurrency).
    pub(crate) const fn new_concurrency(limit: u64, max_age: Span) -> Result<Self, QuotaError> {
        variant!(InFlight, InFlight::new(limit, max_age))
    }

    /// Bytes of one state.
    pub(crate) const fn state_len(&self) -> usize {
        match self {
            Self::Gcra(_) => GcraState::LEN,
            Self::TokenBucket(_) => TokenBucketState::LEN,
            Self::LeakyBucket(_) => LeakyBucketState::LEN,
            Self::LeakyQueue(_) => LeakyQueueState::LEN,
            Self::FixedWindow(_) => FixedWindowState::LEN,
            Self::SlidingWindow(_) => SlidingWindowState::LEN,
            Self::SlidingBuckets(buckets) => buckets.state_len(),
            Self::SlidingLog(log) => log.state_len(),
            Self::Holds(holds) => holds.state_len(),
            Self::CalendarWindow(_) => CalendarWindowState::LEN,
            Self::InFlight(_) => InFlightState::LEN,
        }
    }

    /// Decides and records: every case of every algorithm. Each has its own function, which is
    /// jumped to and saves the registers it uses itself.
    #[inline]
    pub(crate) fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        match self {
            Self::Gcra(gcra) => check_slow(gcra, state, now, cost),
            Self::TokenBucket(bucket) => check(bucket, state, now, cost),
            Self::LeakyBucket(bucket) => check(bucket, state, now, cost),
            Self::LeakyQueue(queue) => check(queue, state, now, cost),
            Self::FixedWindow(window) => check(window, state, now, cost),
            Self::SlidingWindow(window) => check(window, state, now, cost),
            Self::SlidingBuckets(buckets) => buckets.check(state, now, cost),
            Self::SlidingLog(log) => log.check(state, now, cost),
            Self::Holds(holds) => holds.check(state, now, cost),
            Self::CalendarWindow(window) => check(window, state, now, cost),
            Self::InFlight(in_flight) => check(in_flight, state, now, cost),
        }
    }

    /// The decision that [`Method::check`] would return, without recording anything.
    #[inline]
    pub(crate) fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        match self {
            Self::Gcra(gcra) => peek_slow(gcra, state, now, cost),
            Self::TokenBucket(bucket) => peek(bucket, state, now, cost),
            Self::LeakyBucket(bucket) => peek(bucket, state, now, cost),
            Self::LeakyQueue(queue) => peek(queue, state, now, cost),
            Self::FixedWindow(window) => peek(window, state, now, cost),
            Self::SlidingWindow(window) => peek(window, state, now, cost),
            Self::SlidingBuckets(buckets) => buckets.peek(state, now, cost),
            Self::SlidingLog(log) => log.peek(state, now, cost),
            Self::Holds(holds) => holds.peek(state, now, cost),
            Self::CalendarWindow(window) => peek(window, state, now, cost),
            Self::InFlight(in_flight) => peek(in_flight, state, now, cost),
        }
    }

    /// See [`Limiter::refund`](crate::Limiter::refund).
    pub(crate) fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        if state.len() != self.state_len() {
            return;
        }
        match self {
            Self::Gcra(gcra) => update(state, |s| gcra.refund(s, charge, now)),
            Self::TokenBucket(bucket) => update(state, |s| bucket.refund(s, charge, now)),
            Self::LeakyBucket(bucket) => update(state, |s| bucket.refund(s, charge, now)),
            Self::LeakyQueue(queue) => update(state, |s| queue.refund(s, charge, now)),
            Self::FixedWindow(window) => update(state, |s| window.refund(s, charge, now)),
            Self::SlidingWindow(window) => update(state, |s| window.refund(s, charge, now)),
            Self::SlidingBuckets(buckets) => buckets.refund(state, charge, now),
            Self::SlidingLog(log) => log.refund(state, charge, now),
            Self::Holds(holds) => holds.settle(state, charge, 0, now),
            Self::CalendarWindow(window) => update(state, |s| window.refund(s, charge, now)),
            Self::InFlight(it) => update(state, |s| it.release(s, charge, now)),
        }
    }

    /// See [`Limiter::idle_at`](crate::Limiter::idle_at).
    pub(crate) fn idle_at(&self, state: &[u8]) -> Timestamp {
        if state.len() != self.state_len() {
            return Timestamp::ZERO;
        }
        match self {
            Self::Gcra(gcra) => gcra.idle_at(Encoded::decode(state)),
            Self::TokenBucket(bucket) => bucket.idle_at(Encoded::decode(state)),
            Self::LeakyBucket(bucket) => bucket.idle_at(Encoded::decode(state)),
            Self::LeakyQueue(queue) => queue.idle_at(Encoded::decode(state)),
            Self::FixedWindow(window) => window.idle_at(Encoded::decode(state)),
            Self::SlidingWindow(window) => window.idle_at(Encoded::decode(state)),
            Self::SlidingBuckets(buckets) => buckets.idle_at(state),
            Self::SlidingLog(log) => log.idle_at(state),
            Self::Holds(holds) => holds.idle_at(state),
            Self::CalendarWindow(window) => window.idle_at(Encoded::decode(state)),
            Self::InFlight(in_flight) => in_flight.idle_at(Encoded::decode(state)),
        }
    }

    /// See [`Limiter::soonest`](crate::Limiter::soonest).
    pub(crate) fn soonest(&self, decision: &Decision, units: u64) -> Span {
        match self {
            Self::Gcra(gcra) => gcra.rate().soonest(decision, units),
            Self::TokenBucket(bucket) => bucket.rate().soonest(decision, units),
            Self::LeakyBucket(bucket) => bucket.rate().soonest(decision, units),
            Self::LeakyQueue(queue) => queue.rate().soonest(decision, units),
            Self::Holds(holds) => holds.rate().soonest(decision, units),
            Self::FixedWindow(_) | Self::CalendarWindow(_) => {
                self.refilled(decision, units, decision.reset_after)
            }
            Self::SlidingWindow(window) => window.soonest(decision, units),
            Self::SlidingBuckets(_) | Self::SlidingLog(_) => {
                let some_left = decision.remaining > 0; // and the decision does not contain when the next one leaves
                let next = if some_left { Span::ZERO } else { decision.reset_after };
                self.refilled(decision, units, next)
            }
            Self::InFlight(_) => Span::ZERO, // any may end now
        }
    }

    /// When `units` have fitted into the remaining units, a whole limit from `next` on, and one
    /// more in every window after that.
    fn refilled(&self, decision: &Decision, units: u64, next: Span) -> Span {
        let Some(beyond) = units.checked_sub(decision.remaining).filter(|beyond| *beyond > 0)
        else {
            return Span::ZERO;
        };
        let windows = beyond.saturating_sub(1).checked_div(self.quota().limit()).unwrap_or(0);
        let window = self.calendar().map_or(self.quota().window(), |it| it.unit().shortest());
        next.saturating_add(window.saturating_mul(windows))
    }

    /// The algorithm that decides.
    pub(crate) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Gcra(_) => Algorithm::Gcra,
            Self::TokenBucket(_) => Algorithm::TokenBucket,
            Self::LeakyBucket(_) => Algorithm::LeakyBucket,
            Self::LeakyQueue(_) => Algorithm::LeakyQueue,
            Self::FixedWindow(_) | Self::CalendarWindow(_) | Self::InFlight(_) => {
                Algorithm::FixedWindow
            }
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::SlidingBuckets(sliding) => Algorithm::SlidingBuckets {
                buckets: sliding.buckets(),
                weighted: sliding.is_weighted(),
            },
            Self::SlidingLog(_) => Algorithm::SlidingLog,
            Self::Holds(holds) => match holds.0 {
                Meter::Gcra(_) => Algorithm::Gcra,
                Meter::TokenBucket(_) => Algorithm::TokenBucket,
                Meter::LeakyBucket(_) => Algorithm::LeakyBucket,
            },
        }
    }

    /// The limiter's quota.
    pub(crate) const fn quota(&self) -> &Quota {
        match self {
            Self::Gcra(gcra) => gcra.quota(),
            Self::TokenBucket(bucket) => bucket.quota(),
            Self::LeakyBucket(bucket) => bucket.quota(),
            Self::LeakyQueue(queue) => queue.quota(),
            Self::FixedWindow(window) => window.quota(),
            Self::SlidingWindow(window) => window.quota(),
            Self::SlidingBuckets(buckets) => buckets.quota(),
            Self::SlidingLog(log) => log.quota(),
            Self::Holds(holds) => &holds.rate().quota,
            Self::CalendarWindow(window) => window.quota(),
            Self::InFlight(in_flight) => in_flight.quota(),
        }
    }

    /// The calendar whose windows it counts in; `None` where all windows have one length.
    pub(crate) const fn calendar(&self) -> Option<&Calendar> {
        if let Self::CalendarWindow(window) = self { Some(window.calendar()) } else { None }
    }

    /// See [`Limiter::max_in_window`](crate::Limiter::max_in_window).
    pub(crate) const fn max_in_window(&self) -> u64 {
        match self {
            Self::Gcra(gcra) => gcra.max_in_window(),
            Self::TokenBucket(bucket) => bucket.max_in_window(),
            Self::LeakyBucket(bucket) => bucket.max_in_window(),
            Self::LeakyQueue(queue) => queue.max_in_window(),
            Self::FixedWindow(window) => window.max_in_window(),
            Self::SlidingWindow(window) => window.max_in_window(),
            Self::SlidingBuckets(buckets) => buckets.max_in_window(),
            Self::SlidingLog(log) => log.max_in_window(),
            Self::Holds(holds) => holds.rate().max_in_window(),
            Self::CalendarWindow(window) => window.max_in_window(),
            Self::InFlight(_) => u64::MAX,
        }
    }
}

/// Decodes, changes and encodes a state.
pub(crate) fn update<S: Encoded>(bytes: &mut [u8], change: impl FnOnce(S) -> S) {
    change(S::decode(bytes)).encode(bytes);
}
