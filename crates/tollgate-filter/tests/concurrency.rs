//! Requests in flight in several workers of one host: confirmed by the timer, released with the
//! stream, and gone with a worker that is killed.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_filter::filter::{Filter, Flow};

use crate::waiting::{Host, ROOT, World, come, with_policy, worker};

/// Two at the same time, each confirmed within 12 s.
const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "r", "key": ["client_ip"], "concurrency": {"limit": 2, "max_age": "12s"}}]}"#;

const SECOND: u64 = 1_000;

fn start() -> (Filter<Host>, Rc<World>) {
    with_policy(POLICY.to_owned())
}

fn passes(filter: &Filter<Host>, world: &World, id: u32) -> bool {
    come(filter, world, id, "/") == Flow::Continue
}

/// Moves the clock to this many milliseconds after the start.
fn at(world: &World, millis: u64) {
    world.now.set(Timestamp::from_millis(SECOND + millis));
}

#[test]
fn an_end_in_one_worker_frees_a_place_in_another() {
    let (one, world) = start();
    let two = worker(&world);
    assert!(passes(&one, &world, 10) && passes(&two, &world, 10));
    assert!(!passes(&one, &world, 11) && !passes(&two, &world, 11));
    // The end of a denied request frees nothing, and each end frees one place once.
    one.on_delete(11);
    two.on_delete(11);
    assert!(!passes(&one, &world, 12));
    one.on_delete(10);
    one.on_delete(10);
    assert!(passes(&two, &world, 13) && !passes(&two, &world, 14));
    assert_eq!(*world.refused.borrow(), [429; 4]);
}

// Guards: streams that are forgotten after `max_age`, and a timer that writes without need.
#[test]
fn a_stream_is_confirmed_at_a_third_of_its_age_with_one_write() {
    let (filter, world) = start();
    assert!(passes(&filter, &world, 10));
    filter.on_response_headers(10);
    for third in 1..=9 {
        let due = third * 4 * SECOND;
        at(&world, due - 1);
        world.writes.set(0);
        filter.on_tick(ROOT);
        assert_eq!((world.writes.get(), world.tick_ms.get()), (0, 1), "not yet");
        at(&world, due);
        filter.on_tick(ROOT);
        assert_eq!((world.writes.get(), world.tick_ms.get()), (1, 4_000));
    }
    assert!(passes(&filter, &world, 11) && !passes(&filter, &world, 12));
    filter.on_delete(10);
    assert!(passes(&filter, &world, 13));
}

#[test]
fn a_killed_worker_costs_its_places_for_at_most_max_age() {
    let (killed, world) = start();
    let other = worker(&world);
    assert!(passes(&killed, &world, 10) && passes(&killed, &world, 11));
    drop(killed);
    at(&world, 9 * SECOND - 1);
    assert!(!passes(&other, &world, 10));
    at(&world, 12 * SECOND);
    assert!(passes(&other, &world, 11) && passes(&other, &world, 12));
    assert!(!passes(&other, &world, 13));
}

// Guards: a worker that was stopped until its places were others'.
#[test]
fn a_confirmation_that_comes_too_late_counts_the_request_again() {
    let (late, world) = start();
    let other = worker(&world);
    assert!(passes(&late, &world, 10) && passes(&late, &world, 11));
    at(&world, 12 * SECOND);
    assert!(passes(&other, &world, 10) && passes(&other, &world, 11));
    late.on_tick(ROOT);
    late.flush();
    assert_eq!(world.counted("in_flight_late"), 2);
    // Four run. The limit holds again as soon as two have ended.
    late.on_delete(10);
    late.on_delete(11);
    assert!(!passes(&other, &world, 12));
    other.on_delete(10);
    assert!(passes(&other, &world, 13) && !passes(&other, &world, 14));
}

// Guards: streams of a listener that drains, which no timer confirms after its root has ended.
#[test]
fn streams_that_outlive_their_root_are_confirmed_by_the_next_one() {
    const NEXT: u32 = 2;
    let (filter, world) = start();
    assert!(passes(&filter, &world, 10) && passes(&filter, &world, 11));
    filter.on_context_create(NEXT, 0);
    assert!(filter.on_configure(NEXT, 100));
    filter.on_delete(ROOT);
    for third in 1..=6 {
        at(&world, third * 4 * SECOND);
        filter.on_tick(NEXT);
    }
    filter.on_context_create(12, NEXT);
    assert_ne!(filter.on_request_headers(12), Flow::Continue, "both still run");
    filter.on_delete(10);
    filter.on_context_create(13, NEXT);
    assert_eq!(filter.on_request_headers(13), Flow::Continue);
}

// Guards: memory that requests in flight hold after their end.
#[test]
fn ten_thousand_requests_leave_nothing() {
    let (filter, world) = with_policy(POLICY.replace("\"limit\": 2", "\"limit\": 20000"));
    for id in 10..10_010 {
        assert!(passes(&filter, &world, id));
        at(&world, Span::from_nanos(u64::from(id) * 100_000).as_millis_ceil());
    }
    for id in (10..10_010).rev() {
        filter.on_delete(id);
    }
    filter.on_tick(ROOT);
    assert_eq!((filter.contexts(), world.tick_ms.get()), (1, 0));
    assert!(passes(&filter, &world, 10));
}

