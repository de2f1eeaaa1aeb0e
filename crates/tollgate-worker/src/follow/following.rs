//! The policy in force as an isolate knows it, and when the isolate has to ask for it.
//!
//! Invariant: of the requests of an isolate at most one at a time has to ask. No request waits
//! longer than the time-out, and none waits once the last check has failed. Deliberately absent:
//! calling the policy object; that is in `follow`.

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::Problems;
use tollgate_service::Current;

use crate::active::Active;
use crate::runtime::js::{self, Bell};

/// How long a policy may be enforced before the isolate asks for it again.
const FRESH: Span = Span::from_secs(5);
/// The time from a check that failed, or that found no policy new enough, to the next one.
const RETRY: Span = Span::from_secs(1);
/// A check that has been silent for longer was stopped by the platform. Longer than any may run.
const STOPPED: Span = Span::from_secs(20);

/// The policy that an isolate knows, and the requests that wait for a newer one.
pub(crate) struct Follower {
    /// Not borrowed across an await.
    pub(crate) following: RefCell<Following>,
    pub(crate) bell: Bell,
    /// The fingerprint by which the policy object knows the deployed file.
    pub(crate) fingerprint: u64,
}

impl Follower {
    pub(crate) fn new(fingerprint: u64) -> Self {
        Self { following: RefCell::default(), bell: js::bell(), fingerprint }
    }
}

/// The policy that an isolate knows.
#[derive(Default)]
pub(crate) struct Following {
    /// The last good policy; none before the first check has ended.
    pub(crate) active: Option<Rc<Active>>,
    /// The number of the last relief of a key that the last check found.
    relieved: u64,
    /// A change was made here after the running check was sent.
    is_outrun: bool,
    /// When the last check that got a reply was sent, if no change was made here since.
    pub(crate) checked_at: Option<Timestamp>,
    /// When the enforced policy was last known to be in force.
    known_at: Option<Timestamp>,
    /// The check that is under way: when it was sent.
    asking: Option<Timestamp>,
    /// How many checks were sent, and the number of the last one that got a reply.
    sent: u64,
    answered: u64,
    /// Why the last check failed, and when; none if it did not.
    pub(crate) failure: Option<(Timestamp, String)>,
    /// A generation that a count has, and that the last check did not find.
    missed: Option<(Timestamp, u64)>,
    /// A policy in force that cannot be enforced here: its version, and why.
    pub(crate) refused: Option<(u64, Problems)>,
}

/// The policy that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// One that was in force at most [`FRESH`] ago.
    Fresh,
    /// One of this generation or a later one.
    Generation(u64),
    /// The policy that the check of this number, or a later one, finds.
    Check(u64),
}

impl Freshness {
    /// The generation that a check is sent for; 0 for any.
    pub(crate) const fn generation(self) -> u64 {
        match self {
            Self::Generation(generation) => generation,
            Self::Fresh | Self::Check(_) => 0,
        }
    }
}

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Continue with the known policy.
    Done,
    /// The same, and count that the check which is under way is late.
    Late,
    /// Begin a check.
    Ask,
    /// Look again soon.
    Wait,
}

