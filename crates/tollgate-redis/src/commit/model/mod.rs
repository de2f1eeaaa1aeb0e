//! The model: servers, a network that loses, delays, repeats and reorders, and an engine that
//! forgets its script, fails over, loses acknowledged writes and has another clock on every node.
//!
//! Guards: every acknowledged answer is the core's decision in the order of the commits; each wrong
//! variant of `mutation` is found.

mod history;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate_core::Algorithm;
use tollgate_test_support::Random;

use crate::commit::mutation::{Mutation, activate};
use history::Sums;
use world::{Faults, World};

/// Schedules per algorithm and kind of fault.
const SCHEDULES: u64 = if cfg!(debug_assertions) { 20 } else { 1_000 };

const ALGORITHMS: [&str; 7] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];

fn run(algorithm: &str, faults: Faults, seed: u64) -> Sums {
    let mut random = Random::new(seed ^ (algorithm.len() as u64) << 32);
    let mut world = World::new(algorithm, faults, &mut random);
    world.run(&mut random);
    history::check(&world)
}

fn run_all(faults: Faults) -> Sums {
    let mut sums = Sums::default();
    for algorithm in ALGORITHMS {
        for seed in 0..SCHEDULES {
            let checked = catch_unwind(AssertUnwindSafe(|| run(algorithm, faults, seed)));
            match checked {
                Ok(run) => sums.add(&run),
                Err(_) => panic!("{algorithm} {faults:?} seed {seed}"),
            }
        }
    }
    println!("{faults:?}: {sums:?}");
    sums
}

#[test]
fn contention_alone_fails_no_request() {
    let sums = run_all(Faults::None);
    assert_eq!((sums.failed, sums.overloaded, sums.lost, sums.charged_twice), (0, 0, 0, 0));
    assert!(sums.admitted > 0 && sums.denied > 0 && sums.mismatches > 0 && sums.given_back > 0);
}

#[test]
fn a_failing_network_costs_charges_and_allows_nothing_more() {
    let sums = run_all(Faults::Network);
    assert_eq!(sums.lost, 0);
    assert!(sums.failed > 0 && sums.unknown > 0 && sums.found_done > 0 && sums.charged_twice > 0);
}

#[test]
fn a_call_that_is_applied_twice_charges_at_most_one_more_time() {
    let sums = run_all(Faults::Repeats);
    assert_eq!(sums.lost, 0);
    assert!(sums.charged_twice > 0 && sums.found_done > 0);
}

#[test]
fn charges_that_a_failover_loses_are_listed_separately() {
    let sums = run_all(Faults::Failover);
    assert!(sums.lost > 0 && sums.admitted > sums.lost);
}

#[test]
fn engine_nodes_an_hour_apart_decide_by_the_clock_of_the_called_node() {
    let sums = run_all(Faults::HourApart);
    assert!(sums.clocks_set > 0 && sums.admitted > 0);
}

#[test]
fn each_wrong_variant_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = Mutation::ALL.map(|mutation| {
        activate(Some(mutation));
        let faults = [Faults::None, Faults::Network, Faults::Failover, Faults::HourApart];
        let is_found = faults.into_iter().any(|faults| {
            (0..400)
                .any(|seed| catch_unwind(AssertUnwindSafe(|| run("gcra", faults, seed))).is_err())
        });
        activate(None);
        (mutation, is_found)
    });
    std::panic::set_hook(hook);
    assert_eq!(found.map(|(mutation, _)| (mutation, true)), found);
}

#[test]
fn the_algorithms_are_all_but_the_queue() {
    assert_eq!(ALGORITHMS.len() + 1, Algorithm::ALL.len());
}
