//! The leases of one quota set of one key that a node holds: how much it may spend, and when it
//! requests more.
//!
//! Invariant: nothing is spent of a lease from `life x (1 - drift)` after it was *requested*, by
//! the node's own clock, nor after a report that marks it as final. So it ends here before it ends
//! at the authority, whatever the network does. A number is used for one request only. The number
//! of a request without a response is given back, as if nothing had been spent of its lease.
//!
//! Under overload a node requests leases at intervals in which its share of the units that grow
//! back is worth about ten requests (`pace`), and denies in between.
//!
//! The workers of one node share it: a worker that commits a change by compare-and-swap has read
//! the clock in the same attempt. While one worker has a request in flight, the others see that
//! until a deadline.
//!
//! Deliberately absent: the message, the clock, and how long a request may wait.

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::leases::account::LeaseReport;
use crate::leases::ask::{LeaseAsk, Leased, MAX_LEASE_REPORTS};
use crate::leases::clock::MAX_LEASE_LIFE;
use crate::leases::demand::Demand;
use crate::leases::last_answer::LastAnswer;
use crate::leases::mutation::{self, Mutation};
use crate::leases::paces::Paces;

/// How slow a node's clock may be, in millionths: 0.1 %, twenty times the error of a bad quartz.
const DRIFT_PPM: u64 = 1_000;
/// A node requests the units that it would use in the life of a lease. If it expects fewer than
/// eight requests in that time, it asks for each one: a lease costs one request to get and another
/// one to give back, and when requests are few, the busier second is far above the average.
const FEWEST: u64 = 8;
/// More units are requested in advance when a quarter of a lease is left, of its units or of its
/// life; the units that are left in its last eighth are given back.
const LOW_WATER: u64 = 4;
const RETURNED: u64 = 8;
/// After an unsuccessful lease request nothing is requested in advance for this time: every request
/// asks.
const QUIET: Span = Span::from_millis(100);
/// How many leases may wait for the confirmation of their end; beyond this number the oldest
/// expires and is charged in full. The other reports are for held leases.
pub(crate) const MAX_CLOSED: usize = 6;
/// Held leases: the one being spent, and one requested in advance.
pub(crate) const MAX_HELD: usize = MAX_LEASE_REPORTS - MAX_CLOSED;

/// The leases that a node holds of one quota set of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The lease being spent, and the next one.
    pub(crate) held: Vec<HeldLease>,
    /// Leases that are over here.
    pub(crate) closed: Vec<Closed>,
    /// The latest time to report them; any earlier request includes them.
    pub(crate) report_at: Timestamp,
    pub(crate) asking: Option<Asking>,
    /// A denied cost, and the time until which it is denied without a request.
    pub(crate) denied: Option<(u64, Timestamp)>,
    /// The authority's response for this set to the last request that it denied, whichever rule of
    /// the key denied it.
    pub(crate) last: Option<LastAnswer>,
    /// The interval between requests to the authority while demand exceeds supply; zero otherwise.
    pub(crate) pace: Span,
    pub(crate) paces: Paces,
    /// Until this time every request asks: the burst is too small for the number of nodes.
    pub(crate) unpaced_until: Timestamp,
    /// Nothing is requested in advance until this time: there was nothing to lease.
    pub(crate) quiet_until: Timestamp,
    pub(crate) demand: Demand,
}

/// A lease that the node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLease {
    pub(crate) number: u64,
    pub(crate) units: u64,
    pub(crate) spent: u64,
    pub(crate) life: Span,
    pub(crate) ends_at: Timestamp,
}

/// A lease that is over here; the authority may not know that yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) report: LeaseReport,
    /// The request that last contained the report; 0 for none.
    pub(crate) sent: u64,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asking {
    /// Never 0.
    pub(crate) number: u64,
    pub(crate) want: u64,
    pub(crate) asked_at: Timestamp,
    /// The time until which other requests wait for it.
    pub(crate) until: Timestamp,
}

/// The result of paying a request from a holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is allowed, paid from this lease.
    Spent {
        /// The lease, for [`Holding::put_back`].
        number: u64,
        /// Units left in the held leases: `r` of the header field.
        left: u64,
        /// The remaining life of the last one: `t` of the header field, before it is rounded up.
        rest: Span,
    },
    /// Request its cost from the authority.
    Ask,
    /// Another request is in flight; try again at this time.
    Wait(Timestamp),
    /// It is denied again: it was denied recently.
    Denied(Span),
}

impl HeldLease {
    const fn left(&self) -> u64 {
        self.units.saturating_sub(self.spent)
    }

    /// The time from which the remaining units are given back.
    fn returns_at(&self) -> Timestamp {
        let part = self.life.as_nanos().checked_div(RETURNED).unwrap_or(0);
        self.ends_at.saturating_sub(Span::from_nanos(part))
    }

