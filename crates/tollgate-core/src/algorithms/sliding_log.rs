//! Sliding log: the time of every admitted unit; exact, for small limits.
//!
//! State: a ring of `limit` times, oldest first. An entry made at t leaves at `t + window`; a cost is
//! admitted when `entries that have not left + cost <= limit`, and takes that many entries.
//!
//! Bound: exactly `limit` in any half-open window; no other algorithm here admits more than this one at
//! a bound this tight.
//!
//! Source: common practice (for example Redis sorted sets trimmed by score); the definition itself.
//!
//! Deliberately not here: large limits. Every unit takes 8 bytes, so the limit is at most
//! [`MAX_LIMIT_OF_LOG`]; a log of equal costs is not compressed.

use crate::algorithms::ring::Counted;
use crate::algorithms::skew::{effective_now, is_foreign, kept};
use crate::decision::{Charge, Decision};
use crate::encoding::{position, read_u32, read_u64, write_u32, write_u64};
use crate::quota::{MAX_LIMIT_OF_LOG, Quota, QuotaError};
use crate::time::{LATEST, Timestamp};

/// The parameters of the sliding log. The state is [`SlidingLog::state_len`] bytes: the place of the oldest
/// entry and the number of entries (`u32` each), then `limit` times (`u64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog(Quota);

/// A log read in place. Impossible headers are brought within the ring, and no entry is later than
/// the newest one.
#[derive(Clone, Copy)]
struct Log {
    limit: u64,
    start: u64,
    len: u64,
    newest_at: Timestamp,
}

/// A log as it stands at one time.
#[derive(Clone, Copy)]
struct Moment {
    log: Log,
    now: Timestamp,
    /// The time to decide at: `now`, or the newest entry's on a late clock.
    at: Timestamp,
    /// The entries that have left.
    expired: u64,
    /// The units that count.
    used: u64,
    /// True when the clock was set anew: the log is then replaced by `used` entries at `at`.
    is_anew: bool,
}

impl SlidingLog {
    /// The parameters for `quota`. Limit 10 per 60 s: the eleventh is admitted when the first is 60 s old.
    ///
    /// # Errors
    /// A burst that differs from the limit, and a limit above [`MAX_LIMIT_OF_LOG`].
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        if quota.burst() != quota.limit() {
            return Err(QuotaError::NoBurst);
        }
        if quota.limit() > MAX_LIMIT_OF_LOG {
            return Err(QuotaError::LimitOfAlgorithm { max_limit: MAX_LIMIT_OF_LOG });
        }
        Ok(Self(quota))
    }

    /// Bytes of one state: 8 + 8 x limit, at most 8,200.
    #[must_use]
    pub const fn state_len(&self) -> usize {
        position(self.0.limit().saturating_add(1).saturating_mul(8))
    }

    /// Decides on `cost` at `now` and, when admitted, records it in `state`. Never fails.
    pub fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        let moment = self.moment(state, now, cost);
        let decision = self.decide(state, moment, cost);
        if decision.is_admitted() && cost > 0 {
            record(state, moment, cost);
        }
        decision
    }

    /// What [`SlidingLog::check`] would answer, without recording anything.
    #[must_use]
    pub fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        self.decide(state, self.moment(state, now, cost), cost)
    }

    /// Takes `charge` back at `now`: removes its entries, or as many older ones that were made since the
    /// charge. Exact until they have left; then there is nothing left to give back.
    pub fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        let log = Log::read(state, self.0.limit());
        let (charged_at, now) = (charge.at.min(LATEST), now.min(LATEST));
        let left_at = charged_at.saturating_add(self.0.window());
        if is_foreign(charged_at, now) || left_at <= now.max(log.newest_at) {
            return;
        }
        let first = log.count_while(state, |made_at| made_at < charged_at);
        let removed = charge.cost.min(log.len.saturating_sub(first));
        let len = log.len.saturating_sub(removed);
        for index in first..len {
            log.set(state, index, log.made_at(state, index.saturating_add(removed)));
        }
        write_header(state, log.start, len);
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub fn idle_at(&self, state: &[u8]) -> Timestamp {
        let log = Log::read(state, self.0.limit());
        if log.len == 0 { Timestamp::ZERO } else { log.newest_at.saturating_add(self.0.window()) }
    }

    /// The quota that is held.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.0
    }

    /// Units admitted at most in any half-open window as long as the quota's: the limit.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.0.limit()
    }

    fn moment(&self, state: &[u8], now: Timestamp, cost: u64) -> Moment {
        let now = now.min(LATEST);
        let (limit, window) = (self.0.limit(), self.0.window());
        let log = Log::read(state, limit);
        let Some(at) = effective_now(log.newest_at, now) else {
            let used = kept(log.len, limit, cost);
            return Moment { log, now, at: now, expired: log.len, used, is_anew: true };
        };
        let expired = log.count_while(state, |made_at| made_at.saturating_add(window) <= at);
        let used = log.len.saturating_sub(expired);
        Moment { log, now, at, expired, used, is_anew: false }
    }

    fn decide(&self, state: &[u8], moment: Moment, cost: u64) -> Decision {
        let counted = Counted { limit: self.0.limit(), used: moment.used, now: moment.now };
        counted.decide(cost, |units| self.left_at(state, moment, units))
    }

    /// When the oldest `units` entries have left. What is not in the log (yet) is made at `moment.at`.
    fn left_at(&self, state: &[u8], moment: Moment, units: u64) -> Timestamp {
        let index = moment.expired.saturating_add(units).saturating_sub(1);
        let made_at =
            if index < moment.log.len { moment.log.made_at(state, index) } else { moment.at };
        made_at.saturating_add(self.0.window())
    }
}

