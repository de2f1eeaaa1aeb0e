//! Everything that one key has used, kept by itself: the quotas stand beside their states.
//!
//! Invariant: states never go back a generation. A request planned with an older policy than one
//! that was seen here is answered with that version and charges nothing; what a response brought
//! about is charged all the same, by the quotas that the states have by now. States of changed
//! quotas are [carried](crate::carry_set) when the quotas are first asked with, once: carried anew
//! at every denial, what is used would be worked out of the old quotas again and again, and a
//! client would be told a `retry_after` that does not come true.
//!
//! Deliberately absent: where a row is kept, and the clock. How a request is decided is `decide`'s.

use alloc::vec::Vec;

use tollgate_core::{FULLY_USED, Timestamp};

use crate::pipeline::remote::asked::{Asked, is_strict, settles};
use crate::pipeline::remote::kept::Kept;
use crate::pipeline::remote::leases::ask::{Leasing, read_leased, write_leased};
use crate::pipeline::remote::leases::clock::Clock;
use crate::pipeline::remote::leases::mutation::{self, Mutation};
use crate::pipeline::remote::marks::{MAX_MARKS, Mark};
use crate::pipeline::remote::settled::SettledCosts;
use crate::pipeline::remote::wire::{NEWER, WireError};
use crate::policy::stored_set::StoredSet;

/// Sets that are kept although they are idle: what a key is asked by again and again is compiled
/// once.
const MAX_IDLE_SETS: usize = 32;

/// The most sets that one key may have used at a time, and the bytes of their row; the platform
/// takes rows of 2 MB. Beyond either, who used the least share of its quotas is forgotten first.
const MAX_SETS: usize = 1024;
const MAX_ROW: usize = 1 << 20;

/// What one key has used. A row of a store holds it as bytes ([`Counts::encode`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub(crate) group: u64,
    pub(crate) alarm_at: Timestamp,
    pub(crate) version: u64,
    pub(crate) marks: Vec<Mark>,
    pub(crate) settled: SettledCosts,
    pub(crate) sets: Vec<Kept>,
}

/// What was answered, and whether that changed anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// For [`PartitionMut::accept`](crate::PartitionMut::accept).
    pub reply: Vec<u8>,
    /// The row is to be written: something was charged or given back, or states were carried to
    /// other quotas.
    pub is_changed: bool,
}

impl Counts {
    /// What begins at `now` where nobody can read what was stored: nothing is used, nothing that
    /// was charged before is given back, and nothing is leased before what was leased is over.
    /// Store it in place of what cannot be read, or a cost that was settled once is settled again,
    /// out of what others have used since.
    #[must_use]
    pub fn begun_anew(now: Timestamp) -> Self {
        let mut counts = Self::default();
        counts.settled.lose(now);
        counts
    }

    /// True when what `request` charges must be durable before its answer leaves.
    #[must_use]
    pub fn is_strict(request: &[u8]) -> bool {
        is_strict(request)
    }

    /// True when `request` settles what was charged: a caller that does not know whether it was
    /// done must not do it again.
    #[must_use]
    pub fn gives_back(request: &[u8]) -> bool {
        let is_given_back = |asked: &Asked<'_>| asked.rules.iter().any(|r| r.due.is_settled());
        let request = Leasing::split(request).map(|(_, request)| request);
        request.and_then(Asked::read).is_ok_and(|asked| is_given_back(&asked))
    }

    /// True for what [`Settlement::request`](crate::Settlement::request) says.
    #[must_use]
    pub fn settles(request: &[u8]) -> bool {
        settles(request)
    }

    /// Decides a request of [`Partition::request`](crate::Partition::request), or one of its kin,
    /// at a time, or settles what [`Settlement::request`](crate::Settlement::request) says. Where
    /// [`Leasing::write`](crate::Leasing::write) stands before it, takes in what is reported and
    /// leases what is wanted, too.
    ///
    /// # Errors
    /// The bytes are no request; nothing is changed then.
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
        let mut asked = Asked::read(request)?;
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