impl Following {
    /// True while the policy in force is known and the isolate need not ask for it.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        self.was_checked(now) && self.refused.is_none()
    }

    /// The number of the last relief of a key, while it is known: it may be as old as a policy that
    /// is enforced without asking.
    pub(crate) fn relieved(&self, now: Timestamp) -> Option<u64> {
        self.was_checked(now).then_some(self.relieved)
    }

    fn was_checked(&self, now: Timestamp) -> bool {
        // A clock that was set back must not keep a policy for ever.
        self.checked_at.is_some_and(|at| at <= now && now < at.saturating_add(FRESH))
    }

    /// The wish for the policy that is in force now, regardless of which isolate changed it: a
    /// check that is not yet sent.
    pub(crate) const fn newest(&self) -> Freshness {
        Freshness::Check(self.sent.saturating_add(1))
    }

    /// The next step of a request with this wish.
    pub(crate) fn next(
        &mut self,
        now: Timestamp,
        wish: Freshness,
        timeout_ms: u32,
        has_asked: bool,
    ) -> Next {
        let is_fulfilled = match wish {
            Freshness::Fresh => self.was_checked(now),
            Freshness::Generation(generation) => self.reaches(generation),
            Freshness::Check(number) => self.answered >= number,
        };
        if is_fulfilled {
            return Next::Done;
        }
        let is_recent = |at: Timestamp| at <= now && now < at.saturating_add(RETRY);
        let has_failed = self.failure.is_some();
        if let Some(sent) = self.asking
            && sent <= now
            && now < sent.saturating_add(STOPPED)
        {
            let timeout = Span::from_millis(timeout_ms.into());
            if has_failed && !has_asked {
                return Next::Done;
            }
            if now >= sent.saturating_add(timeout) {
                self.failure = Some((now, "it does not respond in time".to_owned()));
                return Next::Late;
            }
            return Next::Wait;
        }
        let missed = |(at, missed): (Timestamp, u64)| {
            missed > 0 && missed == wish.generation() && is_recent(at)
        };
        let is_early = self.failure.as_ref().is_some_and(|(at, _)| is_recent(*at))
            || self.missed.is_some_and(missed);
        if is_early || has_asked { Next::Done } else { Next::Ask }
    }

    /// Records that a check is sent.
    pub(crate) const fn asks(&mut self, now: Timestamp) {
        self.asking = Some(now);
        self.sent = self.sent.saturating_add(1);
    }

    /// Records the reply to the check that was `sent` then, for a request that wants `generation`.
    pub(crate) fn checked(&mut self, sent: Timestamp, generation: u64) {
        self.asking = None;
        self.known_at = Some(sent);
        self.checked_at = Some(sent).filter(|_| !std::mem::take(&mut self.is_outrun));
        self.answered = self.sent;
        self.failure = None;
        self.missed = (!self.reaches(generation)).then_some((sent, generation));
    }

    /// When the policy that a check finds now is taken to have come into force, if it is not the
    /// enforced one. An isolate that slept has not heard of the policy since, and for all other
    /// isolates the one before is already over.
    pub(crate) fn changed_at(&self, now: Timestamp) -> Timestamp {
        self.known_at.map_or(Timestamp::ZERO, |at| now.min(at.saturating_add(FRESH)))
    }

    /// Records the number of the last relief that the check found.
    pub(crate) const fn learn_relief(&mut self, number: u64) {
        self.relieved = number;
    }

    /// Records that the check failed.
    pub(crate) fn failed(&mut self, now: Timestamp, why: &str) {
        self.asking = None;
        self.is_outrun = false;
        self.failure = Some((now, why.to_owned()));
    }

    /// Makes a check due from now on, because a change was made here.
    pub(crate) const fn expire(&mut self) {
        self.checked_at = None;
        self.is_outrun = self.asking.is_some();
    }

    /// The version whose text is known, and the newest generation of any count.
    pub(crate) fn known(&self, generation: u64) -> (Option<u64>, Option<u64>) {
        let active = self.active.as_ref();
        let refused = self.refused.as_ref().map(|(version, _)| *version);
        let version = refused.or(active.map(|active| active.version)).filter(|known| *known > 0);
        let own = active.map_or(0, |active| active.policy.version());
        (version, Some(generation.max(own)).filter(|seen| *seen > 0))
    }

    /// True when this policy is enforced already, or is known to be one that cannot be.
    pub(crate) fn is_enforced(&self, current: &Current) -> bool {
        let counts = |it: &Rc<Active>| it.policy.version() == current.generation;
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

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::Surface;
    use tollgate_service::Source;

    const TIMEOUT_MS: u32 = 500;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000).saturating_add(Span::from_millis(milliseconds))
    }

    fn active(version: u64) -> Rc<Active> {
        let mut policy =
            tollgate_language::compile(r#"{"version":1,"rules":[]}"#, Surface::Worker).unwrap();
        policy.set_version(version);
        Rc::new(Active { policy: std::sync::Arc::new(policy), version, source: Source::Written })
    }

    fn current(version: u64) -> Current {
        Current { version, generation: version, source: Source::Written, relieved: 0, text: None }
    }

    /// The state after a check at time 0.
    fn checked(version: u64) -> Following {
        let mut following = Following { active: Some(active(version)), ..Following::default() };
        following.checked(at(0), 0);
        following
    }

    // Guards: rules that were withdrawn long ago, under which nodes continue at an isolate that
    // slept meanwhile, or that had only the deployed file.
    #[test]
    fn who_slept_takes_no_change_for_a_new_one() {
        assert_eq!(Following::default().changed_at(at(0)), Timestamp::ZERO);
        let mut following = checked(7);
        assert_eq!(following.changed_at(at(4_000)), at(4_000));
        assert_eq!(following.changed_at(at(3_600_000)), at(5_000));
        following.expire();
        assert_eq!(following.changed_at(at(3_600_000)), at(5_000), "it was changed here");
    }

    #[test]
    fn one_request_asks_and_the_others_wait_for_it() {
        let mut following = checked(7);
        assert!(following.is_fresh(at(4_999)) && !following.is_fresh(at(5_000)));
        let mut next = |now, asked| following.next(at(now), Freshness::Fresh, TIMEOUT_MS, asked);
        assert_eq!(next(4_999, false), Next::Done);
        assert_eq!(next(5_000, false), Next::Ask);
        following.asks(at(5_000));
        for now in [5_000, 5_001, 5_499] {
            assert_eq!(
                following.next(at(now), Freshness::Fresh, TIMEOUT_MS, now == 5_000),
                Next::Wait,
                "{now}"
            );
        }
        following.checked(at(5_000), 0);
        assert_eq!(following.next(at(5_500), Freshness::Fresh, TIMEOUT_MS, false), Next::Done);
        // Counted from when it was sent: later changes are not known.
        assert!(following.is_fresh(at(9_999)) && !following.is_fresh(at(10_000)));
        // A clock that was set back.
        assert!(!following.is_fresh(Timestamp::from_millis(9)));
    }

    #[test]
    fn nobody_waits_once_a_check_has_failed() {
        let mut following = checked(7);
        following.asks(at(6_000));
        // The request that finds it late reports it, once.
        assert_eq!(following.next(at(6_500), Freshness::Fresh, TIMEOUT_MS, false), Next::Late);
        for wish in [Freshness::Fresh, Freshness::Generation(8), Freshness::Check(2)] {
            assert_eq!(following.next(at(6_501), wish, TIMEOUT_MS, false), Next::Done);
        }
        // It may still get a reply.
        following.checked(at(6_000), 0);
        assert!(following.is_fresh(at(6_600)));
        following.asks(at(12_000));
        following.failed(at(12_100), "it is broken");
        assert_eq!(following.next(at(13_099), Freshness::Fresh, TIMEOUT_MS, false), Next::Done);
        assert_eq!(following.next(at(13_100), Freshness::Fresh, TIMEOUT_MS, false), Next::Ask);
        following.asks(at(13_100));
        // Except for the request that asks.
        assert_eq!(following.next(at(13_100), Freshness::Fresh, TIMEOUT_MS, false), Next::Done);
        assert_eq!(following.next(at(13_100), Freshness::Fresh, TIMEOUT_MS, true), Next::Wait);
        assert_eq!(following.next(at(13_600), Freshness::Fresh, TIMEOUT_MS, true), Next::Late);
        // A check that the platform stopped without notice.
        assert_eq!(following.next(at(33_099), Freshness::Fresh, TIMEOUT_MS, false), Next::Done);
        assert_eq!(following.next(at(33_100), Freshness::Fresh, TIMEOUT_MS, false), Next::Ask);
    }

    #[test]
    fn a_newer_generation_is_asked_for_at_once_and_not_over_and_over() {
        let mut following = checked(7);
        assert_eq!(
            following.next(at(100), Freshness::Generation(7), TIMEOUT_MS, false),
            Next::Done
        );
        assert_eq!(following.next(at(100), Freshness::Generation(8), TIMEOUT_MS, false), Next::Ask);
        following.asks(at(100));
        assert_eq!(following.next(at(101), Freshness::Generation(8), TIMEOUT_MS, true), Next::Wait);
        // No policy has that generation: a count that was damaged.
        following.checked(at(100), 8);
        assert_eq!(following.next(at(102), Freshness::Generation(8), TIMEOUT_MS, true), Next::Done);
        assert_eq!(
            following.next(at(102), Freshness::Generation(8), TIMEOUT_MS, false),
            Next::Done
        );
        assert_eq!(following.next(at(102), Freshness::Generation(9), TIMEOUT_MS, false), Next::Ask);
        assert_eq!(
            following.next(at(1_100), Freshness::Generation(8), TIMEOUT_MS, false),
            Next::Ask
        );
        // A generation that is found.
        following.active = Some(active(8));
        following.checked(at(1_100), 9);
        assert_eq!(
            following.next(at(1_101), Freshness::Generation(8), TIMEOUT_MS, false),
            Next::Done
        );
        assert!(following.is_fresh(at(1_101)));
    }

    #[test]
    fn what_cannot_be_enforced_is_not_fetched_again() {
        let mut following = checked(7);
        assert_eq!(following.known(0), (Some(7), Some(7)));
        assert!(following.is_enforced(&current(7)) && !following.is_enforced(&current(8)));
        following.refused = Some((8, Problems::default()));
        following.active = Some(active(7));
        assert!(!following.is_enforced(&current(8)), "its counts are not of that generation");
        following.active = Some(Rc::new(active(7).counted_as(8, 7)));
        assert!(following.is_enforced(&current(8)) && !following.is_enforced(&current(9)));
        assert_eq!(following.known(0), (Some(8), Some(8)));
        following.checked(at(0), 0);
        assert!(!following.is_fresh(at(1)), "its requests are counted");
        assert_eq!(
            following.next(at(1), Freshness::Fresh, TIMEOUT_MS, false),
            Next::Done,
            "and nobody asks"
        );
    }

    /// Guards: an operator who put a policy through one isolate, and gets the error from another,
    /// which may be five seconds behind, that there is no such rule.
    #[test]
    fn who_wants_the_newest_waits_for_a_check_that_was_sent_after_he_came() {
        let mut following = checked(7);
        let wish = following.newest();
        assert_eq!(following.next(at(1), Freshness::Fresh, TIMEOUT_MS, false), Next::Done);
        assert_eq!(following.next(at(1), wish, TIMEOUT_MS, false), Next::Ask);
        following.asks(at(1));
        // A request that comes now cannot know when that one got its reply.
        let later = following.newest();
        assert_eq!(following.next(at(2), later, TIMEOUT_MS, false), Next::Wait);
        following.checked(at(1), 0);
        assert_eq!(following.next(at(3), wish, TIMEOUT_MS, true), Next::Done);
        assert_eq!(following.next(at(3), later, TIMEOUT_MS, false), Next::Ask);
        following.asks(at(3));
        following.failed(at(4), "it is broken");
        assert_eq!(following.next(at(4), later, TIMEOUT_MS, true), Next::Done);
    }

    /// Guards: a check that was sent before a change, and is taken for the state after it.
    #[test]
    fn what_was_sent_before_a_change_here_does_not_count_after_it() {
        let mut following = checked(7);
        following.asks(at(5_000));
        following.expire();
        following.checked(at(5_000), 0);
        assert!(!following.is_fresh(at(5_001)));
        assert_eq!(following.next(at(5_001), Freshness::Fresh, TIMEOUT_MS, false), Next::Ask);
        following.asks(at(5_001));
        following.checked(at(5_001), 0);
        assert!(following.is_fresh(at(5_002)));
    }
}
