//! Every documented bound is reached by some trace, and exceeded by none that is tried.
//!
//! Guards: `Limiter::max_in_window`, which `tollgate check` prints as the worst case of a policy,
//! and the table of bounds in docs/policy/quotas.md.

use tollgate_accuracy::adversary::Goal;
use tollgate_accuracy::bounds::{BoundSearch, Depth, climbed, exhaustive};
use tollgate_core::Algorithm;

fn assert_met(all: &[BoundSearch]) {
    for algorithm in Algorithm::ALL {
        assert!(all.iter().any(|one| one.subject.limiter.algorithm().name() == algorithm.name()));
    }
    for BoundSearch { subject, goal, bound, .. } in all {
        if *goal == Goal::Admissions {
            assert_eq!(subject.limiter.max_in_window(), *bound, "{}", subject.name);
        }
    }
    let wrong: Vec<String> = all.iter().filter(|one| !one.is_met()).map(told).collect();
    assert!(wrong.is_empty(), "found other than the bound:\n{}", wrong.join("\n"));
}

fn told(one: &BoundSearch) -> String {
    let limit = one.subject.limiter.limit();
    let BoundSearch { subject, goal, bound, attack, .. } = one;
    format!("{} at limit {limit}, {goal:?}: bound {bound}, found {attack:?}", subject.name)
}

#[test]
fn of_all_that_can_be_sent_the_best_is_the_bound() {
    assert_met(&exhaustive(Depth::Quick));
}

#[test]
fn climbing_finds_the_bound_of_sixty_a_minute() {
    assert_met(&climbed(Depth::Quick));
}
