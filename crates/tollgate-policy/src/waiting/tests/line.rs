//! The queue as used by a surface, and against a naive model.
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Charge, Limiter, Quota, Span, Timestamp};

use super::super::{Limits, Pace, Poll};
use super::{Due, Full, PlaceRequest, Queue, TurnRequest};

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn turn_request(key: u8, deadline: u64) -> TurnRequest<u8> {
    TurnRequest { key, cost: 1, deadline: at(deadline), rank: 0, bytes: 100 }
}

/// One key of "2 per second, burst 2", by GCRA: a unit every 500 ms.
struct Key {
    limiter: Limiter,
    state: [u8; 8],
}

impl Key {
    fn used_up(now: u64) -> Self {
        let quota = Quota::new(2, Span::from_secs(1)).unwrap();
        let mut key =
            Self { limiter: Limiter::new(Algorithm::Gcra, quota).unwrap(), state: [0; 8] };
        for _ in 0..2 {
            assert!(key.decide(now).0);
        }
        key
    }

    fn decide(&mut self, now: u64) -> (bool, Pace) {
        let decision = self.limiter.check(&mut self.state, at(now), 1);
        let pace = Pace::new(at(now), 1, false, core::iter::once((self.limiter, decision)));
        (decision.is_admitted(), pace)
    }
}

#[test]
fn a_line_moves_in_order_with_one_decision_per_unit() {
    let (mut key, mut queue) = (Key::used_up(1_000), Queue::new(Limits::default()));
    for who in 0..5 {
        let pace = (!queue.has_line(&1)).then(|| key.decide(1_000).1);
        queue.join(at(1_000), turn_request(1, 9_000), pace, who).unwrap();
    }
    let (mut gone, mut decisions) = (Vec::new(), 0);
    for now in 1_000..9_000 {
        while let Some(due) = queue.pop(at(now)) {
            let Due::Decide(ticket) = due else { panic!("{due:?}") };
            decisions += 1;
            let (admitted, pace) = key.decide(now);
            assert!(admitted);
            gone.push((now, queue.done(ticket, at(now), Some(pace)).unwrap()));
        }
    }
    assert_eq!(gone, [(1_500, 0), (2_000, 1), (2_500, 2), (3_000, 3), (3_500, 4)]);
    assert_eq!((decisions, queue.len(), queue.bytes(), queue.next_at()), (5, 0, 0, None));
}

#[test]
fn whoever_cannot_be_let_through_in_time_is_refused_at_once() {
    let (mut key, mut queue) = (Key::used_up(0), Queue::new(Limits::default()));
    let mut refused = Vec::new();
    for who in 0..6 {
        let pace = (!queue.has_line(&1)).then(|| key.decide(0).1);
        if let Err(why) = queue.join(at(0), turn_request(1, 2_000), pace, who) {
            refused.push(why);
        }
    }
    let late = |millis| Full::Late(Span::from_millis(millis));
    assert_eq!(refused, vec![(late(2_500), 4), (late(2_500), 5)]);
}

// Guards: a herd that wakes for every place of the queue, which the first one to poll then takes.
#[test]
fn whoever_has_a_place_is_told_to_wait_for_its_own() {
    let mut queue = Queue::new(Limits::default());
    let places = [2_000, 3_000, 3_000, 4_000];
    let place_request =
        PlaceRequest { line: Some((1_u8, 1)), deadline: Timestamp::MAX, rank: 0, bytes: 100 };
    let mut hold = |millis: &u64| queue.hold(at(1_000), place_request, at(*millis), ());
    let tickets: Vec<_> = places.iter().map(|millis| hold(millis).unwrap()).collect();
    let told = |queue: &mut Queue<u8, ()>, now: u64| -> Vec<_> {
        tickets.iter().map(|ticket| queue.poll(*ticket, at(now))).collect()
    };
    let wait = |millis| Poll::Wait(at(millis));
    assert_eq!(told(&mut queue, 1_000), [wait(2_000), wait(3_000), wait(3_000), wait(4_000)]);
    // One leaves, and those after it move up.
    queue.leave(tickets[1], at(1_500));
    let over = Poll::Over(Full::Late(Span::ZERO));
    assert_eq!(told(&mut queue, 1_500), [wait(2_000), over, wait(3_000), wait(3_000)]);
    // A waiter that polls late takes no other waiter's place.
    assert_eq!(queue.poll(tickets[2], at(3_000)), Poll::Go);
    assert_eq!(queue.poll(tickets[0], at(3_000)), Poll::Go);
    assert_eq!(queue.poll(tickets[3], at(3_000)), Poll::Go);
    assert_eq!((queue.len(), queue.bytes(), queue.next_at()), (0, 0, None));
}

/// A limit on requests in flight; `running` are counted.
struct Places {
    limiter: Limiter,
    state: [u8; 32],
    running: Vec<u64>,
}

