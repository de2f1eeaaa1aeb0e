//! The accounting: the decisions of a key's limiters in addition to the units that are out, and the
//! end of leases.
//!
//! Invariant: units that are out are in no state, but every decision takes them into account, until
//! they are charged or returned. A charge of them always fits. With invalid stored bytes it may not
//! fit, and is then charged as far as it does.

use core::mem;

use alloc::vec::Vec;
use tollgate_core::{Algorithm, Decision, Limiter, Span, Timestamp};

use crate::counted_set::CountedSet;
use crate::leases::clock::{Clock, MAX_LEASE_LIFE};
use crate::leases::lease::{Awaited, Lease, LeaseId, Leases};
use crate::leases::mutation::{self, Mutation, did_not_fit};
use crate::leases::paces::may_be_paced;
use crate::stored_set::StoredQuota;

/// A node's report of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The lease's number.
    pub number: u64,
    /// All units of it spent so far: a running total, so that a report may be lost, repeated, late
    /// and in any order.
    pub spent: u64,
    /// No more of it will be spent: the node stopped before this report, and never resumes.
    pub is_final: bool,
}

/// A node's request for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) id: LeaseId,
    pub(crate) units: u64,
    /// Fewer units are of no use to the node.
    pub(crate) least: u64,
    pub(crate) life: Span,
}

/// Why nothing is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLease {
    /// No lease was requested.
    Unasked,
    /// So few units are left that every request asks the authority: units held by a node that
    /// spends nothing would be denied to other nodes.
    NearLimit,
    /// The key already has [`MAX_LEASES`](crate::MAX_LEASES).
    TooMany,
    /// A direct cost waits for units that are out.
    Awaited,
    /// The clock made a step recently, or writes were lost: earlier leases may still be spent.
    Unsteady,
    /// The key is blocked, or the request was denied.
    Refused,
    /// A quota of the rule assigns places, not units, or the rule is not known here.
    Unleasable,
}

impl CountedSet {
    /// Fills in the decisions in addition to the units that are out; a wait longer than `longest`
    /// is a denial.
    pub(crate) fn look(
        &mut self,
        decisions: &mut [Decision],
        now: Timestamp,
        cost: u64,
        longest: Option<Span>,
    ) {
        let out = self.out_for_direct();
        let needed = if cost == 0 { 0 } else { cost.saturating_add(out) };
        self.counted(decisions).look(now, needed, longest);
        if out == 0 {
            return;
        }
        let Self { quotas, states, leases, .. } = self;
        each(quotas.set.quotas(), states, decisions, |limiter, state, decision| {
            if !decision.is_admitted() {
                decision.remaining = limiter.peek(state, now, 0).remaining;
                decision.retry_after = leases.soonest(limiter, state, now, cost);
            }
            if cost == 0 || !decision.is_admitted() {
                leases.reserve(decision, limiter, state, now);
            }
        });
    }

    /// Charges every quota.
    pub(crate) fn charge(&mut self, decisions: &mut [Decision], now: Timestamp, cost: u64) {
        self.counted(decisions).charge(now, cost);
        if let Some(awaited) = self.leases.awaited.as_mut().filter(|it| it.cost <= cost) {
            awaited.until = awaited.until.min(now);
        }
        self.reserve(decisions, now, |_| true);
    }

    /// Sets the decisions to the remaining units without the request. Denials are unchanged.
    pub(crate) fn leave(&mut self, decisions: &mut [Decision], now: Timestamp) {
        self.counted(decisions).leave(now);
        self.reserve(decisions, now, Decision::is_admitted);
    }

    /// Records a cost that would fit if no units were out, so that nothing more is leased until the
    /// last lease ends; true when this is new. A client that sends such costs all the time can
    /// prevent leases half of the time.
    pub(crate) fn await_room(&mut self, now: Timestamp, cost: u64) -> bool {
        let Some(last) = self.leases.all.last() else { return false };
        let fits = |quota: &StoredQuota| {
            let state = quota.state(&self.states);
            state.is_some_and(|state| quota.limiter().peek(state, now, cost).is_admitted())
        };
        if cost == 0 || self.leases.awaited.is_some() || !self.quotas.set.quotas().iter().all(fits)
        {
            return false;
        }
        self.leases.awaited = Some(Awaited { cost, until: last.ends_at });
        true
    }

    /// Charges the unreported units of the leases that are over, each at its end, and removes these
    /// leases; true when there were any.
    pub(crate) fn end_leases(&mut self, clock: &Clock) -> bool {
        if self.leases.is_empty() {
            return false;
        }
        let Leases { mut all, awaited, since } = mem::take(&mut self.leases);
        let is_remembered =
            |it: &Awaited| it.until.saturating_add(MAX_LEASE_LIFE) > clock.now.max(since);
        for lease in &mut all {
            lease.ends_at = lease.end_by(clock);
        }
        sort_by_end(&mut all);
        let over = all.partition_point(|lease| lease.ends_at <= clock.now);
        for lease in all.drain(..over) {
            if !mutation::is(Mutation::TrustsSilence) {
                self.charge_out(lease.out(), lease.ends_at.max(since));
            }
        }
        self.leases = Leases { all, awaited: awaited.filter(is_remembered), since };
        over > 0
    }

