//! Following the policy in force: when the store is asked, whose reply counts, and what a policy
//! that cannot be enforced changes; with a model whose checks fail, are late, and get their replies
//! in any order.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, Problem, Problems, Surface};
use tollgate_service::deployment::Active;
use tollgate_service::following::{
    Check, FollowStep, Following, Freshness, PolicyQuestion, ToCompile,
};
use tollgate_service::{Current, Deployed, PolicyCall, PolicyReply, Source, StoreCall, StoreReply};
use tollgate_test_support::Random;

type Known = Following<Rc<Active>>;

const TIMEOUT: Span = Span::from_millis(500);

fn at(milliseconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000).saturating_add(Span::from_millis(milliseconds))
}

fn policy() -> Policy {
    tollgate_language::compile(r#"{"version":1,"rules":[]}"#, Surface::Worker).unwrap()
}

fn active(version: u64) -> Rc<Active> {
    let mut policy = policy();
    policy.set_version(version);
    Rc::new(Active { policy: policy.into(), version, source: Source::Written })
}

fn current(version: u64) -> Current {
    let text = Some(String::new());
    Current { version, generation: version, source: Source::Written, relieved: version, text }
}

fn problems() -> Problems {
    Problems(vec![Problem::new("rules", "is from a later version".to_owned())])
}

/// The reply to `check`, with a policy that can be enforced, at `now`.
fn reply(
    following: &mut Known,
    check: Check,
    current: &Current,
    now: Timestamp,
) -> Option<Timestamp> {
    let compiled = match following.found(check, current) {
        ToCompile::Nothing => None,
        ToCompile::Deployed | ToCompile::Text(_) => Some(Ok(policy())),
        ToCompile::Missing => panic!("the text came"),
    };
    let (other, since) = following.checked(check, current, compiled, now)?;
    assert_eq!((other.version, other.policy.version()), (current.version, current.generation));
    Some(since)
}

/// The reply to `check`, with a policy that cannot be enforced.
fn refuse(following: &mut Known, check: Check, current: &Current, now: Timestamp) {
    assert!(matches!(following.found(check, current), ToCompile::Text(_)));
    let _ = following.checked(check, current, Some(Err(problems())), now);
}

/// The state after a check at time 0.
fn checked(version: u64) -> Known {
    let mut following = Known::default();
    following.set_active(active(version));
    let check = following.begin(at(0), 0);
    assert_eq!(following.found(check, &current(version)), ToCompile::Nothing);
    assert!(following.checked(check, &current(version), None, at(0)).is_none());
    following
}

// Guards: rules that were withdrawn long ago, under which nodes continue at a process that slept
// meanwhile, or that had only the deployed file.
#[test]
fn a_process_that_slept_takes_no_change_for_a_new_one() {
    let mut following = Known::default();
    let check = following.begin(at(0), 0);
    assert_eq!(reply(&mut following, check, &current(7), at(3)), Some(Timestamp::ZERO));
    let since_of = |now: u64, expires: bool| {
        let mut following = following.clone();
        if expires {
            following.expire();
        }
        let check = following.begin(at(now), 0);
        reply(&mut following, check, &current(8), at(now))
    };
    assert_eq!(since_of(4_000, false), Some(at(4_000)));
    assert_eq!(since_of(3_600_000, false), Some(at(5_000)));
    assert_eq!(since_of(3_600_000, true), Some(at(5_000)), "it was changed here");
}

#[test]
fn one_request_asks_and_the_others_wait_for_it() {
    let mut following = checked(7);
    assert!(following.is_fresh(at(4_999)) && !following.is_fresh(at(5_000)));
    assert_eq!(following.relieved(at(4_999)), Some(7));
    assert_eq!(following.relieved(at(5_000)), None);
    let next = |following: &mut Known, now, has_asked| {
        following.next(at(now), Freshness::Fresh, TIMEOUT, has_asked)
    };
    assert_eq!(next(&mut following, 4_999, false), FollowStep::Done);
    assert_eq!(next(&mut following, 5_000, false), FollowStep::Ask);
    let check = following.begin(at(5_000), 0);
    for now in [5_000, 5_001, 5_499] {
        assert_eq!(next(&mut following, now, now == 5_000), FollowStep::Wait, "{now}");
    }
    reply(&mut following, check, &current(7), at(5_499));
    assert_eq!(next(&mut following, 5_500, false), FollowStep::Done);
    // Counted from when it was sent: later changes are not known.
    assert!(following.is_fresh(at(9_999)) && !following.is_fresh(at(10_000)));
    // A clock that was set back.
    assert!(!following.is_fresh(Timestamp::from_millis(9)));
}

#[test]
fn no_request_waits_once_a_check_has_failed() {
    let mut following = checked(7);
    let check = following.begin(at(6_000), 0);
    let fresh = Freshness::Fresh;
    // The request that finds it late reports it, once.
    assert_eq!(following.next(at(6_500), fresh, TIMEOUT, false), FollowStep::Late);
    for wish in [fresh, Freshness::Generation(8), Freshness::Check(2)] {
        assert_eq!(following.next(at(6_501), wish, TIMEOUT, false), FollowStep::Done);
    }
    // It may still get a reply.
    reply(&mut following, check, &current(7), at(6_600));
    assert!(following.is_fresh(at(6_600)));
    let check = following.begin(at(12_000), 0);
    following.failed(check, at(12_100), "it is broken".to_owned());
    let failure = following.followed(None).failure.map(|(at, why)| (at, why.to_owned()));
    assert_eq!(failure, Some((1_012_100, "it is broken".to_owned())));
    assert_eq!(following.next(at(13_099), fresh, TIMEOUT, false), FollowStep::Done);
    assert_eq!(following.next(at(13_100), fresh, TIMEOUT, false), FollowStep::Ask);
    following.begin(at(13_100), 0);
    // Except for the request that asks.
    assert_eq!(following.next(at(13_100), fresh, TIMEOUT, false), FollowStep::Done);
    assert_eq!(following.next(at(13_100), fresh, TIMEOUT, true), FollowStep::Wait);
    assert_eq!(following.next(at(13_600), fresh, TIMEOUT, true), FollowStep::Late);
    // A check that the platform stopped without notice.
    assert_eq!(following.next(at(33_099), fresh, TIMEOUT, false), FollowStep::Done);
    assert_eq!(following.next(at(33_100), fresh, TIMEOUT, false), FollowStep::Ask);
}

#[test]
fn a_newer_generation_is_asked_for_at_once_and_not_over_and_over() {
    let mut following = checked(7);
    let next = |following: &mut Known, now, generation, has_asked| {
        following.next(at(now), Freshness::Generation(generation), TIMEOUT, has_asked)
    };
    assert_eq!(next(&mut following, 100, 7, false), FollowStep::Done);
    assert_eq!(next(&mut following, 100, 8, false), FollowStep::Ask);
    let check = following.begin(at(100), 8);
    assert_eq!(next(&mut following, 101, 8, true), FollowStep::Wait);
    // No policy has that generation: a count that was damaged.
    reply(&mut following, check, &current(7), at(102));
    assert_eq!(next(&mut following, 102, 8, true), FollowStep::Done);
    assert_eq!(next(&mut following, 102, 8, false), FollowStep::Done);
    assert_eq!(next(&mut following, 102, 9, false), FollowStep::Ask);
    assert_eq!(next(&mut following, 1_100, 8, false), FollowStep::Ask);
    // A generation that is found.
    let check = following.begin(at(1_100), 9);
    reply(&mut following, check, &current(8), at(1_101));
    assert_eq!(next(&mut following, 1_101, 8, false), FollowStep::Done);
    assert!(following.is_fresh(at(1_101)));
}

#[test]
fn a_policy_that_cannot_be_enforced_is_not_fetched_again() {
    let mut following = checked(7);
    assert_eq!(following.known(0), (Some(7), Some(7)));
    assert_eq!(following.known(9), (Some(7), Some(9)));
    let check = following.begin(at(1), 0);
    refuse(&mut following, check, &current(8), at(2));
    let last = following.active().unwrap();
    assert_eq!((last.version, last.policy.version()), (7, 8), "counted under the new generation");
    assert_eq!(following.refused(), Some(&problems()));
    assert_eq!(following.known(0), (Some(8), Some(8)));
    assert!(!following.is_fresh(at(2)), "its requests are counted");
    let next = following.next(at(2), Freshness::Fresh, TIMEOUT, false);
    assert_eq!(next, FollowStep::Done, "and no request asks");
    // The same one is not compiled again, but a different one is.
    let check = following.begin(at(6_000), 0);
    let without_text = |version| Current { text: None, ..current(version) };
    assert_eq!(following.found(check, &without_text(8)), ToCompile::Nothing);
    assert!(following.checked(check, &without_text(8), None, at(6_000)).is_none());
    let check = following.begin(at(12_000), 0);
    assert_eq!(following.found(check, &without_text(9)), ToCompile::Missing);
    assert_eq!(following.found(check, &current(9)), ToCompile::Text(""));
    let file = Current { source: Source::Deployed, ..without_text(9) };
    assert_eq!(following.found(check, &file), ToCompile::Deployed);
    reply(&mut following, check, &file, at(12_000));
    assert!(following.refused().is_none() && following.is_fresh(at(12_001)));
    let active = following.active().cloned();
    let followed = following.followed(active.as_deref());
    assert_eq!((followed.version, followed.source), (9, Source::Deployed));
    assert_eq!((followed.checked_at_ms, followed.failure), (Some(1_012_000), None));
}

/// Guards: an operator who put a policy through one isolate, and gets the error from another, which
/// may be five seconds behind, that there is no such rule.
#[test]
fn a_wish_for_the_newest_waits_for_a_check_that_was_sent_later() {
    let mut following = checked(7);
    let wish = following.newest();
    assert_eq!(following.next(at(1), Freshness::Fresh, TIMEOUT, false), FollowStep::Done);
    assert_eq!(following.next(at(1), wish, TIMEOUT, false), FollowStep::Ask);
    let check = following.begin(at(1), 0);
    // A request that comes now cannot know when that one got its reply.
    let later = following.newest();
    assert_eq!(following.next(at(2), later, TIMEOUT, false), FollowStep::Wait);
    reply(&mut following, check, &current(7), at(2));
    assert_eq!(following.next(at(3), wish, TIMEOUT, true), FollowStep::Done);
    assert_eq!(following.next(at(3), later, TIMEOUT, false), FollowStep::Ask);
    let check = following.begin(at(3), 0);
    following.failed(check, at(4), "it is broken".to_owned());
    assert_eq!(following.next(at(4), later, TIMEOUT, true), FollowStep::Done);
}

/// Guards: a check that was sent before a change, and is taken for the state after it.
#[test]
fn a_check_that_was_sent_before_a_change_here_does_not_count_after_it() {
    let mut following = checked(7);
    let check = following.begin(at(5_000), 0);
    following.expire();
    reply(&mut following, check, &current(7), at(5_000));
    assert!(!following.is_fresh(at(5_001)));
    assert_eq!(following.next(at(5_001), Freshness::Fresh, TIMEOUT, false), FollowStep::Ask);
    let check = following.begin(at(5_001), 0);
    reply(&mut following, check, &current(7), at(5_001));
    assert!(following.is_fresh(at(5_002)));
}

/// Guards: a file that the store has not seen and that is sent without end, and a reply to another
/// call that is taken for a policy.
#[test]
fn the_text_of_the_file_is_sent_once_when_the_store_wants_it() {
    let text_of = |call: StoreCall| match call {
        StoreCall::Policy(PolicyCall::Read { deployed, known, seen, now_ms }) => {
            assert_eq!((known, seen, now_ms), (Some(3), Some(4), 5));
            let Deployed { fingerprint, text } = deployed;
            assert_eq!(fingerprint, 6);
            text
        }
        other => panic!("{other:?}"),
    };
    let send_text = || StoreReply::Policy(PolicyReply::SendText);
    let found = || StoreReply::Policy(PolicyReply::Current(current(3)));
    let other = || Some(Err("the store sent an unexpected response".to_owned()));
    let mut question = PolicyQuestion::new(6, None);
    let call = |question: &mut PolicyQuestion| text_of(question.call((Some(3), Some(4)), 5));
    let receive = |question: &mut PolicyQuestion, reply: StoreReply| {
        question.receive(reply, "the store", || "the file".to_owned())
    };
    assert_eq!(call(&mut question), None);
    assert_eq!(receive(&mut question, send_text()), None);
    assert_eq!(call(&mut question).as_deref(), Some("the file"));
    assert_eq!(receive(&mut question, found()), Some(Ok(current(3))));
    // The text was sent already.
    let mut question = PolicyQuestion::new(6, Some("the file".to_owned()));
    assert_eq!(call(&mut question).as_deref(), Some("the file"));
    assert_eq!(receive(&mut question, send_text()), other());
    let mut question = PolicyQuestion::new(6, None);
    call(&mut question);
    assert_eq!(receive(&mut question, StoreReply::Policy(PolicyReply::Noted)), other());
    let failed = StoreReply::Failed("it is away".to_owned());
    assert_eq!(receive(&mut question, failed), Some(Err("it is away".to_owned())));
}

/// A check of the model, and the policy that the store named when it was asked.
struct Pending {
    check: Check,
    number: u64,
    sent_at: Timestamp,
    current: Current,
}

/// A process that follows a store whose policies change, next to a plain account of the same.
struct Model {
    random: Random,
    now: Timestamp,
    following: Known,
    pending: Vec<Pending>,
    /// The policy in force at the store; those whose number three divides cannot be enforced.
    version: u64,
    /// How many checks were sent, and how many of them before the last change that was made here.
    sent: u64,
    outrun: u64,
    /// The last check that got a reply: its number, when it was sent, and its policy.
    last: Option<(u64, Timestamp, u64)>,
    /// The last policy that can be enforced, of those that were found.
    good: u64,
    has_failed: bool,
    seen: Seen,
}

/// How often the special cases occurred.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    changes: u32,
    refusals: u32,
    failures: u32,
    overtaken: u32,
    outrun: u32,
}