    /// Takes back what [`Counts::answer`] charged for `request` when it replied `reply`. The answer
    /// says what is left then. Calling it twice takes it back twice: try once. A charge whose
    /// states were carried to other quotas since then stays, and what was leased with it is for its
    /// node to return.
    ///
    /// # Errors
    /// The bytes are no request, or no reply to it; nothing is taken back then.
    pub fn refund(
        &mut self,
        request: &[u8],
        reply: &[u8],
        clock: impl Into<Clock>,
    ) -> Result<Answered, WireError> {
        let clock = clock.into();
        let mut asked = Asked::read(Leasing::split(request)?.1)?;
        let at = asked.read_reply(read_leased(reply)?.1)?;
        let (now, is_ended) = self.advance(&clock);
        asked.tells = true;
        let is_changed = self.take_back(&mut asked, now);
        let mut reply = Vec::new();
        self.write_reply(&asked, if is_changed { now } else { at }, &mut reply);
        Ok(Answered { reply, is_changed: is_changed || is_ended })
    }

    /// The time from which all of it may be forgotten without loss.
    #[must_use]
    pub fn idle_at(&self) -> Timestamp {
        let marks = self.marks.iter().map(Mark::idle_at);
        let last = self.sets.iter().map(Kept::idle_at).chain(marks).max();
        self.settled.idle_at().max(last.unwrap_or(Timestamp::ZERO))
    }

    /// The greatest share of a quota that is used at `now`, of [`FULLY_USED`]; more than that while
    /// an operator blocks the key. Who used least leaves a full table first.
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

    /// The newest version of the policy that was seen here; 0 where nobody counts them.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The time for which an alarm is set that looks whether this is idle.
    #[must_use]
    pub const fn alarm_at(&self) -> Timestamp {
        self.alarm_at
    }

    /// Notes for when the alarm is set.
    pub const fn set_alarm_at(&mut self, at: Timestamp) {
        self.alarm_at = at;
    }

    /// Takes what `later` has of each rule and tier in place of its own.
    pub fn replace_by(&mut self, later: Self) {
        for later in later.sets {
            match self.kept(later.stable_id()) {
                Some(kept) => *kept = later,
                None => self.sets.push(later),
            }
        }
    }

    /// What is kept of a rule or tier.
    pub(crate) fn kept(&mut self, stable_id: u64) -> Option<&mut Kept> {
        self.sets.iter_mut().find(|kept| kept.stable_id() == stable_id)
    }

    /// True when the request is of an older policy than one that was seen here. Version 0 is no
    /// version: where nobody counts them the deployed policy rules, whatever was before.
    pub(crate) fn is_ahead_of(&self, asked: &Asked<'_>) -> bool {
        asked.version != 0 && asked.version < self.version
    }

    fn newer(&self) -> Answered {
        let mut reply = Vec::with_capacity(9);
        reply.push(NEWER);
        reply.extend(self.version.to_le_bytes());
        Answered { reply, is_changed: false }
    }

    /// The sets of the request whose states are not kept by the same parameters.
    fn sets_to_come(&self, asked: &Asked<'_>) -> Result<Vec<StoredSet>, WireError> {
        let is_kept = |parameters: &[u8]| self.sets.iter().any(|k| k.parameters == parameters);
        let others = asked.rules.iter().map(|rule| rule.parameters).filter(|p| !is_kept(p));
        others.map(|mut bytes| StoredSet::read(&mut bytes).ok_or(WireError::Malformed)).collect()
    }

    /// Brings what is kept to the quotas of the request; true when something used was carried.
    fn follow(&mut self, asked: &Asked<'_>, sets: Vec<StoredSet>, now: Timestamp) -> bool {
        let is_ahead = self.is_ahead_of(asked);
        // Behind a newer version no quota of an older one comes back.
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
                // What a response brought about: the states stay what they are by now.
                Some(_) if is_ahead => {}
                Some(kept) => is_carried |= kept.carry_to(set, may_return, now),
                None => self.sets.push(Kept::fresh(set)),
            }
        }
        if has_new {
            self.make_room(asked, now);
        }
        is_carried
    }

    /// Forgets idle sets when there are many, and beyond the bounds whoever used least.
    pub(crate) fn make_room(&mut self, asked: &Asked<'_>, now: Timestamp) {
        if self.sets.len() <= MAX_IDLE_SETS {
            return;
        }
        let is_asked = |kept: &Kept| asked.rules.iter().any(|r| r.stable_id() == kept.stable_id());
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
    /// Until when the key is blocked under `rule`, if it is.
    pub(crate) fn blocked_until(&self, rule: u64, now: Timestamp) -> Option<Timestamp> {
        let mark = self.marks.iter().find(|mark| mark.rule == rule)?;
        (mark.blocked_until > now).then_some(mark.blocked_until)
    }

    /// What was done to `rule`, to be changed.
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
