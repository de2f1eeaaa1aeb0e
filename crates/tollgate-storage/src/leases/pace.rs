//! How often a node asks the authority while demand exceeds supply, and which requests it denies in
//! between.
//!
//! The intervals begin with a denial or, for large limits, with a response that leaves almost
//! nothing. Then the authority is asked at intervals in which the node's share of the units that
//! grow back is worth about ten requests, at most a second. The number of nodes is not known here,
//! so the interval follows the responses: it grows when they are worth fewer requests, and shrinks
//! when they are worth more or when many units are left. Nothing is denied when a response grants
//! everything that was wanted, or leaves plenty.
//!
//! Intervals need a burst of 20 units for each node, or a node would deny requests that there is
//! room for. A node knows two signs of that: its share of the burst, by its own demand, and how
//! small a part of the remaining units it is leased. When either is too small, every request asks.
//!
//! Only the GCRA family is paced: its units grow back steadily. Other quotas, and a rule with
//! `"lease": 0`, repeat a denial for at most a second, as before.
//!
//! Invariant: pacing only causes denials. A node is too strict for one interval, never too lax.

use tollgate_core::{Span, Timestamp};

use crate::leases::account::NoLease;
use crate::leases::ask::Leased;
use crate::leases::last_answer::DirectAnswer;
use crate::leases::last_answer::LastAnswer;
use crate::leases::node::{Asking, Holding};
use crate::leases::paces::{NODE_BURST, Paces, REMEMBERED_DENIAL, SHORTEST, WORTH};

/// The burst units that a node needs to continue with intervals: its demand per second varies.
const NODE_BURST_LATER: u64 = 8;
/// How long nothing is paced after a response has shown that the burst is too small.
const CROWDED: Span = Span::from_secs(10);
/// For a limit that gives back [`WORTH`] units in less than this time, the intervals begin when
/// almost nothing is left.
const LARGE: Span = Span::from_millis(10 * WORTH);
/// Almost nothing is less than this part of the burst.
const NONE_LEFT: u64 = 24;

/// The part `numerator / denominator` of a length of time.
fn part(of: Span, numerator: u64, denominator: u64) -> Span {
    let nanos = of.saturating_mul(numerator).as_nanos();
    Span::from_nanos(nanos.checked_div(denominator).unwrap_or(0))
}

impl Holding {
    /// Sets the paces of the quotas in its requests.
    pub const fn know(&mut self, paces: Paces) {
        self.paces = paces;
    }

    /// True while demand recently exceeded supply.
    pub(crate) fn is_paced(&self) -> bool {
        self.pace > Span::ZERO
    }

    /// Stores the authority's response to a request at `now`, quota by quota. It is repeated if the
    /// request was denied, or while the authority is asked at intervals.
    pub fn remember(&mut self, now: Timestamp, answer: &DirectAnswer) {
        let DirectAnswer { cost, ref decisions, .. } = *answer;
        if answer.is_of_denied || self.is_paced() {
            self.last = Some(LastAnswer::new(now, cost, decisions));
        }
        let denials = decisions.iter().filter(|decision| !decision.is_admitted());
        let waits = denials.map(|decision| decision.retry_after);
        let wait = waits.reduce(|one, other| Some(one?.max(other?)));
        if let Some(wait) = wait {
            self.hear_denial(now, cost, wait);
        } else if let Some(left) = decisions.iter().map(|decision| decision.remaining).min() {
            self.hear_left(now, cost, left);
        }
    }

    /// The authority denied a direct cost at `now`, and can allow it after `retry_after`.
    pub(crate) fn hear_denial(&mut self, now: Timestamp, cost: u64, retry_after: Option<Span>) {
        if self.has_room(now, cost) {
            self.back_off(now, cost);
        } else {
            self.pace = Span::ZERO;
            self.deny(now, cost, retry_after);
        }
    }

    /// The authority denied a direct cost at `now`: sets the time of the next request.
    pub(crate) fn back_off(&mut self, now: Timestamp, cost: u64) {
        let first = self.paces.first.saturating_mul(cost);
        self.pace = self.pace.saturating_mul(2).max(first).min(self.paces.longest());
        self.deny_until(now, cost, now.saturating_add(self.pace));
    }

    /// The authority denied a direct cost at `now`, for `retry_after`.
    pub fn deny(&mut self, now: Timestamp, cost: u64, retry_after: Option<Span>) {
        let wait = retry_after.unwrap_or(REMEMBERED_DENIAL).min(REMEMBERED_DENIAL);
        self.deny_until(now, cost, now.saturating_add(wait));
    }

    fn deny_until(&mut self, now: Timestamp, cost: u64, until: Timestamp) {
        // A lower cost that is still denied stays denied when a higher one is.
        let least = self.denied.filter(|(_, until)| *until > now).map_or(cost, |(it, _)| it);
        self.denied = Some((cost.min(least), until));
    }

    /// The last response, if it is usable: for `REMEMBERED_DENIAL`, or while it denies.
    pub fn last(&self, now: Timestamp) -> Option<&LastAnswer> {
        let denies = self.denied.is_some_and(|(_, until)| until > now);
        self.last.as_ref().filter(|last| denies || now.since(last.at) <= REMEMBERED_DENIAL)
    }

    /// The remaining time of a remembered denial of `cost`.
    pub fn denied_for(&self, now: Timestamp, cost: u64) -> Option<Span> {
        let (least, until) = self.denied.filter(|(_, until)| *until > now)?;
        (cost >= least).then(|| until.since(now))
    }

