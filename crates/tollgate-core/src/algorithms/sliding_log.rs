//! Sliding log: the time of every allowed unit; exact, for small limits.
//!
//! State: a ring of `limit` times, oldest first. An entry made at t leaves at `t + window`; a cost
//! is allowed when `entries that have not left + cost <= limit`, and takes that many entries.
//!
//! Bound: exactly `limit` in any half-open window; no other algorithm here allows more than this
//! one at a bound this tight.
//!
//! Source: common practice (for example Redis sorted sets trimmed by score); the definition itself.
//!
//! Deliberately not here: large limits. Every unit takes 8 bytes, so the limit is at most
//! [`MAX_LIMIT_OF_LOG`]; a log of equal costs is not compressed.

use crate::algorithms::ring::Counted;
use crate::algorithms::skew::{effective_now, is_foreign, kept};
use crate::decision::{Charge, Decision};
use crate::encoding::position;
use crate::quota::{MAX_LIMIT_OF_LOG, Quota, QuotaError};
use crate::time::{LATEST, Timestamp};

/// The parameters of the sliding log. The state is [`SlidingLog::state_len`] bytes: the position of
/// the oldest entry and the number of entries (`u32` each), then `limit` times (`u64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog(pub(super) Quota);

/// The content of a state's header. Impossible numbers are brought within the ring, and no entry is
/// later than the newest one.
#[derive(Clone, Copy)]
struct Log {
    limit: u64,
    start: u64,
    len: u64,
    newest_at: Timestamp,
}

/// The first word: the position of the oldest entry, and the number of entries in the upper half.
type Header = [u8; 8];

/// The times of a ring, by their positions.
type Entries = [[u8; 8]];

/// A log at one time.
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
    /// The units that stay counted: as many, but in a foreign log as many as the cost leaves room
    /// for in the quota, whatever the request's own limit is.
    kept: u64,
    /// True when the clock was reset: the log is then replaced by `kept` entries at `at`.
    is_anew: bool,
}

impl SlidingLog {
    /// The parameters for `quota`. Limit 10 per 60 s: the eleventh is allowed when the first is 60
    /// s old.
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

    /// Decides on `cost` at `now` and, when allowed, records it in `state`. Bytes of another length
    /// than [`SlidingLog::state_len`] are not a state, and are denied.
    #[inline(never)]
    pub fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        let Some((header, entries)) = self.split_mut(state) else {
            return Decision::of_no_state(self.0.burst());
        };
        let moment = self.moment(Log::read(header, entries, self.0.limit()), entries, now, cost);
        let decision = self.decide(entries, &moment, cost);
        if decision.is_admitted() && cost > 0 {
            *header = record(entries, &moment, cost);
        }
        decision
    }

    /// The decision that [`SlidingLog::check`] would return, without recording anything.
    #[must_use]
    #[inline(never)]
    pub fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        let Some((header, entries)) = self.split(state) else {
            return Decision::of_no_state(self.0.burst());
        };
        let moment = self.moment(Log::read(header, entries, self.0.limit()), entries, now, cost);
        self.decide(entries, &moment, cost)
    }

    /// Takes `charge` back at `now`: removes its entries, or as many older ones that were made
    /// since the charge. Exact until they have left; then there is nothing left to give back.
    pub fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        let Some((header, entries)) = self.split_mut(state) else { return };
        let log = Log::read(header, entries, self.0.limit());
        let (charged_at, now) = (charge.at.min(LATEST), now.min(LATEST));
        let left_at = charged_at.saturating_add(self.0.window());
        if is_foreign(charged_at, now) || left_at <= now.max(log.newest_at) {
            return;
        }
        let first = log.count_while(entries, |made_at| made_at < charged_at);
        let removed = charge.cost.min(log.len.saturating_sub(first));
        let len = log.len.saturating_sub(removed);
        for index in first..len {
            log.set(entries, index, log.made_at(entries, index.saturating_add(removed)));
        }
        *header = header_of(log.start, len);
    }

    /// Records a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    pub(crate) fn debit(&self, state: &mut [u8], units: u64, now: Timestamp) {
        let Some((header, entries)) = self.split_mut(state) else { return };
        let limit = self.0.limit();
        let added = units.min(limit);
        let moment = self.moment(Log::read(header, entries, limit), entries, now, added);
        let dropped = moment.kept.saturating_add(added).saturating_sub(limit);
        let expired = moment.expired.saturating_add(dropped);
        let kept = moment.kept.saturating_sub(dropped);
        *header = record(entries, &Moment { expired, kept, ..moment }, added);
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten; the epoch
    /// for bytes of another length.
    #[must_use]
    pub fn idle_at(&self, state: &[u8]) -> Timestamp {
        let Some((header, entries)) = self.split(state) else { return Timestamp::ZERO };
        let log = Log::read(header, entries, self.0.limit());
        if log.len == 0 { Timestamp::ZERO } else { log.newest_at.saturating_add(self.0.window()) }
    }

    /// Writes to `state` the newest entries of `old_state` that have not left `old` at `now`, as
    /// many as the limit is. A foreign log keeps its entries, and stays foreign.
    pub(crate) fn carry(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        let (Some((header, entries)), Some((next_header, next_entries))) =
            (old.split(old_state), self.split_mut(state))
        else {
            return;
        };
        let log = Log::read(header, entries, old.0.limit());
        let expired = old.moment(log, entries, now, 0).expired;
        let len = log.len.saturating_sub(expired).min(self.0.limit());
        let first = log.len.saturating_sub(len);
        let next = Log { limit: self.0.limit(), start: 0, len, newest_at: log.newest_at };
        for index in 0..len {
            next.set(next_entries, index, log.made_at(entries, first.saturating_add(index)));
        }
        *next_header = header_of(next.start, next.len);
    }

    /// The algorithm's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.0
    }

    /// Units allowed at most in any half-open window as long as the quota's: the limit.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.0.limit()
    }

    #[inline]
    fn moment(&self, log: Log, entries: &Entries, now: Timestamp, cost: u64) -> Moment {
        let now = now.min(LATEST);
        let (limit, window) = (self.0.limit(), self.0.window());
        let Some(at) = effective_now(log.newest_at, now) else {
            let [used, kept] = [self.0.burst(), limit].map(|limit| kept(log.len, limit, cost));
            return Moment { log, now, at: now, expired: log.len, used, kept, is_anew: true };
        };
        let expired = log.count_while(entries, |made_at| made_at.saturating_add(window) <= at);
        let used = log.len.saturating_sub(expired);
        Moment { log, now, at, expired, used, kept: used, is_anew: false }
    }

    #[inline]
    fn decide(&self, entries: &Entries, moment: &Moment, cost: u64) -> Decision {
        let counted = Counted { limit: self.0.burst(), used: moment.used, now: moment.now };
        counted.decide(cost, |units| self.left_at(entries, moment, units))
    }

    /// When the oldest `units` entries have left. Entries that are not in the log (yet) are made at
    /// `moment.at`.
    #[inline]
    fn left_at(&self, entries: &Entries, moment: &Moment, units: u64) -> Timestamp {
        let index = moment.expired.saturating_add(units).saturating_sub(1);
        let made_at =
            if index < moment.log.len { moment.log.made_at(entries, index) } else { moment.at };
        made_at.saturating_add(self.0.window())
    }

    /// The header and the entries; `None` for bytes of another length.
    #[inline]
    fn split<'s>(&self, state: &'s [u8]) -> Option<(&'s Header, &'s Entries)> {
        let (words, []) = state.as_chunks() else { return None };
        let (header, entries) = words.split_first()?;
        (entries.len() == position(self.0.limit())).then_some((header, entries))
    }

    /// The same, writable.
    #[inline]
    fn split_mut<'s>(&self, state: &'s mut [u8]) -> Option<(&'s mut Header, &'s mut Entries)> {
        let (words, []) = state.as_chunks_mut() else { return None };
        let (header, entries) = words.split_first_mut()?;
        (entries.len() == position(self.0.limit())).then_some((header, entries))
    }
}

