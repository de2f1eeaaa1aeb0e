//! Requests in flight against a model that has a list of them.

use proptest::prelude::*;
use tollgate_core::{
    ALLOWED_SKEW, Charge, FULLY_USED, LATEST, Limiter, MAX_IN_FLIGHT, MAX_MAX_AGE, Quota,
    QuotaError, Span, Timestamp, Verdict,
};

const MILLIS: u64 = 1_000_000;
/// Of every limiter here, unless a test is about others: four parts of 1 s.
const MAX_AGE: u64 = 4_000 * MILLIS;
const START: u64 = 1_700_000_000_000 * MILLIS;

fn limiter(limit: u64) -> Limiter {
    Limiter::new_concurrency(limit, Span::from_nanos(MAX_AGE)).unwrap()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn charge(nanos: u64) -> Charge {
    Charge { at: at(nanos), cost: 1, delay: Span::ZERO }
}

/// A key, its requests that run, and its clock.
struct Key {
    limiter: Limiter,
    state: Vec<u8>,
    now: u64,
    /// When each was allowed or last confirmed.
    running: Vec<u64>,
}

impl Key {
    fn new(limit: u64) -> Self {
        let limiter = limiter(limit);
        Self { limiter, state: vec![0; limiter.state_len()], now: START, running: Vec::new() }
    }

    fn counted(&self) -> u64 {
        self.limiter.limit() - self.limiter.peek(&self.state, at(self.now), 0).remaining
    }

    fn allow(&mut self) -> bool {
        let before = self.state.clone();
        let decision = self.limiter.check(&mut self.state, at(self.now), 1);
        if decision.is_admitted() {
            self.running.push(self.now);
        } else {
            assert_eq!(before, self.state, "a denial writes nothing");
            assert_eq!((decision.retry_after, decision.remaining), (None, 0));
        }
        decision.is_admitted()
    }

    fn end(&mut self, which: usize) {
        let charged_at = self.running.remove(which % self.running.len());
        self.limiter.refund(&mut self.state, charge(charged_at), at(self.now));
    }

    fn confirm(&mut self, which: usize) -> bool {
        let which = which % self.running.len();
        let is_counted =
            self.limiter.renew(&mut self.state, charge(self.running[which]), at(self.now));
        if is_counted {
            self.running[which] = self.now;
        } else {
            self.running.remove(which);
        }
        is_counted
    }

    /// The requests that were confirmed within three quarters of `max_age`, after `since`.
    fn confirmed(&self, since: u64) -> u64 {
        let is_confirmed = |at: &&u64| **at >= since && self.now - **at <= MAX_AGE / 4 * 3;
        self.running.iter().filter(is_confirmed).count() as u64
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Allow,
    End(usize),
    Confirm(usize),
    /// Its process stops: nothing confirms or ends it.
    Die(usize),
    /// The confirmation is stored, the reply is lost, and the process confirms again.
    ConfirmTwice(usize),
    /// The state is evicted.
    Lose,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..900 * MILLIS).prop_map(Event::Pass),
        6 => Just(Event::Allow),
        3 => any::<usize>().prop_map(Event::End),
        4 => any::<usize>().prop_map(Event::Confirm),
        1 => any::<usize>().prop_map(Event::Die),
        1 => any::<usize>().prop_map(Event::ConfirmTwice),
        1 => Just(Event::Lose),
    ]
}