fn record(state: &mut [u8], moment: Moment, cost: u64) {
    let log = moment.log;
    let (start, len, added) = if moment.is_anew {
        (0, 0, moment.used.saturating_add(cost))
    } else {
        (log.place(moment.expired), moment.used, cost)
    };
    let end = len.saturating_add(added);
    let log = Log { start, ..log };
    for index in len..end {
        log.set(state, index, moment.at);
    }
    write_header(state, start, end);
}

impl Log {
    fn read(state: &[u8], limit: u64) -> Self {
        let start = u64::from(read_u32(state, 0)).checked_rem(limit).unwrap_or(0);
        let len = u64::from(read_u32(state, 1)).min(limit);
        let log = Self { limit, start, len, newest_at: Timestamp::MAX };
        let newest_at = match len.checked_sub(1) {
            Some(last) => log.made_at(state, last),
            None => Timestamp::ZERO,
        };
        Self { newest_at, ..log }
    }

    /// The time of the `index`-th entry, oldest first.
    fn made_at(&self, state: &[u8], index: u64) -> Timestamp {
        Timestamp::from_nanos(read_u64(state, self.word(index))).min(self.newest_at)
    }

    fn set(&self, state: &mut [u8], index: u64, made_at: Timestamp) {
        write_u64(state, self.word(index), made_at.as_nanos());
    }

    /// How many of the oldest entries hold `condition`, which later ones hold only if earlier ones do.
    fn count_while(&self, state: &[u8], condition: impl Fn(Timestamp) -> bool) -> u64 {
        let (mut holds, mut end) = (0, self.len);
        while holds < end {
            let middle = u64::midpoint(holds, end);
            if condition(self.made_at(state, middle)) {
                holds = middle.saturating_add(1);
            } else {
                end = middle;
            }
        }
        holds
    }

    /// Where the `index`-th entry is in the ring.
    fn place(&self, index: u64) -> u64 {
        let place = self.start.saturating_add(index);
        if place >= self.limit { place.saturating_sub(self.limit) } else { place }
    }

    /// Where the `index`-th entry is, as a number of `u64`s after the header.
    fn word(&self, index: u64) -> usize {
        position(self.place(index).saturating_add(1))
    }
}

fn write_header(state: &mut [u8], start: u64, len: u64) {
    write_u32(state, 0, u32::try_from(start).unwrap_or(0));
    write_u32(state, 1, u32::try_from(len).unwrap_or(0));
}