    /// Processes a report of `table` at `now`; true when it contains anything new. A lease that is
    /// unknown, or over, is ignored.
    pub(crate) fn report(&mut self, table: u128, report: &LeaseReport, now: Timestamp) -> bool {
        let LeaseReport { number, spent, is_final } = *report;
        let Some(lease) = self.leases.find(LeaseId { table, number }) else { return false };
        let spent = spent.min(lease.units);
        let mut added = spent.saturating_sub(lease.reported);
        lease.reported = lease.reported.max(spent);
        if mutation::is(Mutation::BelievesTheLast) {
            lease.reported = spent;
        }
        if is_final {
            lease.units = lease.reported;
            if mutation::is(Mutation::ReturnsUncharged) {
                added = 0;
            }
        }
        self.leases.all.retain(|lease| lease.out() > 0);
        self.charge_out(added, now);
        added > 0 || is_final
    }

    /// Leases at most the wanted units, and at most a node's share of the remaining units.
    pub(crate) fn grant(
        &mut self,
        wanted: &Wanted,
        now: Timestamp,
        clock: &Clock,
    ) -> Result<(u64, Span), NoLease> {
        let Wanted { id, units, least, life } = *wanted;
        if let Some(lease) = self.leases.find(id) {
            return Ok((lease.units, lease.life));
        }
        let is_queue = |it: &StoredQuota| it.limiter().algorithm() == Algorithm::LeakyQueue;
        if self.quotas.set.quotas().iter().any(is_queue) {
            return Err(NoLease::Unleasable);
        }
        if self.is_of_another_clock(now) {
            return Err(NoLease::Unsteady);
        }
        if self.leases.awaited.is_some_and(|awaited| awaited.until > now) {
            return Err(NoLease::Awaited);
        }
        let share = self.share(self.leases.nodes_with(id.table), self.left(now));
        let units = units.min(share);
        if units < least.max(1) {
            return Err(NoLease::NearLimit);
        }
        let life = Span::from_millis(life.min(MAX_LEASE_LIFE).as_millis_ceil().max(1));
        self.leases.insert(Lease { id, units, reported: 0, ends_at: clock.end(now, life), life });
        if mutation::is(Mutation::ChargesAtGrant) {
            self.charge_out(units, now);
            self.leases.all.retain(|lease| lease.id != id);
        }
        Ok((units, life))
    }

    /// The share of one of `nodes` in the remaining units: half of an even share, so that some are
    /// left for others. For quotas that nodes may request at intervals, it is 2 / (`nodes` + 1) of
    /// them, at most half: then a lease request returns ten units at two thirds of an even share of
    /// the burst, and no more than that.
    fn share(&self, nodes: u64, left: u64) -> u64 {
        let of = |numerator: u64, denominator: u64| {
            numerator.saturating_mul(2).checked_div(denominator).unwrap_or(0)
        };
        let half = left.checked_div(nodes.saturating_mul(2)).unwrap_or(0);
        let limiters = || self.quotas.set.quotas().iter().map(StoredQuota::limiter);
        if !limiters().all(may_be_paced) {
            return half;
        }
        let burst = limiters().map(|limiter| limiter.capacity()).min().unwrap_or(0);
        let most = of(burst, nodes.saturating_mul(3));
        of(left, nodes.saturating_add(1).max(4)).min(most).max(half)
    }

    /// Charges all units that are out at `now`, and removes the leases: they may not fit under the
    /// quotas that come next.
    pub(crate) fn charge_leases(&mut self, now: Timestamp) {
        let out = self.leases.out();
        self.leases = Leases::default();
        self.charge_out(out, now);
    }

    /// The states with all units that are out charged at the ends of their leases: the set must be
    /// kept until these states are idle.
    pub(crate) fn states_in_the_end(&self) -> Vec<u8> {
        let mut states = self.states.clone();
        for lease in &self.leases.all {
            let at = lease.ends_at.max(self.leases.since);
            charge_each(self.quotas.set.quotas(), &mut states, lease.out(), at);
        }
        states
    }

    /// The states with all units that are out charged now: the usage reported to an operator.
    pub(crate) fn states_with_leases(&self, now: Timestamp) -> Vec<u8> {
        let mut states = self.states.clone();
        charge_each(self.quotas.set.quotas(), &mut states, self.leases.out(), now);
        states
    }

    /// The units that may be charged at `now` in addition to those that are out.
    pub(crate) fn left(&self, now: Timestamp) -> u64 {
        let left = |quota: &StoredQuota| {
            let state = quota.state(&self.states)?;
            Some(quota.limiter().peek(state, now, 0).remaining)
        };
        let least = self.quotas.set.quotas().iter().filter_map(left).min().unwrap_or(0);
        let is_mutated = mutation::is(Mutation::LeasesOut);
        least.saturating_sub(if is_mutated { 0 } else { self.leases.out() })
    }