proptest! {
    /// Nothing is lost and everything is confirmed in time: exactly the running requests count.
    #[test]
    fn what_runs_is_what_counts(
        limit in 1..6_u64,
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut key = Key::new(limit);
        for event in events {
            match event {
                Event::Pass(time) => key.now += time,
                Event::End(which) if !key.running.is_empty() => key.end(which),
                _ => {
                    let has_room = (key.running.len() as u64) < limit;
                    prop_assert_eq!(key.allow(), has_room);
                }
            }
            for which in 0..key.running.len() {
                if key.now - key.running[which] > MAX_AGE / 3 {
                    prop_assert!(key.confirm(which));
                }
            }
            prop_assert_eq!(key.counted(), key.running.len() as u64);
        }
        while !key.running.is_empty() {
            key.end(0);
        }
        prop_assert!(key.state.iter().all(|byte| *byte == 0), "as never seen");
    }

    /// Processes that stop, lost replies and lost states: no request that is confirmed is left out,
    /// and all that was lost is whole after one `max_age`. More than the limit run only where a
    /// state was lost.
    #[test]
    fn no_confirmed_request_is_left_out(
        limit in 1..6_u64,
        events in prop::collection::vec(event(), 1..160),
    ) {
        let mut key = Key::new(limit);
        let mut since = 0;
        for event in events {
            let is_idle = key.running.is_empty();
            match event {
                Event::Pass(time) => key.now += time,
                Event::Allow => {
                    key.allow();
                }
                Event::Lose => {
                    key.state.fill(0);
                    key.now += 1;
                    since = key.now;
                }
                _ if is_idle => {}
                Event::End(which) => key.end(which),
                Event::Confirm(which) => {
                    key.confirm(which);
                }
                Event::Die(which) => {
                    let which = which % key.running.len();
                    key.running.remove(which);
                }
                Event::ConfirmTwice(which) => {
                    let old = key.running[which % key.running.len()];
                    key.limiter.renew(&mut key.state, charge(old), at(key.now));
                    key.confirm(which);
                }
            }
            prop_assert!(key.confirmed(since).min(limit) <= key.counted(), "{event:?}");
        }
        key.running.clear();
        key.now += MAX_AGE;
        prop_assert_eq!(key.counted(), 0, "nothing outlives its time");
        prop_assert!(key.limiter.idle_at(&key.state) <= at(key.now));
    }

    /// Any bytes are a state, at any time.
    #[test]
    fn any_bytes_are_a_state(
        state in prop::collection::vec(any::<u8>(), 32),
        now in any::<u64>(),
        charged_at in any::<u64>(),
        cost in any::<u64>(),
    ) {
        let limiter = limiter(3);
        let (mut state, now) = (state, at(now));
        let charge = Charge { at: at(charged_at), cost, delay: Span::ZERO };
        let _ = limiter.peek(&state, now, cost);
        let _ = limiter.idle_at(&state);
        prop_assert!(limiter.used(&state, now) <= FULLY_USED);
        limiter.check(&mut state, now, cost);
        limiter.renew(&mut state, charge, now);
        limiter.refund(&mut state, charge, now);
        limiter.debit(&mut state, cost, now);
        limiter.settle(&mut state, charge, 0, now);
    }
}

#[test]
fn a_process_that_stops_costs_its_requests_for_at_most_max_age() {
    let mut key = Key::new(2);
    assert!(key.allow() && key.allow() && !key.allow());
    key.now += MAX_AGE / 4 * 3 - 1;
    assert!(!key.allow(), "counted for three quarters of it");
    key.now = START + MAX_AGE;
    assert!(key.allow() && key.allow(), "and no longer than all of it");
}

#[test]
fn one_that_expired_frees_no_request_of_another() {
    let mut key = Key::new(1);
    assert!(key.allow());
    let late = key.running.remove(0);
    key.now += MAX_AGE;
    assert!(key.allow());
    key.limiter.refund(&mut key.state, charge(late), at(key.now));
    assert!(!key.allow());
    assert!(!key.limiter.renew(&mut key.state, charge(late), at(key.now)), "it is not counted");
    assert_eq!(key.counted(), 1);
}

// Guards: after an eviction the ends of earlier requests release those that came later, and the
// count falls below what runs.
#[test]
fn a_request_of_a_lost_state_frees_no_later_one_and_is_counted_again() {
    let mut key = Key::new(4);
    assert!(key.allow() && key.allow());
    key.state.fill(0);
    key.now += 1;
    assert!(key.allow() && key.allow());
    key.end(0);
    assert_eq!(key.counted(), 2, "its unit was in the lost state");
    assert!(key.confirm(0));
    assert_eq!(key.counted(), 3);
    key.end(0);
    assert_eq!(key.counted(), 2);
}

// Guards: a process whose confirmation is lost, and that ends its request by the charge.
#[test]
fn the_only_request_is_released_by_each_of_its_charges() {
    let mut key = Key::new(1);
    assert!(key.allow());
    key.now += MAX_AGE / 3;
    assert!(key.limiter.renew(&mut key.state, charge(START), at(key.now)));
    assert_eq!(key.counted(), 1);
    key.end(0);
    assert_eq!((key.counted(), key.state.iter().all(|byte| *byte == 0)), (0, true));
}

#[test]
fn a_clock_that_is_late_counts_and_releases_as_any_other() {
    let mut key = Key::new(2);
    assert!(key.allow());
    key.now -= MAX_AGE / 4;
    assert!(key.allow() && !key.allow());
    key.end(1);
    assert_eq!(key.counted(), 1);
    key.end(0);
    assert_eq!(key.counted(), 0);
    // Set back by more than any clock error: nothing of the state is believed.
    key.now = START;
    assert!(key.allow() && key.allow());
    key.now -= ALLOWED_SKEW.as_nanos() + MAX_AGE;
    assert!(key.allow() && key.allow() && !key.allow());
}