impl Model {
    fn new(seed: u64, seen: Seen) -> Self {
        let mut following = Known::default();
        following.set_active(active(1));
        let (now, pending, random) = (at(0), Vec::new(), Random::new(seed));
        let [version, good] = [1; 2];
        let (sent, outrun, last, has_failed) = (0, 0, None, false);
        Self {
            random,
            now,
            following,
            pending,
            version,
            sent,
            outrun,
            last,
            good,
            has_failed,
            seen,
        }
    }

    fn begin(&mut self) {
        let check = self.following.begin(self.now, 0);
        self.sent += 1;
        let (number, sent_at, current) = (self.sent, self.now, current(self.version));
        self.pending.push(Pending { check, number, sent_at, current });
    }

    /// One of the checks under way gets its reply, in whatever order, or fails.
    fn end(&mut self) {
        let i = self.random.index(self.pending.len());
        let Pending { check, number, .. } = self.pending[i];
        let is_overtaken = self.last.is_some_and(|(last, ..)| last > number);
        self.seen.overtaken += u32::from(is_overtaken);
        if self.random.below(4) > 0 {
            return self.receive(i);
        }
        self.pending.swap_remove(i);
        self.following.failed(check, self.now, "it is broken".to_owned());
        self.has_failed |= !is_overtaken;
        self.seen.failures += u32::from(!is_overtaken);
    }