    /// True when a state is further ahead than its quota can owe: a cost is then still allowed, and
    /// leaves the earlier debt, so the remaining units are not valid for two charges.
    fn is_of_another_clock(&self, now: Timestamp) -> bool {
        let is_foreign = |quota: &StoredQuota| {
            let peek = |state, cost| quota.limiter().peek(state, now, cost).remaining;
            let state = quota.state(&self.states);
            state.is_some_and(|state| peek(state, 0).saturating_sub(1) != peek(state, 1))
        };
        self.quotas.set.quotas().iter().any(is_foreign) && !mutation::is(Mutation::LeasesForeign)
    }

    fn out_for_direct(&self) -> u64 {
        if mutation::is(Mutation::IgnoresOut) { 0 } else { self.leases.out() }
    }

    fn charge_out(&mut self, units: u64, at: Timestamp) {
        charge_each(self.quotas.set.quotas(), &mut self.states, units, at);
    }

    /// Subtracts the units that are out from the remaining units of the decisions that `which`
    /// selects.
    fn reserve(
        &mut self,
        decisions: &mut [Decision],
        now: Timestamp,
        which: impl Fn(&Decision) -> bool,
    ) {
        let Self { quotas, states, leases, .. } = self;
        if leases.all.is_empty() {
            return;
        }
        each(quotas.set.quotas(), states, decisions, |limiter, state, decision| {
            if which(decision) {
                leases.reserve(decision, limiter, state, now);
            }
        });
    }
}

impl Leases {
    /// Subtracts the units that are out from the remaining units.
    fn reserve(&self, decision: &mut Decision, limiter: &Limiter, state: &[u8], now: Timestamp) {
        if decision.remaining == 0 {
            return;
        }
        decision.remaining = decision.remaining.saturating_sub(self.out());
        if decision.remaining == 0 {
            let wait = self.soonest(limiter, state, now, 1);
            decision.reset_after = wait.unwrap_or(decision.reset_after);
        }
    }

    /// The soonest time at which `cost` can fit: when enough leases have returned their units that
    /// it fits in addition to the others, or without any return. `None` when it exceeds the maximum
    /// of the quota.
    fn soonest(&self, limiter: &Limiter, state: &[u8], now: Timestamp, cost: u64) -> Option<Span> {
        let (mut out, mut end) = (self.out(), Span::ZERO);
        let mut soonest: Option<Span> = None;
        let mut leases = self.all.iter();
        loop {
            let decision = limiter.peek(state, now, cost.saturating_add(out));
            let fits = if decision.is_admitted() { Some(Span::ZERO) } else { decision.retry_after };
            if let Some(wait) = fits.map(|wait| wait.max(end)) {
                soonest = Some(soonest.map_or(wait, |other| other.min(wait)));
            }
            // Later ends cannot be sooner than the time found.
            let Some(lease) = leases.next().filter(|_| soonest.is_none_or(|it| it > end)) else {
                return soonest;
            };
            out = out.saturating_sub(lease.out());
            end = lease.ends_at.since(now);
        }
    }
}

impl Lease {
    /// Its end, as far as the clock is known: no later than that of a lease granted now, and no
    /// earlier than if it had been granted at the clock's last step, when that is later.
    fn end_by(&self, clock: &Clock) -> Timestamp {
        let Clock { now, steady_since, error } = *clock;
        let granted_at = self.ends_at.saturating_sub(error).saturating_sub(self.life);
        let is_before_step = granted_at < steady_since && !mutation::is(Mutation::EndsAtStep);
        let from = if is_before_step { steady_since } else { granted_at };
        clock.end(from, self.life).max(self.ends_at).min(clock.end(now, self.life))
    }
}

/// Charges `units` to every quota at `at`. With invalid stored bytes they may not fit, and are then
/// charged as far as they do.
fn charge_each(quotas: &[StoredQuota], states: &mut [u8], units: u64, at: Timestamp) {
    for quota in quotas {
        let Some(state) = quota.state_mut(states) else { continue };
        if !quota.limiter().check(state, at, units).is_admitted() {
            did_not_fit();
            let fits = quota.limiter().peek(state, at, 0).remaining;
            quota.limiter().check(state, at, fits.min(units));
        }
    }
}

fn each(
    quotas: &[StoredQuota],
    states: &[u8],
    decisions: &mut [Decision],
    mut each: impl FnMut(&Limiter, &[u8], &mut Decision),
) {
    for (quota, decision) in quotas.iter().zip(decisions) {
        if let Some(state) = quota.state(states) {
            each(quota.limiter(), state, decision);
        }
    }
}

/// Sorts `leases` by their ends; equal ones keep their order. They are few and almost sorted, so
/// each is inserted into those before it.
fn sort_by_end(leases: &mut [Lease]) {
    for i in 1..leases.len() {
        let Some((last, before)) = leases.get(..=i).and_then(<[Lease]>::split_last) else { return };
        let at = before.partition_point(|lease| lease.ends_at <= last.ends_at);
        if let Some(moved) = leases.get_mut(at..=i) {
            moved.rotate_right(1);
        }
    }
}
