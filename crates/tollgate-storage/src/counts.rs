//! The usage of one key, stored as a unit: the quotas are stored next to their states.
//!
//! Invariant: states never go back to an earlier generation of quotas. A request planned with an
//! older policy than the newest one seen here gets that version as its reply and charges nothing.
//! The effects of a response are charged all the same, by the current quotas of the states. States
//! of changed quotas are [carried](crate::carry_set) once, at the first request with the new
//! quotas: if every denial carried them again, the usage would be computed from the old quotas
//! again and again, and the `retry_after` sent to a client would never be correct.
//!
//! Deliberately absent: the place where a row is stored, and the clock. Decisions are made in
//! `decide`.

use alloc::vec::Vec;

use tollgate_core::{FULLY_USED, Timestamp};

use crate::counted_set::CountedSet;
use crate::leases::ask::{Leasing, read_leased, write_leased};
use crate::leases::clock::Clock;
use crate::leases::mutation::{self, Mutation};
use crate::marks::{MAX_MARKS, Mark};
use crate::released::ReleasedRequests;
use crate::request::{Request, entry_of, is_strict, look_of, settles};
use crate::settled::SettledCosts;
use crate::stored_set::StoredSet;
use crate::wire::{NEWER, OTHER_ENTRY, REPORTS, WireError};

/// This many sets are kept even if they are idle, so that quotas in repeated use are compiled once.
const MAX_IDLE_SETS: usize = 32;

/// The most sets that one key may use at a time, and the most bytes of their row; the platform
/// allows rows of 2 MB. Beyond either bound, the sets with the smallest used share are dropped
/// first.
const MAX_SETS: usize = 1024;
const MAX_ROW: usize = 1 << 20;

/// The usage of one key. A store keeps it as a row of bytes ([`Counts::encode`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub(crate) group: u64,
    pub(crate) alarm_at: Timestamp,
    pub(crate) version: u64,
    pub(crate) marks: Vec<Mark>,
    pub(crate) settled: SettledCosts,
    pub(crate) released: ReleasedRequests,
    pub(crate) sets: Vec<CountedSet>,
}

/// A reply, and whether the counts changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// For `PartitionMut::accept`.
    pub reply: Vec<u8>,
    /// The row must be written: something was charged or refunded, or states were carried to other
    /// quotas.
    pub is_changed: bool,
}

impl Counts {
    /// The counts to start with at `now` when the stored row cannot be read: nothing is used, no
    /// earlier charge is refunded, and nothing is leased until earlier leases are over. Store it in
    /// place of the unreadable row. Otherwise a cost that was already settled could be settled
    /// again, at the expense of other requests.
    #[must_use]
    pub fn begun_anew(now: Timestamp) -> Self {
        let mut counts = Self::default();
        counts.settled.lose(now);
        counts
    }

    /// The counts of a key of the group with this identity that has these states, each with its
    /// quotas; nothing is leased, blocked or settled.
    #[must_use]
    pub fn of_states(group: u64, sets: impl IntoIterator<Item = (StoredSet, Vec<u8>)>) -> Self {
        let sets = sets.into_iter().map(|(set, states)| CountedSet::new(set, states)).collect();
        Self { group, sets, ..Self::default() }
    }

    /// True when the charges of `request` must be durable before its reply is sent.
    #[must_use]
    pub fn is_strict(request: &[u8]) -> bool {
        is_strict(request)
    }

    /// True when `request` refunds or settles a charge: a caller that does not know whether it was
    /// processed must not repeat it.
    #[must_use]
    pub fn gives_back(request: &[u8]) -> bool {
        let is_given_back = |asked: &Request<'_>| asked.rules.iter().any(|r| r.due.is_settled());
        let request = Leasing::split(request).map(|(_, request)| request);
        request.and_then(Request::read).is_ok_and(|asked| is_given_back(&asked))
    }

    /// The revision of the tenant's entry with which `request` was planned, or 0 for none; `None`
    /// when it contains no revision, or is not a request.
    #[must_use]
    pub fn entry_of(request: &[u8]) -> Option<u64> {
        entry_of(request)
    }

    /// The same request for a store that cannot write: it only asks. `None` unless `request` starts
    /// penalties, because any other denial writes nothing.
    #[must_use]
    pub fn look_of(request: &[u8]) -> Option<Vec<u8>> {
        look_of(request)
    }

    /// True when `reply` denies `request`.
    #[must_use]
    pub fn denies(request: &[u8], reply: &[u8]) -> bool {
        let Ok(mut asked) = Request::read(request) else { return false };
        asked.read_reply(reply).is_ok() && asked.refuses()
    }