    /// True when more should be requested, if this is the only lease.
    fn is_low(&self, now: Timestamp) -> bool {
        let quarter = self.life.as_nanos().checked_div(LOW_WATER).unwrap_or(0);
        let is_old = self.ends_at.saturating_sub(Span::from_nanos(quarter)) <= now;
        self.left() <= self.units.checked_div(LOW_WATER).unwrap_or(0) || is_old && self.spent > 0
    }
}

impl Holding {
    /// Pays `cost` at `now` from the first lease that has enough; a lease that has not is closed.
    pub fn take(&mut self, now: Timestamp, cost: u64) -> Taken {
        self.close_old(now);
        let taken = self.take_one(now, cost);
        if !matches!(taken, Taken::Wait(_)) {
            self.demand.note(now, cost);
        }
        taken
    }

    fn take_one(&mut self, now: Timestamp, cost: u64) -> Taken {
        while let Some(first) = self.held.first_mut() {
            if first.left() >= cost {
                first.spent = first.spent.saturating_add(cost);
                let number = first.number;
                return Taken::Spent { number, left: self.left(), rest: self.rest_of_lives(now) };
            }
            self.close_first(now);
        }
        if let Some(rest) = self.denied_for(now, cost) {
            return Taken::Denied(rest);
        }
        match self.asking {
            Some(asking) if asking.until > now => Taken::Wait(asking.until),
            _ => Taken::Ask,
        }
    }

    /// Returns the units that [`Holding::take`] took, because another rule denies; false when the
    /// lease has ended in the meantime, and the units are lost.
    pub fn put_back(&mut self, now: Timestamp, number: u64, cost: u64) -> bool {
        self.close_old(now);
        let Some(held) = self.held.iter_mut().find(|held| held.number == number) else {
            return false;
        };
        held.spent = held.spent.saturating_sub(cost);
        true
    }

