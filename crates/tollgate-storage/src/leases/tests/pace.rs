//! Small tests of how often a node asks under overload.

use alloc::vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};

use super::super::account::NoLease;
use super::super::ask::LeaseGrant;
use super::super::node::{Holding, Taken};
use super::super::paces::Paces;
use super::limiter;

const LIFE: Span = Span::from_secs(2);
const TIMES: (Span, Span) = (LIFE, Span::from_millis(250));

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

/// A node with a quota of this many in 10 s that asks for the cost of one request at 0, after 50
/// more.
fn asking(limit: u64) -> Holding {
    let mut holding = Holding::default();
    holding.know(Paces::of([limiter(Algorithm::Gcra, limit, 10)].iter()));
    assert_eq!(holding.take(at(0), 1), Taken::Ask);
    holding.demand.now = 50;
    holding.ask(9, 1, 1, at(0), TIMES);
    holding
}

/// The same, denied at 0: the authority's response has a wait of 10 ms.
fn denied(limit: u64) -> Holding {
    let mut holding = asking(limit);
    holding.answer(1, Err(NoLease::Refused), at(0));
    holding.hear_denial(at(0), 1, Some(Span::from_millis(10)));
    holding
}

fn rest(holding: &Holding, millis: u64) -> Option<u64> {
    holding.denied_for(at(millis), 1).map(Span::as_millis_ceil)
}

#[test]
fn a_denied_node_asks_again_when_ten_units_have_grown_back() {
    // 13 of 1,000 in 10 s take 130 ms; of 60 in 10 s two seconds, of which one is waited.
    assert_eq!(rest(&denied(1_000), 0), Some(130));
    assert_eq!(rest(&denied(60), 0), Some(1_000));
    assert_eq!(rest(&denied(59), 0), Some(10), "three nodes have no room in so small a burst");
    let mut holding = denied(1_000);
    assert!(matches!(holding.take(at(129), 1), Taken::Denied(_)));
    assert_eq!(holding.take(at(130), 1), Taken::Ask);
    // One asks for all.
    let ask = holding.ask(9, 2, 1, at(130), TIMES);
    assert!(ask.want > 0);
    assert_eq!(holding.take(at(131), 1), Taken::Wait(at(380)));
    // Denied again, it waits longer, but at most a second.
    holding.answer(2, Err(NoLease::Refused), at(132));
    for wait in [260, 520, 1_000, 1_000] {
        holding.back_off(at(200), 1);
        assert_eq!(rest(&holding, 200), Some(wait));
    }
    // The share of the burst of a node with little demand has no room for ten units.
    let mut holding = asking(1_000);
    holding.demand.now = 1;
    holding.hear_denial(at(0), 1, Some(Span::from_millis(10)));
    assert_eq!((rest(&holding, 0), holding.is_paced()), (Some(10), false));
}

#[test]
fn the_interval_follows_what_an_answer_is_worth() {
    let answered = |leased| {
        let mut holding = denied(1_000);
        assert_eq!(holding.take(at(130), 1), Taken::Ask);
        assert_eq!(holding.ask(9, 2, 1, at(130), TIMES).want, 102);
        holding.answer(2, leased, at(132));
        holding
    };
    let units = |units| Ok(LeaseGrant { units, life: LIFE });
    // Half of the way to an interval worth 13, including the request that asked, from the time of
    // that request.
    for (leased, wait) in
        [(Err(NoLease::NearLimit), 277), (units(5), 206), (units(12), 130), (units(25), 98)]
    {
        assert_eq!(rest(&answered(leased), 130), Some(wait), "{leased:?}");
    }
    // Everything that was wanted: nothing is scarce.
    assert_eq!(rest(&answered(units(102)), 130), None);
    // The held units are spent before anything is denied.
    let mut holding = answered(units(5));
    for _ in 0..5 {
        assert!(matches!(holding.take(at(140), 1), Taken::Spent { .. }));
    }
    assert!(!holding.is_due(at(140)), "nor is it asked for in advance");
    assert!(matches!(holding.take(at(140), 1), Taken::Denied(_)));
    // When few units are left for another reason, every request asks.
    for why in [NoLease::Unsteady, NoLease::Awaited, NoLease::TooMany, NoLease::Unleasable] {
        assert_eq!(answered(Err(why)).take(at(133), 1), Taken::Ask, "{why:?}");
    }
}