    /// The reply to a request that was planned with an entry other than `entry`, which is in the
    /// store's own bytes; nothing is charged.
    #[must_use]
    pub fn other_entry(entry: &[u8]) -> Answered {
        let mut reply = Vec::with_capacity(entry.len().saturating_add(1));
        reply.push(OTHER_ENTRY);
        reply.extend_from_slice(entry);
        Answered { reply, is_changed: false }
    }

    /// True for a request of [`Settlement::request`](crate::Settlement::request).
    #[must_use]
    pub fn settles(request: &[u8]) -> bool {
        settles(request)
    }

    /// True for a request of [`InFlightReport::request`](crate::InFlightReport::request), which
    /// [`Counts::report_in_flight`] carries out.
    #[must_use]
    pub fn is_in_flight_report(request: &[u8]) -> bool {
        request.starts_with(&REPORTS)
    }

    /// Decides a request of `Partition::request` or its variants at a
    /// time, or settles the cost of a [`Settlement::request`](crate::Settlement::request). When the
    /// output of [`Leasing::write`](crate::Leasing::write) precedes the request, it also processes
    /// the reports and grants leases.
    ///
    /// # Errors
    /// The bytes are not a request; nothing is changed then.
    pub fn answer(
        &mut self,
        request: &[u8],
        clock: impl Into<Clock>,
    ) -> Result<Answered, WireError> {
        self.answer_at(request, &clock.into())
    }

    fn answer_at(&mut self, request: &[u8], clock: &Clock) -> Result<Answered, WireError> {
        if settles(request) {
            return self.settle(request, clock);
        }
        let (leasing, request) = Leasing::split(request)?;
        let mut asked = Request::read(request)?;
        let sets = self.sets_to_come(&asked)?;
        if self.is_ahead_of(&asked) && !asked.settles {
            return Ok(self.newer());
        }
        let clock = &clock.after_loss(self.settled.lost_at(clock.now));
        let early = mutation::is(Mutation::ReportsFirst);
        let report = |counts: &mut Self, now| {
            leasing.as_ref().is_some_and(|leasing| counts.report(leasing, now))
        };
        let is_early = early && report(self, clock.now);
        let (now, is_ended) = self.advance(clock);
        let is_reported = is_early || report(self, now);
        let is_carried = self.follow(&asked, sets, now);
        let is_charged = self.decide(&mut asked, now);
        let mut is_changed = is_ended || is_reported || is_carried || is_charged;
        let mut reply = Vec::new();
        if let Some(leasing) = &leasing {
            let leased = self.lease(leasing, &asked, now, clock);
            is_changed |= leased.iter().any(Result::is_ok);
            write_leased(&leased, &mut reply);
        }
        self.write_reply(&asked, now, &mut reply);
        Ok(Answered { reply, is_changed })
    }

    /// Refunds the charge that [`Counts::answer`] made for `request` when it returned `reply`. The
    /// new reply contains the units that remain. A second call refunds again: try only once. A
    /// charge whose states were carried to other quotas in the meantime is not refunded. Units
    /// leased with it remain for their node to return.
    ///
    /// # Errors
    /// The bytes are not a request, or not a reply to it; nothing is refunded then.
    pub fn refund(
        &mut self,
        request: &[u8],
        reply: &[u8],
        clock: impl Into<Clock>,
    ) -> Result<Answered, WireError> {
        let clock = clock.into();
        let mut asked = Request::read(Leasing::split(request)?.1)?;
        let at = asked.read_reply(read_leased(reply)?.1)?;
        let (now, is_ended) = self.advance(&clock);
        asked.includes_states = true;
        let is_changed = self.take_back(&mut asked, now);
        let mut reply = Vec::new();
        self.write_reply(&asked, if is_changed { now } else { at }, &mut reply);
        Ok(Answered { reply, is_changed: is_changed || is_ended })
    }

    /// The time from which all of it may be dropped without loss.
    #[must_use]
    pub fn idle_at(&self) -> Timestamp {
        let marks = self.marks.iter().map(Mark::idle_at);
        let last = self.sets.iter().map(CountedSet::idle_at).chain(marks).max();
        let of_memory = self.settled.idle_at().max(self.released.idle_at());
        of_memory.max(last.unwrap_or(Timestamp::ZERO))
    }