// Guards: a request of an earlier `max_age` that nothing counts after the change.
#[test]
fn a_shorter_age_keeps_what_runs() {
    let mut key = Key::new(2);
    assert!(key.allow());
    let short = Limiter::new_concurrency(2, Span::from_secs(1)).unwrap();
    let mut state = vec![0; short.state_len()];
    let now = at(START + 2_000 * MILLIS);
    short.carry(&key.limiter, &key.state, now, &mut state);
    assert_eq!(short.peek(&state, now, 0).remaining, 1);
    // By the new age its last confirmation is too long ago; its process counts it again.
    assert!(!short.renew(&mut state, charge(START), now));
    short.count_again(&mut state, now, 1);
    assert_eq!(short.peek(&state, now, 0).remaining, 0, "twice, until the earlier one expires");
    let later = at(START + 3_000 * MILLIS);
    let confirmed = Charge { at: now, cost: 1, delay: Span::ZERO };
    assert!(!short.renew(&mut state, confirmed, later));
    short.count_again(&mut state, later, 1);
    assert_eq!(short.peek(&state, later, 0).remaining, 1);
}

// Guards: a charge of a clock that was set back, which frees the place of another request.
#[test]
fn a_charge_that_is_newer_than_its_state_frees_nothing() {
    let mut key = Key::new(1);
    assert!(key.allow());
    let early = key.running.remove(0);
    key.now -= 3_600_000 * MILLIS;
    assert!(key.allow(), "that state is of no clock");
    key.limiter.refund(&mut key.state, charge(early), at(key.now));
    assert!(!key.allow());
}

#[test]
fn another_limit_keeps_what_runs() {
    let mut key = Key::new(3);
    assert!(key.allow() && key.allow());
    let to = |limit, millis| {
        let to = Limiter::new_concurrency(limit, Span::from_millis(millis)).unwrap();
        let mut state = vec![0; to.state_len()];
        to.carry(&key.limiter, &key.state, at(START + 1), &mut state);
        to.refund(&mut state, charge(key.running[0]), at(START + 2));
        to.peek(&state, at(START + 2), 1)
    };
    assert_eq!(to(2, 4_000).remaining, 0, "one of two runs, and one more would");
    assert_eq!(to(1, 4_000).verdict, Verdict::Deny);
    assert_eq!(to(2, 60_000).remaining, 0);
    // A quota and a limit on requests in flight count different things.
    let window = Quota::new(3, Span::from_millis(4_000)).unwrap();
    let quota = Limiter::new(tollgate_core::Algorithm::FixedWindow, window).unwrap();
    let mut state = vec![0; quota.state_len()];
    quota.carry(&key.limiter, &key.state, at(START), &mut state);
    assert_eq!(quota.peek(&state, at(START), 0).remaining, 3);
}

#[test]
fn the_bytes_of_a_state() {
    let mut key = Key::new(9);
    key.now = 0x1122_3344_5566_7788;
    assert!(key.allow() && key.allow());
    key.now += MAX_AGE / 2;
    assert!(key.allow());
    let newest = key.now / (MAX_AGE / 4);
    let mut bytes = 0x1122_3344_5566_7788_u64.to_le_bytes().to_vec();
    bytes.extend(newest.to_le_bytes());
    bytes.extend([1_u32, 0, 2, 0].map(u32::to_le_bytes).concat());
    assert_eq!(key.state, bytes);
    assert_eq!(key.limiter.idle_at(&key.state), at((newest + 4) * (MAX_AGE / 4)));
    assert_eq!(key.limiter.used(&key.state, at(key.now)), FULLY_USED.div_ceil(3));
}

#[test]
fn limits_and_ages_outside_their_range_are_refused() {
    let new = Limiter::new_concurrency;
    let (second, most) = (Span::from_secs(1), MAX_IN_FLIGHT);
    assert!(new(most, second).is_ok() && new(1, MAX_MAX_AGE).is_ok());
    assert_eq!(new(0, second), Err(QuotaError::Limit));
    assert_eq!(new(most + 1, second), Err(QuotaError::LimitOfAlgorithm { max_limit: most }));
    let short = Span::from_nanos(second.as_nanos() - 1);
    assert_eq!(new(1, short), Err(QuotaError::MaxAge));
    let long = MAX_MAX_AGE.saturating_add(Span::from_nanos(1));
    assert_eq!(new(1, long), Err(QuotaError::MaxAge));
    let limiter = new(most, second).unwrap();
    let mut state = vec![0; limiter.state_len()];
    assert!(limiter.check(&mut state, LATEST, most).is_admitted());
    assert!(!limiter.check(&mut state, LATEST, 1).is_admitted());
    let [one, two] = [1, 4].map(Span::from_secs);
    assert_eq!(new(1, one).unwrap().max_age(), Some(one));
    assert!(
        new(1, one).unwrap().with_penalty(tollgate_core::Penalty::new(&[two]).unwrap()).is_none()
    );
}
