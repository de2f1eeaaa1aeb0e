//! The policy in force as one process knows it: the last policy that could be enforced, when it was
//! last known to be in force, and when the store is asked again.
//!
//! Invariant: a policy that cannot be enforced never replaces one that can: it is recorded with its
//! mistakes, and the last good policy is counted under its generation from then on. A reply counts
//! from the time at which its check was sent. A reply to an earlier check changes nothing once a
//! later check has a reply, and a check that was sent before a change made here never shows that
//! the policy is fresh. Of the requests of a process at most one at a time has to ask. No request
//! waits longer than the time-out, and only the one that asks waits after a check has failed.
//!
//! Deliberately absent: clock, calls to the store, compiling, and the log; callers pass times and
//! results.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Deref;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, Problems};

use crate::deployment::Active;
use crate::health::Followed;
pub use crate::policy_question::PolicyQuestion;
use crate::store::policy::{Current, Source};

/// How long a policy may be enforced before the store is asked again.
const FRESH: Span = Span::from_secs(5);
/// The time from a check that failed, or that found no policy new enough, to the next one.
const RETRY: Span = Span::from_secs(1);
/// A check that has been silent for longer was stopped by the platform. Longer than any may run.
const STOPPED: Span = Span::from_secs(20);

/// The known state of the policy in force. `A` points to an [`Active`] policy, and is cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Following<A> {
    /// The last good policy; none before the first one is set.
    active: Option<A>,
    /// The number of the last relief of a key that a check found.
    relieved: u64,
    /// When the last check that got a reply was sent, if no change was made here since.
    checked_at: Option<Timestamp>,
    /// When the enforced policy was last known to be in force.
    known_at: Option<Timestamp>,
    /// The check that is under way: when it was sent.
    asking_since: Option<Timestamp>,
    /// The number of the last check that was sent, and of the last one that got a reply.
    sent: u64,
    answered: u64,
    /// The number of the last check that was sent before the last change made here.
    outrun: u64,
    /// When the last check failed, and the reason; none if it did not.
    failure: Option<(Timestamp, String)>,
    /// A generation that a count has, and that the last check did not find.
    missed: Option<(Timestamp, u64)>,
    /// A policy in force that cannot be enforced here: its version, and its mistakes.
    refused: Option<(u64, Problems)>,
}

/// One check of which policy is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    number: u64,
    sent_at: Timestamp,
    generation: u64,
}

/// The policy that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// One that was in force at most five seconds ago.
    Fresh,
    /// One of this generation or a later one.
    Generation(u64),
    /// The policy that the check of this number, or a later one, finds.
    Check(u64),
}

impl Freshness {
    /// The generation that a check is sent for; 0 for any.
    #[must_use]
    pub const fn generation(self) -> u64 {
        match self {
            Self::Generation(generation) => generation,
            Self::Fresh | Self::Check(_) => 0,
        }
    }
}

/// The next step of a request that needs the policy in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowStep {
    /// Continue with the known policy.
    Done,
    /// The same, and count that the check which is under way is late.
    Late,
    /// Begin a check.
    Ask,
    /// Look again soon.
    Wait,
}

/// The part of a found policy that has to be compiled before it can be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToCompile<'c> {
    /// Nothing: the state of this policy is known.
    Nothing,
    /// The deployed file.
    Deployed,
    /// This text.
    Text(&'c str),
    /// A written policy whose text did not come with its number.
    Missing,
}

impl<A> Default for Following<A> {
    /// Nothing is known.
    fn default() -> Self {
        Self {
            active: None,
            relieved: 0,
            checked_at: None,
            known_at: None,
            asking_since: None,
            sent: 0,
            answered: 0,
            outrun: 0,
            failure: None,
            missed: None,
            refused: None,
        }
    }
}

/// True when `at` is less than `span` ago. A clock that was set back must not keep a policy for
/// ever.
fn is_within(at: Timestamp, span: Span, now: Timestamp) -> bool {
    at <= now && now < at.saturating_add(span)
}

impl<A: Deref<Target = Active> + Clone + From<Active>> Following<A> {
    /// The last good policy; `None` before the first one is set.
    #[must_use]
    #[inline]
    pub const fn active(&self) -> Option<&A> {
        self.active.as_ref()
    }

    /// Enforces `active` without a check, as the deployed file is.
    pub fn set_active(&mut self, active: A) {
        self.active = Some(active);
    }

    /// The mistakes of the policy in force, if it cannot be enforced here.
    #[must_use]
    pub const fn refused(&self) -> Option<&Problems> {
        match &self.refused {
            Some((_, problems)) => Some(problems),
            None => None,
        }
    }