    /// The greatest used share of a quota at `now`, in parts of [`FULLY_USED`]; greater than that
    /// while an operator blocks the key. A full table evicts the key with the smallest share first.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> u32 {
        if self.marks.iter().any(|mark| mark.blocked_until > now) {
            return FULLY_USED.saturating_add(1);
        }
        self.sets.iter().map(|kept| kept.used(now)).max().unwrap_or(0)
    }

    /// The identity of the key's group of rules.
    #[must_use]
    pub const fn group(&self) -> u64 {
        self.group
    }

    /// The newest version of the policy that was seen here; 0 when versions are not counted.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The time of the alarm that checks whether this is idle.
    #[must_use]
    pub const fn alarm_at(&self) -> Timestamp {
        self.alarm_at
    }

    /// Stores the time of the alarm.
    pub const fn set_alarm_at(&mut self, at: Timestamp) {
        self.alarm_at = at;
    }

    /// The stored set of a rule or tier.
    pub(crate) fn kept(&mut self, stable_id: u64) -> Option<&mut CountedSet> {
        self.sets.iter_mut().find(|kept| kept.stable_id() == stable_id)
    }

    /// True when the request has an older policy than the newest one seen here. Version 0 means
    /// that versions are not counted: then the deployed policy applies, whatever came before.
    pub(crate) fn is_ahead_of(&self, asked: &Request<'_>) -> bool {
        asked.version != 0 && asked.version < self.version
    }

    fn newer(&self) -> Answered {
        let mut reply = Vec::with_capacity(9);
        reply.push(NEWER);
        reply.extend(self.version.to_le_bytes());
        Answered { reply, is_changed: false }
    }

    /// The sets of the request that are not stored with the same parameters.
    fn sets_to_come(&self, asked: &Request<'_>) -> Result<Vec<StoredSet>, WireError> {
        let is_kept =
            |parameters: &[u8]| self.sets.iter().any(|k| k.quotas.parameters == parameters);
        let others = asked.rules.iter().map(|rule| rule.parameters).filter(|p| !is_kept(p));
        others.map(|mut bytes| StoredSet::read(&mut bytes).ok_or(WireError::Malformed)).collect()
    }

    /// Converts the stored sets to the quotas of the request; true when usage was carried.
    fn follow(&mut self, asked: &Request<'_>, sets: Vec<StoredSet>, now: Timestamp) -> bool {
        let is_ahead = self.is_ahead_of(asked);
        // After a newer version, the quotas of an older one never return.
        let may_return = self.version == 0 || asked.version <= self.version;
        if !may_return {
            self.sets.iter_mut().for_each(|kept| kept.before = None);
        }
        self.version = self.version.max(asked.version);
        self.group = asked.group;
        let mut is_carried = false;
        let has_new = !sets.is_empty();
        for set in sets {
            match self.kept(set.stable_id()) {
                // For the effects of a response the stored states keep their current quotas.
                Some(_) if is_ahead => {}
                Some(kept) => is_carried |= kept.carry_to(set, may_return, now),
                None => self.sets.push(CountedSet::fresh(set)),
            }
        }
        if has_new {
            self.make_room(asked, now);
        }
        is_carried
    }

    /// Drops idle sets when there are many and, beyond the bounds, the sets with the smallest used
    /// share.
    pub(crate) fn make_room(&mut self, asked: &Request<'_>, now: Timestamp) {
        if self.sets.len() <= MAX_IDLE_SETS {
            return;
        }
        let is_asked =
            |kept: &CountedSet| asked.rules.iter().any(|r| r.stable_id() == kept.stable_id());
        self.sets.retain(|kept| is_asked(kept) || !kept.is_idle(now));
        let mut len = self.sets.iter().fold(0_usize, |sum, kept| sum.saturating_add(kept.len()));
        while self.sets.len() > MAX_SETS || len > MAX_ROW {
            let others = self.sets.iter().enumerate().filter(|(_, kept)| !is_asked(kept));
            let least = others.min_by_key(|(_, kept)| (kept.used(now), kept.idle_at()));
            let Some((i, _)) = least else { return };
            self.settled.lose(now);
            len = len.saturating_sub(self.sets.swap_remove(i).len());
        }
    }
}

impl Counts {
    /// The time until which the key is blocked under `rule`, if it is.
    pub(crate) fn blocked_until(&self, rule: u64, now: Timestamp) -> Option<Timestamp> {
        let mark = self.marks.iter().find(|mark| mark.rule == rule)?;
        (mark.blocked_until > now).then_some(mark.blocked_until)
    }

    /// The operator's mark on `rule`, for changes.
    pub(crate) fn mark(&mut self, rule: u64, now: Timestamp) -> Option<&mut Mark> {
        self.marks.retain(|mark| mark.rule == rule || mark.idle_at() > now);
        if !self.marks.iter().any(|mark| mark.rule == rule) {
            if self.marks.len() >= MAX_MARKS {
                let soonest = self.marks.iter().enumerate().min_by_key(|(_, mark)| mark.idle_at());
                if let Some((i, _)) = soonest {
                    self.marks.swap_remove(i);
                }
            }
            let (blocked_until, reset_at) = (Timestamp::ZERO, Timestamp::ZERO);
            self.marks.push(Mark { rule, blocked_until, reset_at });
        }
        self.marks.iter_mut().find(|mark| mark.rule == rule)
    }
}