    /// The check at `i` of those under way gets its reply.
    fn receive(&mut self, i: usize) {
        let Pending { check, number, sent_at, current } = self.pending.swap_remove(i);
        let is_overtaken = self.last.is_some_and(|(last, ..)| last > number);
        let is_wrong = current.version.is_multiple_of(3);
        let to_compile = self.following.found(check, &current);
        let compiled = match to_compile {
            ToCompile::Nothing => None,
            ToCompile::Text(_) if is_wrong => Some(Err(problems())),
            ToCompile::Text(_) => Some(Ok(policy())),
            ToCompile::Deployed | ToCompile::Missing => panic!("{to_compile:?}"),
        };
        let last = self.last.map_or(1, |(.., version)| version);
        let is_new = !is_overtaken && current.version != last;
        assert_eq!(compiled.is_some(), is_new, "compiled once");
        let known_at = self.last.map(|(_, at, _)| at);
        let other = self.following.checked(check, &current, compiled, self.now);
        assert_eq!(other.is_some(), is_new);
        if let Some((active, since)) = other {
            assert!(
                since <= self.now
                    && known_at.is_none_or(|at| since <= at.saturating_add(Span::from_secs(5)))
            );
            assert_eq!(active.policy.version(), current.version);
            self.seen.changes += 1;
            self.seen.refusals += u32::from(is_wrong);
        }
        if !is_overtaken {
            self.seen.outrun += u32::from(number <= self.outrun);
            self.good = if is_wrong { self.good } else { current.version };
            self.last = Some((number, sent_at, current.version));
            self.has_failed = false;
        }
    }

