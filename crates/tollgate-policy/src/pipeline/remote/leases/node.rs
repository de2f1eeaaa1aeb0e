//! What a node may spend of the leases of one quota set of one key, and when it asks for more.
//!
//! Invariant: nothing is spent of a lease from `life x (1 - drift)` after it was *asked* for, by
//! the node's own clock, nor after a report that calls it final. So it ends here before it ends at
//! the authority, whatever the network does. A number is asked for once; whatever became of a
//! question that nobody answered, its number is given back, as if nothing had been spent of it.
//!
//! Under overload a node asks at intervals in which its share of what grows back is worth about ten
//! requests (`pace`), and denies in between.
//!
//! Workers of one node share it: whoever commits a change of it by compare-and-swap has read the
//! clock in the same try. While one asks, the others see so until a deadline.
//!
//! Deliberately absent: the message, the clock, and how long a request may wait.

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::pipeline::remote::leases::account::LeaseReport;
use crate::pipeline::remote::leases::ask::{LeaseAsk, Leased, MAX_LEASE_REPORTS};
use crate::pipeline::remote::leases::clock::MAX_LEASE_LIFE;
use crate::pipeline::remote::leases::demand::Demand;
use crate::pipeline::remote::leases::last_answer::LastAnswer;
use crate::pipeline::remote::leases::mutation::{self, Mutation};
use crate::pipeline::remote::leases::paces::Paces;

/// By how much a node's clock may be slow, in millionths: 0.1 %, twenty times what a bad quartz is.
const DRIFT_PPM: u64 = 1_000;
/// What is asked for is what the node would use in the life of a lease. A node to which fewer than
/// eight requests are to come in that asks for each: a lease costs a question to get and another
/// one to give back, and the busier second is above the average by far where requests are few.
const FEWEST: u64 = 8;
/// More is asked for in advance when a quarter of a lease is left, of its units or of its life;
/// what is left of it goes back in its last eighth.
const LOW_WATER: u64 = 4;
const RETURNED: u64 = 8;
/// For how long nothing is asked for in advance where nothing was leased: then every request asks.
const QUIET: Span = Span::from_millis(100);
/// How many leases may wait for their end to be confirmed; one more, and the oldest ends by itself,
/// charged in full. The others are those in hand.
pub(crate) const MAX_CLOSED: usize = 6;
/// Leases in hand: what is spent of, and what was asked for in advance.
pub(crate) const MAX_HELD: usize = MAX_LEASE_REPORTS - MAX_CLOSED;

/// What a node holds of one quota set of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// What is spent of, and what is spent of after it.
    pub(crate) held: Vec<Held>,
    /// Leases that are over here.
    pub(crate) closed: Vec<Closed>,
    /// When they are reported at the latest: with any question before.
    pub(crate) report_at: Timestamp,
    pub(crate) asking: Option<Asking>,
    /// A cost that was denied, and until when it is denied without asking.
    pub(crate) denied: Option<(u64, Timestamp)>,
    /// What the authority answered to the request that it denied last: whichever rule of its key
    /// did.
    pub(crate) last: Option<LastAnswer>,
    /// How often the authority is asked while more is wanted than there is; zero otherwise.
    pub(crate) pace: Span,
    pub(crate) paces: Paces,
    /// Until then every request asks: the burst is too small for so many nodes.
    pub(crate) unpaced_until: Timestamp,
    /// Nothing is asked for in advance until then: there was nothing to lease.
    pub(crate) quiet_until: Timestamp,
    pub(crate) demand: Demand,
}

/// A lease in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) units: u64,
    pub(crate) spent: u64,
    pub(crate) life: Span,
    pub(crate) ends_at: Timestamp,
}

/// A lease that is over here, and that the authority may not know to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) report: LeaseReport,
    /// The question in which it was sent last; 0 for none.
    pub(crate) sent: u64,
}

/// A question under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asking {
    /// Never 0.
    pub(crate) number: u64,
    pub(crate) want: u64,
    pub(crate) asked_at: Timestamp,
    /// Nobody waits for it longer.
    pub(crate) until: Timestamp,
}

/// What a node does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It goes on, paid from this lease.
    Spent {
        /// The lease, for [`Holding::put_back`].
        number: u64,
        /// Units left in the leases in hand: `r` of the header field.
        left: u64,
        /// The rest of the last one's life: `t` of the header field, before it is rounded up.
        rest: Span,
    },
    /// The authority is to be asked for its cost.
    Ask,
    /// Somebody asks; look again then.
    Wait(Timestamp),
    /// It was refused so lately that it is again.
    Denied(Span),
}

impl Held {
    const fn left(&self) -> u64 {
        self.units.saturating_sub(self.spent)
    }

    /// From when on what is left goes back.
    fn returns_at(&self) -> Timestamp {
        let part = self.life.as_nanos().checked_div(RETURNED).unwrap_or(0);
        self.ends_at.saturating_sub(Span::from_nanos(part))
    }

    /// True when more is to be asked for, if this is all there is.
    fn is_low(&self, now: Timestamp) -> bool {
        let quarter = self.life.as_nanos().checked_div(LOW_WATER).unwrap_or(0);
        let is_old = self.ends_at.saturating_sub(Span::from_nanos(quarter)) <= now;
        self.left() <= self.units.checked_div(LOW_WATER).unwrap_or(0) || is_old && self.spent > 0
    }
}

