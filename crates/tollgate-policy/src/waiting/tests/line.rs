//! The queue as used by a surface, and against a naive model.
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};

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
    let over = Poll::Over(Span::ZERO);
    assert_eq!(told(&mut queue, 1_500), [wait(2_000), over, wait(3_000), wait(3_000)]);
    // A waiter that polls late takes no other waiter's place.
    assert_eq!(queue.poll(tickets[2], at(3_000)), Poll::Go);
    assert_eq!(queue.poll(tickets[0], at(3_000)), Poll::Go);
    assert_eq!(queue.poll(tickets[3], at(3_000)), Poll::Go);
    assert_eq!((queue.len(), queue.bytes(), queue.next_at()), (0, 0, None));
}