    /// A request comes, and asks when it has to.
    fn request(&mut self) {
        let wish = match self.random.below(3) {
            0 => self.following.newest(),
            1 => Freshness::Generation(self.version),
            _ => Freshness::Fresh,
        };
        match self.following.next(self.now, wish, TIMEOUT, false) {
            FollowStep::Ask => self.begin(),
            FollowStep::Late => self.has_failed = true,
            FollowStep::Wait => {
                let last = self.pending.iter().map(|it| it.sent_at).max().unwrap();
                assert!(self.now < last.saturating_add(TIMEOUT) && !self.has_failed);
            }
            FollowStep::Done => {}
        }
    }

    fn step(&mut self) {
        self.now = self.now.saturating_add(Span::from_millis(self.random.below(400)));
        match self.random.below(8) {
            0 => self.version += 1,
            1 => {
                self.version += 1;
                self.following.expire();
                self.outrun = self.sent;
            }
            // The one before was given up.
            2 if self.pending.len() < 3 => self.begin(),
            3..=5 if !self.pending.is_empty() => self.end(),
            _ => self.request(),
        }
        self.judge();
    }

    fn judge(&self) {
        let (active, found) = (self.following.active().unwrap(), self.last.map_or(1, |it| it.2));
        assert_eq!(active.version, self.good, "the last policy that can be enforced");
        assert_eq!(active.policy.version(), found, "counted as the policy in force");
        let is_refused = self.last.is_some() && found.is_multiple_of(3);
        assert_eq!(self.following.refused().is_some(), is_refused);
        assert_eq!(self.following.known(0), (Some(found), Some(found)));
        let followed = self.following.followed(Some(active));
        assert_eq!(followed.failure.is_some(), self.has_failed);
        let counts = self.last.filter(|(number, ..)| *number > self.outrun);
        let is_within = |at: Timestamp| self.now < at.saturating_add(Span::from_secs(5));
        let is_known = counts.is_some_and(|(_, sent_at, _)| is_within(sent_at));
        assert_eq!(self.following.is_fresh(self.now), is_known && !is_refused);
        assert_eq!(self.following.relieved(self.now), is_known.then_some(found));
    }
}

// Guards: a policy that comes back because its reply was late, one that cannot be enforced and
// decides, a reply from before a change that is taken for the state after it, and a failure that
// ends what is known.
#[test]
fn every_order_of_replies_keeps_the_last_good_policy() {
    let mut seen = Seen::default();
    for seed in 0..500 {
        let mut model = Model::new(seed, seen);
        (0..200).for_each(|_| model.step());
        // The store responds again, to a check that is sent now.
        model.begin();
        model.receive(model.pending.len() - 1);
        assert_eq!(model.last.map(|it| it.2), Some(model.version), "seed {seed}");
        while !model.pending.is_empty() {
            model.judge();
            model.end();
        }
        model.judge();
        seen = model.seen;
    }
    let Seen { changes, refusals, failures, overtaken, outrun } = seen;
    let least = [changes, refusals, failures, overtaken, outrun].into_iter().min();
    assert!(least > Some(500), "{seen:?}");
}
