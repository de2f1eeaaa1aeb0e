//! Small tests of a node: when it spends, asks, waits and gives back.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use super::super::account::{LeaseReport, NoLease};
use super::super::ask::{LeaseAsk, LeaseGrant};
use super::super::node::{Holding, Taken};

const TIMES: (Span, Span) = (Span::from_secs(8), Span::from_millis(250));

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

fn units(units: u64) -> LeaseGrant {
    LeaseGrant { units, life: Span::from_secs(8) }
}

/// A node with this many requests in the last second, which asks under number 1 at 0.
fn asking(requests: u64) -> (Holding, LeaseAsk) {
    let mut holding = Holding::default();
    for _ in 0..requests {
        assert_eq!(holding.take(at(0), 1), Taken::Ask);
    }
    let ask = holding.ask(9, 1, 1, at(0), TIMES);
    (holding, ask)
}

fn reports(holding: &mut Holding, number: u64, millis: u64) -> Vec<(u64, u64, bool)> {
    let ask = holding.ask(9, number, 0, at(millis), TIMES);
    ask.reports.iter().map(|it| (it.number, it.spent, it.is_final)).collect()
}

#[test]
fn a_life_is_counted_from_the_question_and_ends_early() {
    let (mut holding, ask) = asking(10);
    assert_eq!((ask.want, ask.least), (80, 1), "ten a second for eight seconds");
    assert_eq!(holding.take(at(100), 1), Taken::Wait(at(250)), "another request is in flight");
    holding.answer(1, Ok(units(40)), at(200));
    let Taken::Spent { left, rest, .. } = holding.take(at(200), 1) else { panic!() };
    // 8 s after its request, less 0.1 %, of which 200 ms have passed.
    assert_eq!((left, rest), (39, Span::from_millis(7_792)));
    // The remaining units are given back an eighth of the lease's life before its end.
    assert!(matches!(holding.take(at(6_992), 1), Taken::Spent { .. }));
    assert!(!matches!(holding.take(at(6_993), 1), Taken::Spent { .. }));
    assert!(holding.is_due(at(6_993)));
    assert_eq!(reports(&mut holding, 2, 6_993), [(1, 2, true)]);
}

#[test]
fn a_node_with_few_requests_asks_for_each() {
    let (_, ask) = asking(1);
    assert_eq!(ask.want, 8, "one in a second is eight in a life of eight");
    let mut holding = Holding::default();
    assert_eq!(holding.take(at(0), 1), Taken::Ask);
    let ask = holding.ask(9, 1, 1, at(0), (Span::from_secs(2), TIMES.1));
    assert_eq!((ask.want, ask.reports), (0, vec![]));
    assert_eq!(holding.take(at(1), 1), Taken::Ask, "no request waits for the other");
    assert!(holding.is_idle());
}

#[test]
fn what_nobody_answered_is_given_back_and_not_believed() {
    let (mut holding, _) = asking(10);
    assert_eq!(holding.take(at(249), 1), Taken::Wait(at(250)));
    assert_eq!(holding.take(at(250), 1), Taken::Ask);
    assert_eq!(reports(&mut holding, 2, 250), [(1, 0, true)]);
    holding.answer(1, Ok(units(40)), at(251));
    assert_eq!(holding.left(), 0);
    // It is repeated until a request that contained it has a response.
    holding.fail(2);
    assert_eq!(reports(&mut holding, 3, 252), [(1, 0, true), (2, 0, true)]);
    holding.answer(3, Err(NoLease::NearLimit), at(253));
    assert_eq!(reports(&mut holding, 4, 254), []);
}

#[test]
fn a_denial_is_remembered_for_a_second_at_the_most() {
    let (mut holding, _) = asking(1);
    holding.answer(1, Err(NoLease::NearLimit), at(10));
    holding.deny(at(10), 3, Some(Span::from_secs(60)));
    assert_eq!(holding.take(at(20), 3), Taken::Denied(Span::from_millis(990)));
    assert_eq!(holding.take(at(20), 4), Taken::Denied(Span::from_millis(990)));
    assert_eq!(holding.take(at(20), 2), Taken::Ask, "a lower cost may fit");
    assert_eq!(holding.take(at(1_010), 3), Taken::Ask);
    holding.deny(at(1_010), 1, Some(Span::from_millis(5)));
    assert_eq!(holding.take(at(1_015), 1), Taken::Ask);
}

#[test]
fn what_another_rule_refuses_goes_back_into_the_same_lease() {
    let (mut holding, _) = asking(10);
    holding.answer(1, Ok(units(4)), at(2));
    let Taken::Spent { number, left, .. } = holding.take(at(3), 3) else { panic!() };
    assert_eq!(left, 1);
    assert!(holding.put_back(at(4), number, 3));
    assert_eq!(holding.left(), 4);
    let Taken::Spent { number, .. } = holding.take(at(5), 3) else { panic!() };
    // For a large cost the remaining units are given back, in the same request.
    assert_eq!(holding.take(at(6), 50), Taken::Ask);
    assert_eq!(reports(&mut holding, 2, 6), [(1, 3, true)]);
    assert!(!holding.put_back(at(7), number, 3), "it is over: the units are lost");
}

#[test]
fn more_is_asked_for_in_advance_and_spent_after() {
    let (mut holding, _) = asking(10);
    holding.answer(1, Ok(units(4)), at(2));
    let mut bytes = vec![];
    holding.encode(&mut bytes);
    assert_eq!(Holding::decode(&bytes), Some(holding.clone()));
    for cut in 0..bytes.len() {
        assert_eq!(Holding::decode(&bytes[..cut]), None);
    }
    assert!(!holding.is_due(at(3)));
    for _ in 0..3 {
        assert!(matches!(holding.take(at(3), 1), Taken::Spent { number: 1, .. }));
    }
    assert!(holding.is_due(at(4)), "a quarter is left");
    let ask = holding.ask(9, 2, 1, at(4), TIMES);
    let running = LeaseReport { number: 1, spent: 3, is_final: false };
    assert_eq!((ask.want > 0, ask.reports), (true, vec![running]));
    assert!(!holding.is_due(at(5)), "it is under way");
    holding.answer(2, Ok(units(4)), at(6));
    assert!(matches!(holding.take(at(7), 1), Taken::Spent { number: 1, left: 4, .. }));
    assert!(matches!(holding.take(at(8), 1), Taken::Spent { number: 2, left: 3, .. }));
    // A node that stops gives everything back.
    holding.close();
    assert_eq!(reports(&mut holding, 3, 9), [(1, 4, true), (2, 1, true)]);
}