    /// The state for the health report on `active`.
    #[must_use]
    pub fn followed(&self, active: Option<&Active>) -> Followed<'_> {
        let at_ms = |at: Timestamp| at.since(Timestamp::ZERO).as_millis_ceil();
        Followed {
            version: active.map_or(0, |active| active.version),
            source: active.map_or(Source::Deployed, |active| active.source),
            checked_at_ms: self.checked_at.map(at_ms),
            failure: self.failure.as_ref().map(|(at, why)| (at_ms(*at), why.as_str())),
        }
    }

    /// True while the policy in force is known and need not be asked for.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.was_checked(now) && self.refused.is_none()
    }

    /// The number of the last relief of a key, while it is known: it may be as old as a policy that
    /// is enforced without asking.
    #[must_use]
    pub fn relieved(&self, now: Timestamp) -> Option<u64> {
        self.was_checked(now).then_some(self.relieved)
    }

    fn was_checked(&self, now: Timestamp) -> bool {
        self.checked_at.is_some_and(|at| is_within(at, FRESH, now))
    }

    /// The wish for the policy that is in force now, regardless of which process changed it: a
    /// check that is not yet sent.
    #[must_use]
    pub const fn newest(&self) -> Freshness {
        Freshness::Check(self.sent.saturating_add(1))
    }

    /// The next step of a request with this wish, which waits for a check for at most `timeout`.
    pub fn next(
        &mut self,
        now: Timestamp,
        wish: Freshness,
        timeout: Span,
        has_asked: bool,
    ) -> FollowStep {
        let is_fulfilled = match wish {
            Freshness::Fresh => self.was_checked(now),
            Freshness::Generation(generation) => self.reaches(generation),
            Freshness::Check(number) => self.answered >= number,
        };
        if is_fulfilled {
            return FollowStep::Done;
        }
        if let Some(since) = self.asking_since.filter(|since| is_within(*since, STOPPED, now)) {
            if self.failure.is_some() && !has_asked {
                return FollowStep::Done;
            }
            if now >= since.saturating_add(timeout) {
                self.failure = Some((now, "it does not respond in time".to_owned()));
                return FollowStep::Late;
            }
            return FollowStep::Wait;
        }
        let is_recent = |at: Timestamp| is_within(at, RETRY, now);
        let missed = |(at, missed): (Timestamp, u64)| {
            missed > 0 && missed == wish.generation() && is_recent(at)
        };
        let is_early = self.failure.as_ref().is_some_and(|(at, _)| is_recent(*at))
            || self.missed.is_some_and(missed);
        if is_early || has_asked { FollowStep::Done } else { FollowStep::Ask }
    }

    /// Makes a check due from now on, because a change was made here.
    pub const fn expire(&mut self) {
        self.checked_at = None;
        self.outrun = self.sent;
    }

    /// Records that a check is sent, for a request that needs `generation`; 0 for any.
    pub const fn begin(&mut self, now: Timestamp, generation: u64) -> Check {
        self.asking_since = Some(now);
        self.sent = self.sent.saturating_add(1);
        Check { number: self.sent, sent_at: now, generation }
    }

    /// The version whose text is known, and the newest generation of any count, which may be
    /// `generation`.
    #[must_use]
    pub fn known(&self, generation: u64) -> (Option<u64>, Option<u64>) {
        let active = self.active.as_ref();
        let refused = self.refused.as_ref().map(|(version, _)| *version);
        let version = refused.or(active.map(|active| active.version)).filter(|known| *known > 0);
        let own = active.map_or(0, |active| active.policy.version());
        (version, Some(generation.max(own)).filter(|seen| *seen > 0))
    }

    /// Takes the policy that `check` found: returns what has to be compiled for
    /// [`checked`](Self::checked).
    pub fn found<'c>(&mut self, check: Check, current: &'c Current) -> ToCompile<'c> {
        if check.number <= self.answered {
            return ToCompile::Nothing;
        }
        self.relieved = current.relieved;
        match (current.source, &current.text) {
            _ if self.is_enforced(current) => ToCompile::Nothing,
            (Source::Deployed, _) => ToCompile::Deployed,
            (Source::Written, Some(text)) => ToCompile::Text(text),
            (Source::Written, None) => ToCompile::Missing,
        }
    }

    /// Ends `check`, which found `current`, at `now`, with the compiled policy, where there was
    /// something to compile. Returns the policy that is enforced from now on, if that is another
    /// one, and since when it counts as in force.
    ///
    /// That is at most five seconds after the last good policy was known to be in force: a process
    /// that slept has not heard of a change since, and for all others the policy before is already
    /// over.
    pub fn checked(
        &mut self,
        check: Check,
        current: &Current,
        compiled: Option<Result<Policy, Problems>>,
        now: Timestamp,
    ) -> Option<(A, Timestamp)> {
        let Check { number, sent_at, generation } = check;
        self.end(check);
        if number <= self.answered {
            return None;
        }
        let changed_at =
            self.known_at.map_or(Timestamp::ZERO, |at| now.min(at.saturating_add(FRESH)));
        let is_other = compiled.is_some();
        let &Current { version, source, generation: counted, .. } = current;
        match compiled {
            None => {}
            Some(Ok(mut policy)) => {
                policy.set_version(counted);
                self.active = Some(Active { policy: Arc::new(policy), version, source }.into());
                self.refused = None;
            }
            Some(Err(problems)) => {
                let last = self.active.take();
                self.active = last.map(|last| last.counted_as(counted, last.version).into());
                self.refused = Some((version, problems));
            }
        }
        self.known_at = Some(sent_at);
        self.checked_at = Some(sent_at).filter(|_| number > self.outrun);
        self.answered = number;
        self.failure = None;
        self.missed = (!self.reaches(generation)).then_some((sent_at, generation));
        Some((self.active.clone().filter(|_| is_other)?, changed_at))
    }

    /// Ends `check` without a policy.
    pub fn failed(&mut self, check: Check, now: Timestamp, why: String) {
        self.end(check);
        if check.number > self.answered {
            self.failure = Some((now, why));
        }
    }

    /// The check is under way no more.
    const fn end(&mut self, check: Check) {
        if check.number == self.sent {
            self.asking_since = None;
        }
    }

    /// True when this policy is enforced already, or is known to be one that cannot be.
    fn is_enforced(&self, current: &Current) -> bool {
        let counts = |it: &A| it.policy.version() == current.generation;
        match (&self.refused, &self.active) {
            (Some((version, _)), active) => {
                *version == current.version && active.as_ref().is_none_or(counts)
            }
            (None, Some(active)) => {
                let is_version =
                    (active.version, active.source) == (current.version, current.source);
                is_version && counts(active)
            }
            (None, None) => false,
        }
    }

    fn reaches(&self, generation: u64) -> bool {
        self.active.as_ref().map_or(0, |active| active.policy.version()) >= generation
    }
}