    /// Sets the time of the next request from the result of the request `asking`.
    pub(crate) fn keep_pace(&mut self, asking: &Asking, leased: Leased) {
        if !self.is_paced() {
            return;
        }
        let cost = self.denied.map_or(1, |(cost, _)| cost).max(1);
        let worth = match leased {
            Ok(grant) if grant.units >= asking.want => {
                self.denied = Some((cost, asking.asked_at));
                return self.shorten(2);
            }
            // Includes the request that asked.
            Ok(grant) => grant.units.checked_div(cost).unwrap_or(0).saturating_add(1),
            Err(NoLease::NearLimit) => 0,
            // The denial sets the interval.
            Err(NoLease::Refused) => return,
            Err(
                NoLease::Unasked
                | NoLease::TooMany
                | NoLease::Awaited
                | NoLease::Unsteady
                | NoLease::Unleasable,
            ) => return self.end_pace(),
        };
        // Half of the way, and at most to the double, or the interval would oscillate.
        let aim = part(self.pace, WORTH, worth.max(WORTH / 3));
        self.pace = part(self.pace.saturating_add(aim), 1, 2).min(self.paces.longest());
        self.denied = Some((cost, asking.asked_at.saturating_add(self.pace)));
        self.shorten(1);
    }

    /// The authority allowed a direct cost at `now`, with `left` units remaining before it leased.
    pub(crate) fn hear_left(&mut self, now: Timestamp, cost: u64, left: u64) {
        let Paces { first, burst, .. } = self.paces;
        if !self.has_room(now, cost) {
            if self.is_paced() {
                self.end_pace();
            }
        } else if !self.is_paced() {
            let least = WORTH.min(burst.checked_div(NONE_LEFT).unwrap_or(0));
            if left < least && first <= LARGE {
                self.pace = first.min(self.paces.longest());
                self.denied = Some((cost, now.saturating_add(self.pace)));
            }
        } else if self.is_crowded(left) {
            self.end_pace();
            self.unpaced_until = now.saturating_add(CROWDED);
        } else if left >= burst.saturating_mul(2).checked_div(5).unwrap_or(0) {
            self.denied = Some((cost, now));
            // Half of the earlier interval, whatever this response made of it.
            self.shorten(4);
        }
    }

    /// True when an interval can be worth a lease request: the node's share of the burst, by its
    /// demand, is large enough.
    fn has_room(&mut self, now: Timestamp, cost: u64) -> bool {
        let own = self.demand.within(now, self.paces.half.saturating_mul(2));
        let least = if self.is_paced() { NODE_BURST_LATER } else { NODE_BURST };
        let is_known = self.paces.first > Span::ZERO && self.unpaced_until <= now;
        is_known && own >= least.saturating_mul(cost)
    }

    /// True when the lease that the authority granted from `left` units shows that there are more
    /// nodes than the burst has [`NODE_BURST`] for: the lease is 2 / (`n` + 1) of them, and at most
    /// 2 / 3 `n` of the burst.
    fn is_crowded(&self, left: u64) -> bool {
        let Some(next) = self.held.last().map(|held| held.units.saturating_add(1)) else {
            return false;
        };
        let twice = |units: u64| units.saturating_mul(2);
        // Both multiplied by `next`, and rounded so that the number of nodes is not overestimated.
        let of_left = twice(left).saturating_sub(next);
        let of_burst = twice(self.paces.burst).checked_div(3).unwrap_or(0);
        let nodes = of_left.min(of_burst);
        nodes.saturating_mul(NODE_BURST) > self.paces.burst.saturating_mul(next)
    }

    /// True when nothing was wanted in this second, so that a request only reports. Units leased
    /// for earlier demand would be missing at the nodes that now have requests.
    pub(crate) fn only_reports(&mut self, now: Timestamp) -> bool {
        let is_known = self.paces.first > Span::ZERO && !self.is_paced();
        is_known && self.demand.this_second(now) == 0
    }

    /// At most the demand of the node while half of the burst grows back, so that the leases of all
    /// nodes fit in it. While the node asks at intervals, at least the units that one lease request
    /// should be worth.
    pub(crate) fn bounded(&mut self, want: u64, now: Timestamp, cost: u64) -> u64 {
        if self.paces.first == Span::ZERO {
            return want;
        }
        let least = if self.is_paced() { WORTH } else { 1 };
        let soon = self.demand.within(now, self.paces.half);
        want.min(soon.max(cost.saturating_mul(least)))
    }

    /// The latest time to report closed leases: a node that asks at intervals includes them in the
    /// next request, if there is one.
    pub(crate) fn reports_at(&self) -> Timestamp {
        match self.denied {
            Some((_, until)) if self.is_paced() => {
                let next = until.saturating_add(part(self.paces.longest(), 3, 10));
                self.report_at.max(next)
            }
            Some(_) | None => self.report_at,
        }
    }

    /// True unless there was nothing to lease recently.
    pub(crate) fn may_ask_ahead(&self, now: Timestamp) -> bool {
        let is_denied = self.denied.is_some_and(|(_, until)| until > now);
        self.quiet_until <= now && !(is_denied && self.is_paced())
    }

    /// Ends the intervals when there was no request for a while.
    pub(crate) fn rest(&mut self, now: Timestamp) {
        let Some((_, until)) = self.denied.filter(|_| self.is_paced()) else { return };
        if self.asking.is_none() && until.saturating_add(REMEMBERED_DENIAL) < now {
            self.end_pace();
        }
    }

    fn shorten(&mut self, divisor: u64) {
        self.pace = part(self.pace, 1, divisor);
        if self.pace < SHORTEST {
            self.end_pace();
        }
    }

    fn end_pace(&mut self) {
        (self.pace, self.denied, self.last) = (Span::ZERO, None, None);
    }
}