/// Adds `cost` entries; returns the log's header after that.
#[inline]
fn record(entries: &mut Entries, moment: &Moment, cost: u64) -> Header {
    let log = moment.log;
    let (start, len, added) = if moment.is_anew {
        (0, 0, moment.kept.saturating_add(cost))
    } else {
        (log.place(moment.expired), moment.kept, cost)
    };
    let end = len.saturating_add(added);
    let log = Log { start, ..log };
    for index in len..end {
        log.set(entries, index, moment.at);
    }
    header_of(start, end)
}

impl Log {
    #[inline]
    fn read(header: &Header, entries: &Entries, limit: u64) -> Self {
        let header = u64::from_le_bytes(*header);
        let (start, len) = (header & u64::from(u32::MAX), (header >> 32).min(limit));
        let start = if start < limit { start } else { start.checked_rem(limit).unwrap_or(0) };
        let log = Self { limit, start, len, newest_at: Timestamp::MAX };
        let newest_at = match len.checked_sub(1) {
            Some(last) => log.made_at(entries, last),
            None => Timestamp::ZERO,
        };
        Self { newest_at, ..log }
    }

    /// The time of the `index`-th entry, oldest first.
    #[inline]
    fn made_at(&self, entries: &Entries, index: u64) -> Timestamp {
        let entry = entries.get(position(self.place(index)));
        let made_at = entry.map_or(0, |entry| u64::from_le_bytes(*entry));
        Timestamp::from_nanos(made_at).min(self.newest_at)
    }

    #[inline]
    fn set(&self, entries: &mut Entries, index: u64, made_at: Timestamp) {
        if let Some(entry) = entries.get_mut(position(self.place(index))) {
            *entry = made_at.as_nanos().to_le_bytes();
        }
    }

    /// How many of the oldest entries meet `condition`, which later ones meet only if earlier ones
    /// do. Mostly it is none or a few: the search starts at the oldest, in steps that double.
    #[inline]
    fn count_while(&self, entries: &Entries, condition: impl Fn(Timestamp) -> bool) -> u64 {
        let holds = |index| condition(self.made_at(entries, index));
        let (mut holding, mut end) = (0, self.len);
        let mut reach: u64 = 0;
        while reach < end {
            if !holds(reach) {
                end = reach;
                break;
            }
            holding = reach.saturating_add(1);
            reach = reach.saturating_mul(2).saturating_add(1);
        }
        while holding < end {
            let middle = u64::midpoint(holding, end);
            if holds(middle) {
                holding = middle.saturating_add(1);
            } else {
                end = middle;
            }
        }
        holding
    }

    /// The position of the `index`-th entry in the ring.
    #[inline]
    fn place(&self, index: u64) -> u64 {
        let place = self.start.saturating_add(index);
        if place >= self.limit { place.saturating_sub(self.limit) } else { place }
    }
}

fn header_of(start: u64, len: u64) -> Header {
    (len << 32 | start).to_le_bytes()
}