#[test]
fn next_to_nothing_left_of_a_large_limit_begins_it_and_of_a_small_one_does_not() {
    for (limit, left, is_begun) in [(1_000, 12, true), (1_000, 13, false), (990, 0, false)] {
        let mut holding = asking(limit);
        holding.hear_left(at(2), 1, left);
        assert_eq!(holding.is_paced(), is_begun, "{limit} {left}");
    }
}

// Guards: a node that denies while the burst fills up.
#[test]
fn nothing_is_denied_while_plenty_is_left() {
    for (left, wait) in [(399, Some(130)), (400, None)] {
        let mut holding = denied(1_000);
        holding.hear_left(at(0), 1, left);
        assert_eq!(rest(&holding, 0), wait, "{left}");
    }
}

// Guards: intervals of twelve nodes that share a burst of 60, where a third was denied.
#[test]
fn a_lease_shows_that_a_burst_is_too_small_for_so_many_nodes() {
    let quota = Quota::new(1_000, Span::from_secs(10)).unwrap().with_burst(60).unwrap();
    let limiter = Limiter::new(Algorithm::Gcra, quota).unwrap();
    // The lease that the authority grants from `left` when this many nodes hold units.
    let is_crowded = |nodes: u64, left: u64| {
        let mut holding = denied(1_000);
        holding.know(Paces::of([limiter].iter()));
        holding.take(at(130), 1);
        holding.ask(9, 2, 1, at(130), TIMES);
        let units = (left * 2 / (nodes + 1).max(4)).min(40 / nodes);
        if units > 0 {
            holding.answer(2, Ok(LeaseGrant { units, life: LIFE }), at(132));
        }
        holding.hear_left(at(132), 1, left);
        let is_crowded = holding.unpaced_until == at(10_132);
        assert!(!is_crowded || !holding.is_paced());
        is_crowded
    };
    for left in 0..=60 {
        assert!((1..=3).all(|nodes| !is_crowded(nodes, left)), "{left}");
    }
    assert!(is_crowded(6, 20) && is_crowded(12, 20));
    // Ten seconds later intervals are tried again.
    let mut holding = asking(1_000);
    holding.unpaced_until = at(10);
    for (now, is_paced) in [(9, false), (10, true)] {
        holding.hear_denial(at(now), 1, None);
        assert_eq!(holding.is_paced(), is_paced);
    }
}

#[test]
fn a_lease_that_is_used_up_is_reported_with_the_next_question_or_a_little_later() {
    // A lease that another request needs is closed at that time.
    let mut holding = asking(1_000);
    holding.answer(1, Ok(LeaseGrant { units: 1, life: LIFE }), at(2));
    assert!(matches!(holding.take(at(10), 1), Taken::Spent { .. }));
    assert_eq!(holding.take(at(10), 1), Taken::Ask);
    assert_eq!((holding.is_due(at(1_009)), holding.is_due(at(1_010))), (false, true));
    assert_eq!(holding.due_at(), Some(at(1_010)));
    // The remaining units are given back at once.
    let mut holding = asking(1_000);
    holding.answer(1, Ok(LeaseGrant { units: 2, life: LIFE }), at(2));
    assert!(matches!(holding.take(at(10), 1), Taken::Spent { .. }));
    assert_eq!(holding.take(at(10), 2), Taken::Ask);
    assert!(holding.is_due(at(10)));
}

#[test]
fn it_ends_when_nobody_asks_for_a_second() {
    let mut holding = denied(1_000);
    assert_eq!(holding.take(at(1_130), 1), Taken::Ask);
    assert!(holding.is_paced());
    let mut holding = denied(1_000);
    assert_eq!(holding.take(at(1_131), 1), Taken::Ask);
    assert!(!holding.is_paced());
}

// Guards: an interval in which a burst becomes full.
#[test]
fn an_interval_is_no_longer_than_a_quota_bears() {
    let paces = |algorithm| Paces::of([limiter(algorithm, 100, 1)].iter());
    for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        assert_eq!(paces(algorithm).longest().as_millis_ceil(), 500, "{algorithm:?}");
    }
    // Units of a window that are denied or reported late are lost.
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        assert_eq!(paces(algorithm), Paces::default(), "{algorithm:?}");
    }
    let both = [limiter(Algorithm::Gcra, 100, 1), limiter(Algorithm::FixedWindow, 100, 1)];
    assert_eq!(Paces::of(both.iter()), Paces::default());
}

#[test]
fn it_is_read_as_it_is_written() {
    let mut holding = denied(1_000);
    (holding.unpaced_until, holding.report_at) = (at(7), at(8));
    let mut bytes = vec![];
    holding.encode(&mut bytes);
    assert_eq!(Holding::decode(&bytes), Some(holding));
}
