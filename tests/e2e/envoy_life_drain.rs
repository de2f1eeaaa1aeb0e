//! Requests wait while their listener, their filter or its code is replaced, removed or drained.
//! Each gets its turn as if nothing had happened. A request that waits longer than Envoy drains is
//! ended and returns its units.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::crowd::{End, gather};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_life::{By, Life, PATIENCE, counted, crowd, filter, passed_and_lost, with_code};
use crate::envoy_life_module::that_is_other_code;

const COUNT: usize = 24;
/// Between two turns.
const STEP: Duration = Duration::from_millis(100);

/// A queue of ten per second.
fn rules(burst: usize) -> Vec<Value> {
    vec![json!({
        "name": "line", "when": {"paths": ["/wait"]}, "key": [],
        "quotas": [{"limit": 10, "window": "1s", "burst": burst, "algorithm": "leaky-queue"}],
        "action": {"delay": {"max": "60s"}},
    })]
}

fn waiting(life: &Life) -> u64 {
    life.envoy.stat("wasmcustom.tollgate.waiting")
}

/// Requests wait while `act` is done, and `later` more come after it. Returns how all of them
/// ended, from a round in which some requests still waited when `act` was done.
fn while_they_wait(
    life: &mut Life,
    [early, later]: [usize; 2],
    mut act: impl FnMut(&mut Life),
) -> Vec<End> {
    // On a slow machine no request may still wait when it is done: repeat with a longer queue.
    for count in (1..=5).map(|round| round * early) {
        let port = life.envoy.ports[0];
        // Places may be left from the round before, and pass unused.
        assert_eq!(Client::connect(port).send(&Request::get("/wait")).status, 200);
        life.envoy.counted();
        let (started, before) = (Instant::now(), counted(&life.envoy, "line"));
        let (ends, left) = thread::scope(|scope| {
            let early = scope.spawn(move || gather(port, crowd("/wait", count), PATIENCE));
            // All must have arrived, also those that would find the listener closed.
            process::wait_until("all have come", PATIENCE, || {
                (counted(&life.envoy, "line") == before + count).then_some(())
            });
            act(life);
            let left = waiting(life);
            let late = scope.spawn(move || gather(port, crowd("/wait", later), PATIENCE));
            let ends = [early.join().expect("a crowd"), late.join().expect("a crowd")].concat();
            (ends, left)
        });
        let turns = u32::try_from(ends.iter().filter(|end| **end == End::Answer(200)).count());
        let least = STEP * turns.expect("few").saturating_sub(1);
        assert!(started.elapsed() >= least, "faster than the queue: {:?}", started.elapsed());
        process::wait_until("nobody waits", PATIENCE, || (waiting(life) == 0).then_some(()));
        if left > 0 || Client::try_connect(port).is_err() {
            return ends;
        }
    }
    panic!("nobody waited any more when it was done");
}

fn assert_all_pass(ends: &[End], what: &str) {
    assert!(ends.iter().all(|end| *end == End::Answer(200)), "{what}: {ends:?}");
}

fn assert_nothing_is_lost(life: &Life) {
    for name in ["waiting_left", "waiting_full", "places_unused", "failures"] {
        assert_eq!(life.envoy.stat(&format!("wasmcustom.tollgate.{name}")), 0, "{name}");
    }
    assert!(!life.envoy.server.log().contains("Function: proxy_on"), "{}", life.envoy.server.log());
}

fn changes(by: By) -> Life {
    let mut life = Life::start(by, &filter(&rules(200), 0), 3_600);
    let other = life.file("other.wasm", &that_is_other_code());
    let ends =
        while_they_wait(&mut life, [COUNT, 5], |life| assert!(life.put(&filter(&rules(201), 1))));
    assert_all_pass(&ends, "another policy");
    let mut number = 1;
    let ends = while_they_wait(&mut life, [COUNT, 5], |life| {
        number += 1;
        assert!(life.put(&with_code(filter(&rules(201), number), &other)));
    });
    assert_all_pass(&ends, "other code");
    let ends = while_they_wait(&mut life, [COUNT, 5], |life| {
        // Another number each time: Envoy would count the same invalid extension as accepted.
        number += 1;
        assert!(!life.put(&filter(&rules(0), number)));
    });
    assert_all_pass(&ends, "a bad update");
    life
}

// Guards: requests that wait in a listener that is replaced, in a machine that is replaced (the
// code), or before an invalid update, and are lost, released together with those of the new one
// faster than the queue, or denied; and the same when the listener is removed.
#[test]
fn who_waits_has_its_turn_when_the_listener_is_replaced_or_taken_away() {
    let mut life = changes(By::Listeners);
    let ends = while_they_wait(&mut life, [COUNT, 0], |life| life.remove(&filter(&rules(201), 9)));
    assert_all_pass(&ends, "the listener is taken away");
    assert_nothing_is_lost(&life);
}

// The same without another listener: the requests wait in a filter that is no longer configured.
#[test]
fn who_waits_has_its_turn_when_the_extension_is_replaced() {
    assert_nothing_is_lost(&changes(By::Extension));
}

fn post(life: &Life, path: &str) {
    let answer = Client::connect(life.envoy.admin).send(&Request::post(path, ""));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

// Guards: requests that wait while an operator drains before the end, as container platforms do.
#[test]
fn who_waits_has_its_turn_when_an_operator_drains() {
    let mut life = Life::start(By::Listeners, &filter(&rules(200), 0), 3_600);
    let ends =
        while_they_wait(&mut life, [COUNT, 5], |life| post(life, "/drain_listeners?graceful"));
    assert_all_pass(&ends, "drained gracefully");
    let ends = while_they_wait(&mut life, [COUNT, 0], |life| post(life, "/drain_listeners"));
    assert_all_pass(&ends, "drained at once");
    assert_nothing_is_lost(&life);
}

// Guards: a wait longer than the drain that hangs, or that keeps its place after its connection is
// closed.
#[test]
fn who_waits_longer_than_the_drain_is_ended_and_counted() {
    let mut life = Life::start(By::Listeners, &filter(&rules(200), 0), 1);
    // The last of them would wait ten seconds.
    let mut number = 0;
    let ends = while_they_wait(&mut life, [100, 0], |life| {
        number += 1;
        assert!(life.put(&filter(&rules(200), number)));
    });
    let (passed, lost) = passed_and_lost(&ends);
    println!("replaced, drained for 1 s: {passed} of 100 passed, {lost} were closed");
    assert!(passed > 0 && lost > 0, "{ends:?}");
    // Also those of a round that was repeated.
    assert!(life.envoy.stat("wasmcustom.tollgate.waiting_left") >= lost as u64);
    assert!(!life.envoy.server.log().contains("Function: proxy_on"), "{}", life.envoy.server.log());
}