impl Places {
    fn new(limit: u64) -> Self {
        let limiter = Limiter::new_concurrency(limit, Span::from_secs(60)).unwrap();
        Self { limiter, state: [0; 32], running: Vec::new() }
    }

    fn decide(&mut self, now: u64) -> (bool, Pace) {
        let decision = self.limiter.check(&mut self.state, at(now), 1);
        if decision.is_admitted() {
            self.running.push(now);
        }
        let pace = Pace::new(at(now), 1, false, core::iter::once((self.limiter, decision)));
        (decision.is_admitted(), pace)
    }

    fn end(&mut self, now: u64) {
        let charge = Charge { at: at(self.running.remove(0)), cost: 1, delay: Span::ZERO };
        self.limiter.refund(&mut self.state, charge, at(now));
    }
}

/// Decides what is due at `now`; returns the waiters that go, and the number of decisions.
fn decide_due(places: &mut Places, queue: &mut Queue<u8, u8>, now: u64) -> (Vec<u8>, u32) {
    let (mut gone, mut decisions) = (Vec::new(), 0);
    while let Some(due) = queue.pop(at(now)) {
        let Due::Decide(ticket) = due else { panic!("{due:?}") };
        decisions += 1;
        let (admitted, pace) = places.decide(now);
        if admitted {
            gone.push(queue.done(ticket, at(now), Some(pace)).unwrap());
        } else {
            queue.again(ticket, at(now), turn_request(1, 9_000), pace).unwrap();
        }
    }
    (gone, decisions)
}

fn full_line(waiters: u8) -> (Places, Queue<u8, u8>) {
    let (mut places, mut queue) = (Places::new(2), Queue::new(Limits::default()));
    assert!(places.decide(1_000).0 && places.decide(1_000).0);
    for who in 0..waiters {
        let (admitted, pace) = places.decide(1_000);
        assert!(!admitted);
        queue.join(at(1_000), turn_request(1, 9_000), Some(pace), who).unwrap();
    }
    (places, queue)
}

// Guards: a poll for every waiter, and a vain one after every request that goes.
#[test]
fn an_end_gives_the_first_its_turn_with_one_decision() {
    let (mut places, mut queue) = full_line(3);
    assert_eq!(decide_due(&mut places, &mut queue, 1_001), (vec![], 0));
    for who in 0..3 {
        let now = 1_010 + u64::from(who);
        places.end(now);
        assert_eq!(queue.place_freed(&1, at(now)), Some(&who));
        assert_eq!(decide_due(&mut places, &mut queue, now), (vec![who], 1));
    }
    assert_eq!((queue.len(), queue.bytes(), queue.next_at()), (0, 0, None));
    assert_eq!(queue.place_freed(&1, at(1_020)), None);
}

#[test]
fn two_ends_give_two_their_turns() {
    let (mut places, mut queue) = full_line(3);
    places.end(1_010);
    places.end(1_010);
    assert_eq!(queue.place_freed(&1, at(1_010)), Some(&0));
    assert_eq!(queue.place_freed(&1, at(1_010)), Some(&0));
    assert_eq!(decide_due(&mut places, &mut queue, 1_010), (vec![0, 1], 2));
}

#[test]
fn places_that_end_elsewhere_are_looked_for_less_and_less_often() {
    let (mut places, mut queue) = full_line(1);
    let mut looks = Vec::new();
    while queue.next_at().unwrap() < at(4_000) {
        let now = queue.next_at().unwrap().as_nanos() / 1_000_000;
        assert_eq!(decide_due(&mut places, &mut queue, now), (vec![], 1));
        looks.push(now - 1_000);
    }
    assert_eq!(looks, [100, 300, 700, 1_100, 1_500, 1_900, 2_300, 2_700]);
    // Another request of the key has looked already.
    let pace = places.decide(3_800).1;
    queue.join(at(3_800), turn_request(1, 9_000), Some(pace), 1).unwrap();
    assert_eq!(queue.next_at(), Some(at(4_200)));
    // It saw a place that ended elsewhere: the first one takes it.
    places.end(4_000);
    let free = Pace::new(
        at(4_000),
        1,
        false,
        core::iter::once((places.limiter, places.limiter.peek(&places.state, at(4_000), 0))),
    );
    queue.join(at(4_000), turn_request(1, 9_000), Some(free), 2).unwrap();
    assert_eq!(decide_due(&mut places, &mut queue, 4_000), (vec![0], 1));
}

// Guards: a place that ends while the first is being decided, which its decision did not see.
#[test]
fn an_end_during_a_decision_is_not_lost() {
    let (mut places, mut queue) = full_line(2);
    let Some(Due::Decide(ticket)) = queue.pop(at(1_100)) else { panic!("it is due") };
    let (admitted, pace) = places.decide(1_100);
    assert!(!admitted);
    places.end(1_101);
    assert_eq!(queue.place_freed(&1, at(1_101)), None, "it is being decided");
    queue.again(ticket, at(1_102), turn_request(1, 9_000), pace).unwrap();
    assert_eq!(decide_due(&mut places, &mut queue, 1_102), (vec![0], 1));
    // The first one's end is another one's place, not the next look.
    assert_eq!(queue.next_at(), Some(at(1_202)));
}

