//! The steps of every request for a key that concern leases, in their order: end old leases,
//! process reports, and finally grant leases.
//!
//! Invariant: `Counts::answer` defines the order, the same for every request. The time at which a
//! key is decided never goes back while units of it are out.

use alloc::vec::Vec;

use tollgate_core::{ALLOWED_SKEW, Timestamp};

use crate::counts::Counts;
use crate::due::Due;
use crate::leases::account::{NoLease, Wanted};
use crate::leases::ask::{LeaseAsk, LeaseGrant, Leased, Leasing, read_leased};
use crate::leases::clock::Clock;
use crate::leases::lease::{LeaseId, MAX_LEASES};
use crate::leases::mutation::{self, Mutation};
use crate::request::{Request, RequestRule};
use crate::wire::WireError;

impl Counts {
    /// True when `reply` denies `request`: a binding rule of it denies.
    ///
    /// # Errors
    /// The bytes are not a request, or not a reply to it with a decision.
    pub fn refuses(request: &[u8], reply: &[u8]) -> Result<bool, WireError> {
        let mut asked = Request::read(Leasing::split(request)?.1)?;
        asked.read_reply(read_leased(reply)?.1)?;
        Ok(asked.refuses())
    }

    /// Ends the leases that are over; returns the time at which the key is decided, and whether
    /// there were any. While units are out, a clock that was set back stops the key's time: the
    /// units fit at no earlier time. If it was set back by more than the skew, nothing more is
    /// leased, so that this ends after one life.
    pub(crate) fn advance(&mut self, clock: &Clock) -> (Timestamp, bool) {
        let mut is_changed = false;
        for kept in &mut self.sets {
            is_changed |= kept.end_leases(clock);
        }
        let out = self.sets.iter().filter(|kept| !kept.leases.all.is_empty());
        let since = out.map(|kept| kept.leases.since).max().unwrap_or(Timestamp::ZERO);
        let is_mutated = mutation::is(Mutation::FollowsBack);
        let now = if is_mutated { clock.now } else { clock.now.max(since) };
        self.keep_time(now);
        (now, is_changed)
    }

    /// Processes the reports in `leasing` at `now`; true when they contain anything new.
    pub(crate) fn report(&mut self, leasing: &Leasing, now: Timestamp) -> bool {
        let mut is_changed = false;
        for ask in &leasing.sets {
            let Some(kept) = self.kept(ask.set) else { continue };
            for report in &ask.reports {
                is_changed |= kept.report(leasing.table, report, now);
            }
        }
        is_changed
    }

    /// Leases the units that `leasing` wants at `now`, as far as they are available; `asked` is
    /// already decided.
    pub(crate) fn lease(
        &mut self,
        leasing: &Leasing,
        asked: &Request<'_>,
        now: Timestamp,
        clock: &Clock,
    ) -> Vec<Leased> {
        let is_late = now.since(clock.now) > ALLOWED_SKEW;
        let mut leased = Vec::with_capacity(leasing.sets.len());
        for ask in &leasing.sets {
            let granted = if ask.want == 0 {
                Err(NoLease::Unasked)
            } else if is_late || !clock.is_steady() {
                Err(NoLease::Unsteady)
            } else if asked.refuses() {
                Err(NoLease::Refused)
            } else {
                self.lease_one(leasing.table, ask, asked, now, clock)
            };
            leased.push(granted);
        }
        self.keep_time(now);
        leased
    }

    fn lease_one(
        &mut self,
        table: u128,
        ask: &LeaseAsk,
        asked: &Request<'_>,
        now: Timestamp,
        clock: &Clock,
    ) -> Leased {
        // The request contains the rule, so its quotas are the stored ones.
        let is_of = |rule: &RequestRule<'_>| rule.stable_id() == ask.set && rule.due == Due::Now;
        if !asked.rules.iter().any(is_of) {
            return Err(NoLease::Unleasable);
        }
        let id = LeaseId { table, number: ask.number };
        let held = self.sets.iter().map(|kept| kept.leases.all.len()).sum::<usize>();
        let kept = self.kept(ask.set).ok_or(NoLease::Unleasable)?;
        if held >= MAX_LEASES && kept.leases.find(id).is_none() {
            return Err(NoLease::TooMany);
        }
        let wanted = Wanted { id, units: ask.want, least: ask.least, life: ask.life };
        let (units, life) = kept.grant(&wanted, now, clock)?;
        Ok(LeaseGrant { units, life })
    }

    /// Stores the key's time while units are out.
    fn keep_time(&mut self, now: Timestamp) {
        for kept in &mut self.sets {
            kept.leases.since = if kept.leases.all.is_empty() { Timestamp::ZERO } else { now };
        }
    }
}