/// Two at the same time; a request waits for at most 5 s.
const WAITING: &str = r#"{"version": 1, "waiting": {"per_key": 50}, "rules": [
    {"name": "r", "key": ["client_ip"], "action": {"delay": {"max": "5s"}},
     "quotas": [{"limit": 100, "window": "1d", "algorithm": "fixed-window"}],
     "concurrency": {"limit": 2, "max_age": "60s"}}]}"#;

/// Lets the timer fire at its next time; returns how many milliseconds that took.
fn tick(filter: &Filter<Host>, world: &World) -> u32 {
    let ms = world.tick_ms.get();
    assert_ne!(ms, 0, "the timer is stopped while a request waits");
    world.now.set(world.now.get().saturating_add(Span::from_millis(ms.into())));
    filter.on_tick(ROOT);
    ms
}

// Guards: a request that overtakes another one, and a place that stays empty until the next look.
#[test]
fn requests_wait_for_a_place_in_order_and_each_end_gives_one_its_turn() {
    let (filter, world) = with_policy(WAITING.to_owned());
    assert!(passes(&filter, &world, 10) && passes(&filter, &world, 11));
    for id in 12..=17 {
        assert!(!passes(&filter, &world, id));
    }
    assert_eq!(filter.waiting(), 6);
    for (ended, next) in (10..=15).zip(12..=17) {
        filter.on_delete(ended);
        // One that comes now goes behind those that wait.
        let late = 100 + ended;
        assert!(!passes(&filter, &world, late));
        filter.on_delete(late);
        assert_eq!(tick(&filter, &world), 1);
        assert_eq!(world.resumed.borrow().last(), Some(&next));
        assert_eq!(filter.waiting(), usize::try_from(17 - next).unwrap());
    }
    assert_eq!(*world.resumed.borrow(), (12..=17).collect::<Vec<_>>());
    assert!(world.refused.borrow().is_empty());
    filter.on_delete(16);
    filter.on_delete(17);
    assert!(passes(&filter, &world, 20) && passes(&filter, &world, 21));
    assert!(!passes(&filter, &world, 22));
}

// Guards: quotas that are charged for a request that waits, leaves, or waits in vain.
#[test]
fn a_request_that_waits_has_charged_nothing() {
    let (filter, world) = with_policy(WAITING.replace("\"limit\": 100", "\"limit\": 6"));
    assert!(passes(&filter, &world, 10) && passes(&filter, &world, 11));
    for id in 12..=15 {
        assert!(!passes(&filter, &world, id));
    }
    filter.on_delete(12); // its client leaves
    filter.on_delete(13);
    filter.on_delete(10);
    tick(&filter, &world);
    filter.on_delete(11);
    tick(&filter, &world);
    assert_eq!(*world.resumed.borrow(), [14, 15]);
    filter.on_delete(14);
    filter.on_delete(15);
    assert!(passes(&filter, &world, 16) && passes(&filter, &world, 17), "four are charged");
    filter.on_delete(16);
    assert!(!passes(&filter, &world, 18));
    assert_eq!(*world.refused.borrow(), [429], "and then six");
}

#[test]
fn a_request_waits_no_longer_than_its_rule_allows() {
    let (filter, world) = with_policy(WAITING.to_owned());
    assert!(passes(&filter, &world, 10) && passes(&filter, &world, 11));
    let came = world.now.get();
    assert!(!passes(&filter, &world, 12) && !passes(&filter, &world, 13));
    let reads = world.reads.get();
    let mut looks = Vec::new();
    while filter.waiting() > 0 {
        looks.push(tick(&filter, &world));
    }
    assert_eq!(world.now.get().since(came), Span::from_secs(5));
    assert_eq!(*world.refused.borrow(), [429, 429]);
    assert_eq!(looks[..4], [100, 200, 400, 400], "less and less often");
    let looks = u64::try_from(looks.len()).unwrap();
    assert!(world.reads.get() - reads <= looks + 2, "only the first of the line looks");
    // No place was taken, and none is waited for any more.
    filter.on_delete(10);
    assert!(passes(&filter, &world, 14) && !passes(&filter, &world, 15));
}

#[test]
fn a_place_that_ends_in_another_worker_is_found_by_the_next_look() {
    let (one, world) = with_policy(WAITING.to_owned());
    let two = worker(&world);
    assert!(passes(&two, &world, 10) && passes(&two, &world, 11));
    assert!(!passes(&one, &world, 12) && !passes(&one, &world, 13));
    world.tick_ms.set(100);
    two.on_delete(10);
    tick(&one, &world);
    assert_eq!(*world.resumed.borrow(), [12]);
    two.on_delete(11);
    world.tick_ms.set(100);
    tick(&one, &world);
    assert_eq!(*world.resumed.borrow(), [12, 13]);
}

#[test]
fn a_line_that_is_full_denies_and_the_rest_wait() {
    let (filter, world) = with_policy(WAITING.to_owned());
    let passed = (10..70).filter(|id| passes(&filter, &world, *id)).count();
    assert_eq!((passed, filter.waiting()), (2, 50));
    assert_eq!(*world.refused.borrow(), [429; 8]);
}