// Guards: the look of a request that arrives, made before a place ended, hides that end.
#[test]
fn an_older_look_does_not_hide_a_free_place() {
    let (mut places, mut queue) = full_line(1);
    let older = places.decide(1_005).1;
    places.end(1_010);
    assert_eq!(queue.place_freed(&1, at(1_010)), Some(&0));
    queue.join(at(1_011), turn_request(1, 9_000), Some(older), 1).unwrap();
    assert_eq!(decide_due(&mut places, &mut queue, 1_011), (vec![0], 1));
}

// Guards: every waiter of a long line polls at each look of the first one.
#[test]
fn only_the_first_of_a_line_for_places_has_a_time_to_poll_at() {
    let (mut places, mut queue) = (Places::new(1), Queue::new(Limits::default()));
    assert!(places.decide(1_000).0);
    let join = |who: u8| {
        let pace = places.decide(1_000).1;
        queue.join(at(1_000), turn_request(1, 9_000), Some(pace), who).unwrap()
    };
    let tickets: Vec<_> = (0..3).map(join).collect();
    let wait = |millis| Poll::Wait(at(millis));
    assert_eq!(queue.poll(tickets[0], at(1_001)), wait(1_100));
    assert_eq!(queue.poll(tickets[1], at(1_001)), wait(9_000));
    assert_eq!(queue.poll(tickets[0], at(1_100)), Poll::Decide);
    assert_eq!(queue.poll(tickets[2], at(1_100)), wait(9_000), "also while it is decided");
    assert_eq!((queue.ahead_for_place(tickets[2], 9), queue.first(&1)), (Some(2), Some(&0)));
    queue.leave(tickets[0], at(1_101));
    assert_eq!(queue.first(&1), Some(&1));
    assert_eq!(queue.poll(tickets[1], at(9_000)), Poll::Decide, "its last look");
    assert_eq!(queue.poll(tickets[2], at(9_001)), Poll::Over(Full::NoPlace));
}

// Guards: a denial by a quota alone blames the limit on requests in flight, which has places.
#[test]
fn a_limit_with_places_is_not_the_reason_of_a_denial() {
    let (places, mut queue) = (Places::new(2), Queue::new(Limits::default()));
    let mut key = Key::used_up(1_000);
    let mut pace = |now| {
        let quota = key.limiter.peek(&key.state, at(now), 1);
        // Another process uses the next unit.
        let _ = key.decide(now + 499);
        let place = places.limiter.peek(&places.state, at(now), 1);
        let of_rule = [(key.limiter, quota), (places.limiter, place)];
        Pace::new(at(now), 1, false, of_rule.into_iter())
    };
    for (who, deadline) in [(0, 9_000), (1, 2_100)] {
        queue.join(at(1_000), turn_request(1, deadline), Some(pace(1_000)), who).unwrap();
    }
    while queue.next_at().unwrap() < at(2_100) {
        let now = queue.next_at().unwrap().as_nanos() / 1_000_000;
        let Some(Due::Decide(ticket)) = queue.pop(at(now)) else { panic!("it is due") };
        queue.again(ticket, at(now), turn_request(1, 9_000), pace(now)).unwrap();
    }
    let over = queue.pop(at(2_100));
    assert!(matches!(over, Some(Due::Over(1, Full::Late(_)))), "{over:?}");
}

#[test]
fn the_last_look_is_at_the_deadline_and_those_behind_it_have_none() {
    let (mut places, mut queue) = (Places::new(1), Queue::new(Limits::default()));
    assert!(places.decide(1_000).0);
    for (who, deadline) in [(0, 1_050), (1, 1_060), (2, 1_040)] {
        let pace = places.decide(1_000).1;
        queue.join(at(1_000), turn_request(1, deadline), Some(pace), who).unwrap();
    }
    assert_eq!(queue.pop(at(1_049)), Some(Due::Over(2, Full::NoPlace)));
    assert_eq!(queue.pop(at(1_049)), None);
    let Some(Due::Decide(ticket)) = queue.pop(at(1_050)) else { panic!("its last look") };
    let pace = places.decide(1_050).1;
    assert_eq!(queue.done(ticket, at(1_050), Some(pace)), Some(0));
    let Some(Due::Decide(ticket)) = queue.pop(at(1_060)) else { panic!("its last look") };
    assert_eq!(queue.leave(ticket, at(1_060)).unwrap().0, 1);
    assert_eq!((queue.len(), queue.bytes(), queue.next_at()), (0, 0, None));
}