impl Holding {
    /// Pays `cost` at `now` from the first lease that has enough; one that has not is closed.
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

    /// Puts back what [`Holding::take`] took, because another rule refuses; false when the lease
    /// ended since, and the units are lost.
    pub fn put_back(&mut self, now: Timestamp, number: u64, cost: u64) -> bool {
        self.close_old(now);
        let Some(held) = self.held.iter_mut().find(|held| held.number == number) else {
            return false;
        };
        held.spent = held.spent.saturating_sub(cost);
        true
    }

    /// True when the authority is to be asked though nobody waits: little is left, or something is
    /// to go back.
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

    /// What is asked of `set` under a number above 0 that was never used, for requests of `cost`,
    /// at `now`; nobody waits for the answer beyond `patience`. A `life` is at most
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
        // Whoever asks for a lease is waited for. Where there was none to be had everybody asks for
        // himself, or one request would pass for each round trip, and the others be too late. Under
        // overload one asks for all.
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
        let running =
            |held: &Held| LeaseReport { number: held.number, spent: held.spent, is_final: false };
        let mut reports: Vec<LeaseReport> = self.held.iter().map(running).collect();
        reports.extend(self.closed.iter().map(|closed| closed.report));
        LeaseAsk { set, number, want, least: cost.max(1), life, reports }
    }

    /// The answer to the question `number`, at `now`.
    pub fn answer(&mut self, number: u64, leased: Leased, now: Timestamp) {
        self.closed.retain(|closed| closed.sent != number);
        let Some(asking) = self.asking.filter(|asking| asking.number == number) else {
            // It was given up: whatever it brought was given back with it.
            if let (true, Ok(grant)) = (mutation::is(Mutation::TakesAgain), leased) {
                let ends_at = now.saturating_add(grant.life);
                let (units, life) = (grant.units, grant.life);
                self.held.push(Held { number, units, spent: 0, life, ends_at });
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
        self.held.push(Held { number, units: grant.units, spent: 0, life, ends_at });
        if !self.is_paced() {
            (self.denied, self.last) = (None, None);
        }
        self.close_old(now);
    }

    /// The authority has taken in these reports. What is final is the same in every question, so
    /// the answer to any of them confirms it: two workers that give the same back would else wait
    /// for the answer to the later question, each time, and ask without end.
    pub fn confirm(&mut self, reports: &[LeaseReport]) {
        self.closed.retain(|closed| !reports.contains(&closed.report));
    }

    /// No answer came to the question `number`.
    pub fn fail(&mut self, number: u64) {
        if self.asking.is_some_and(|asking| asking.number == number) {
            self.give_up();
        }
    }

    /// The question `number` never left this node, or was answered without a part about leases:
    /// nothing was leased.
    pub fn unasked(&mut self, number: u64) {
        self.asking = self.asking.filter(|asking| asking.number != number);
    }

    /// Gives everything back: the node stops, or the policy is another one.
    pub fn close(&mut self) {
        self.give_up();
        while !self.held.is_empty() {
            self.close_first(Timestamp::ZERO);
        }
    }

    /// Units in hand.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.held.iter().fold(0, |sum, held| sum.saturating_add(held.left()))
    }

    /// True when the first lease in hand has enough for `cost`, so that [`Holding::take`] pays it.
    pub(crate) fn has(&mut self, now: Timestamp, cost: u64) -> bool {
        self.close_old(now);
        self.held.first().is_some_and(|held| held.left() >= cost)
    }

    /// True while somebody asks.
    pub(crate) fn is_asking(&self, now: Timestamp) -> bool {
        self.asking.is_some_and(|asking| asking.until > now)
    }

    /// True when it may be forgotten: nothing is in hand, asked for or to be reported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.closed.is_empty() && self.asking.is_none()
    }

    /// When the last lease in hand ends, or nobody waits for an answer any more.
    pub(crate) fn ends_at(&self) -> Timestamp {
        let held = self.held.iter().map(|held| held.ends_at);
        held.chain(self.asking.map(|asking| asking.until)).max().unwrap_or(Timestamp::ZERO)
    }

    /// When it is to be looked at although nobody spends: what is left is to go back then, or more
    /// is to be asked for. `None` where there is nothing to go back.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        let report = (!self.closed.is_empty())
            .then(|| self.reports_at().max(self.asking.map_or(Timestamp::ZERO, |it| it.until)));
        self.held.iter().map(Held::returns_at).chain(report).min()
    }

    pub(crate) fn rest_of_lives(&self, now: Timestamp) -> Span {
        self.held.iter().map(|held| held.ends_at.since(now)).max().unwrap_or(Span::ZERO)
    }

    /// A question that nobody waits for any more may have leased something: it goes back unspent.
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

    /// What is left of the first lease in hand goes back at once; where nothing is, that is
    /// reported a little later.
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
        // 0 is no question's number.
        self.closed.push(Closed { report, sent: 0 });
    }
}

/// The part of a length of time that has surely not passed elsewhere when it has here.
fn sure_part(nanos: u64) -> u64 {
    let slow = nanos.div_ceil(1_000_000).saturating_mul(DRIFT_PPM);
    nanos.saturating_sub(slow)
}