    /// True when the authority should be asked although no request waits: few units are left, or
    /// some must be given back.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        self.close_old(now);
        if self.asking.is_some_and(|asking| asking.until > now) {
            return false;
        }
        let is_low = match self.held.as_slice() {
            [held] => {
                let is_busy = self.is_paced() || self.demand.within(now, held.life) >= FEWEST;
                held.is_low(now) && is_busy
            }
            _ => false,
        };
        is_low && self.may_ask_ahead(now) || self.is_report_due(now)
    }

    /// The request for `set` under a number above 0 that was never used, for requests of `cost`, at
    /// `now`; other requests wait for its response for at most `patience`. A `life` is at most
    /// [`MAX_LEASE_LIFE`].
    pub fn ask(
        &mut self,
        set: u64,
        number: u64,
        cost: u64,
        now: Timestamp,
        (life, patience): (Span, Span),
    ) -> LeaseAsk {
        self.close_old(now);
        self.give_up();
        let life = life.min(MAX_LEASE_LIFE);
        let want = if self.only_reports(now) { 0 } else { self.demand.within(now, life) };
        // The other requests wait for a request that asks for a lease. When there was none to
        // lease, every request asks on its own: otherwise one request would be allowed per round
        // trip, and the others would be too late. Under overload one asks for all.
        let is_worth_it = want >= cost.max(1).saturating_mul(FEWEST) && self.quiet_until <= now;
        let is_asked = self.held.len() < MAX_HELD && life > Span::ZERO;
        let want = match (is_asked, self.is_paced()) {
            (true, true) => self.bounded(want.max(cost), now, cost),
            (true, false) if is_worth_it => self.bounded(want, now, cost),
            (true | false, _) => 0,
        };
        if want > 0 {
            let until = now.saturating_add(patience);
            self.asking = Some(Asking { number, want, asked_at: now, until });
        }
        for closed in &mut self.closed {
            closed.sent = number;
        }
        let running = |held: &HeldLease| LeaseReport {
            number: held.number,
            spent: held.spent,
            is_final: false,
        };
        let mut reports: Vec<LeaseReport> = self.held.iter().map(running).collect();
        reports.extend(self.closed.iter().map(|closed| closed.report));
        LeaseAsk { set, number, want, least: cost.max(1), life, reports }
    }

    /// Processes the response to the request `number`, at `now`.
    pub fn answer(&mut self, number: u64, leased: Leased, now: Timestamp) {
        self.closed.retain(|closed| closed.sent != number);
        let Some(asking) = self.asking.filter(|asking| asking.number == number) else {
            // It was given up: any lease of it was given back at that time.
            if let (true, Ok(grant)) = (mutation::is(Mutation::TakesAgain), leased) {
                let ends_at = now.saturating_add(grant.life);
                let (units, life) = (grant.units, grant.life);
                self.held.push(HeldLease { number, units, spent: 0, life, ends_at });
            }
            return;
        };
        self.asking = None;
        self.keep_pace(&asking, leased);
        let Ok(grant) = leased else {
            self.quiet_until = now.saturating_add(QUIET);
            return;
        };
        let from = if mutation::is(Mutation::LivesFromAnswer) { now } else { asking.asked_at };
        let life = Span::from_nanos(sure_part(grant.life.as_nanos()));
        let ends_at = from.saturating_add(life);
        self.held.push(HeldLease { number, units: grant.units, spent: 0, life, ends_at });
        if !self.is_paced() {
            (self.denied, self.last) = (None, None);
        }
        self.close_old(now);
    }

    /// The authority has processed these reports. A final report is the same in every request, so
    /// the response to any of them confirms it. Otherwise two workers that give the same lease back
    /// would each wait for the response to the later request, and repeat their requests forever.
    pub fn confirm(&mut self, reports: &[LeaseReport]) {
        self.closed.retain(|closed| !reports.contains(&closed.report));
    }

    /// The request `number` got no response.
    pub fn fail(&mut self, number: u64) {
        if self.asking.is_some_and(|asking| asking.number == number) {
            self.give_up();
        }
    }

    /// The request `number` never left this node, or its response had no lease part: nothing was
    /// leased.
    pub fn unasked(&mut self, number: u64) {
        self.asking = self.asking.filter(|asking| asking.number != number);
    }

    /// Gives everything back: the node stops, or the policy changes.
    pub fn close(&mut self) {
        self.give_up();
        while !self.held.is_empty() {
            self.close_first(Timestamp::ZERO);
        }
    }

    /// Units in the held leases.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.held.iter().fold(0, |sum, held| sum.saturating_add(held.left()))
    }

    /// True when the first held lease has enough for `cost`, so that [`Holding::take`] pays it.
    pub fn has(&mut self, now: Timestamp, cost: u64) -> bool {
        self.close_old(now);
        self.held.first().is_some_and(|held| held.left() >= cost)
    }

    /// True while a request is in flight.
    pub(crate) fn is_asking(&self, now: Timestamp) -> bool {
        self.asking.is_some_and(|asking| asking.until > now)
    }

    /// True when it may be dropped: nothing is held, requested or waiting to be reported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.closed.is_empty() && self.asking.is_none()
    }

    /// When the last held lease ends, or the wait for a response ends.
    pub(crate) fn ends_at(&self) -> Timestamp {
        let held = self.held.iter().map(|held| held.ends_at);
        held.chain(self.asking.map(|asking| asking.until)).max().unwrap_or(Timestamp::ZERO)
    }

    /// When it should be checked although nothing is spent: units must be given back then, or more
    /// must be requested. `None` when there is nothing to give back.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        let report = (!self.closed.is_empty())
            .then(|| self.reports_at().max(self.asking.map_or(Timestamp::ZERO, |it| it.until)));
        self.held.iter().map(HeldLease::returns_at).chain(report).min()
    }

    /// The time until the last lease that is held ends.
    pub fn rest_of_lives(&self, now: Timestamp) -> Span {
        self.held.iter().map(|held| held.ends_at.since(now)).max().unwrap_or(Span::ZERO)
    }

    /// A request whose wait has ended may have leased something: give that back unspent.
    fn give_up(&mut self) {
        if let Some(Asking { number, .. }) = self.asking.take() {
            self.push_closed(number, 0, Timestamp::ZERO);
        }
    }

    fn close_old(&mut self, now: Timestamp) {
        self.rest(now);
        while self.held.first().is_some_and(|held| held.returns_at() <= now) {
            self.close_first(now);
        }
    }

    fn is_report_due(&self, now: Timestamp) -> bool {
        !self.closed.is_empty() && self.reports_at() <= now
    }

    /// The remaining units of the first held lease are given back at once; if there are none, that
    /// is reported a little later.
    fn close_first(&mut self, now: Timestamp) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(0);
        let wait = if held.left() == 0 { self.paces.longest() } else { Span::ZERO };
        self.push_closed(held.number, held.spent, now.saturating_add(wait));
    }

    fn push_closed(&mut self, number: u64, spent: u64, report_at: Timestamp) {
        let is_first = self.closed.is_empty();
        self.report_at = if is_first { report_at } else { self.report_at.min(report_at) };
        if self.closed.len() >= MAX_CLOSED {
            self.closed.remove(0);
        }
        let report = LeaseReport { number, spent, is_final: true };
        // No request has the number 0.
        self.closed.push(Closed { report, sent: 0 });
    }
}

/// The part of a length of time that has certainly not passed elsewhere when it has here, despite
/// [`DRIFT_PPM`].
fn sure_part(nanos: u64) -> u64 {
    let slow = nanos.div_ceil(1_000_000).saturating_mul(DRIFT_PPM);
    nanos.saturating_sub(slow)
}
