//! Repeated denials: the numbers in the authority's response, less the time since.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use super::super::last_answer::{DirectAnswer, LastAnswer};
use super::super::node::Holding;
use super::limiter;
use crate::stored_set::{StoredQuota, StoredSet};
use tollgate_core::Algorithm;

/// 10 in 10 s, which denies, and 100 per hour, of which 40 are left.
fn quotas() -> Vec<StoredQuota> {
    let of = |name, algorithm, limit, seconds| (name, limiter(algorithm, limit, seconds));
    let quotas = [of(1, Algorithm::Gcra, 10, 10), of(2, Algorithm::FixedWindow, 100, 3_600)];
    StoredSet::new((1, 1, 1), quotas).quotas().to_vec()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

fn denial(retry_ms: Option<u64>) -> [Decision; 2] {
    let ms = Span::from_millis;
    let decision = |verdict, limit, remaining, retry_after, reset_after| Decision {
        verdict,
        limit,
        remaining,
        retry_after,
        reset_after,
    };
    let retry_after = retry_ms.map(ms);
    [
        decision(Verdict::Deny, 10, 0, retry_after, ms(9_700)),
        decision(Verdict::Allow, 100, 40, None, ms(5_000)),
    ]
}

/// The verdict, the remaining units, the wait and the time to the reset of each, in milliseconds.
fn shown(decisions: &[Decision]) -> Vec<(bool, u64, Option<u64>, u64)> {
    let ms = |span: Span| span.as_millis_ceil();
    let shown = |it: &Decision| {
        (it.is_admitted(), it.remaining, it.retry_after.map(ms), ms(it.reset_after))
    };
    decisions.iter().map(shown).collect()
}

#[test]
fn only_what_denied_denies_and_its_wait_gets_shorter() {
    let (answer, quotas) = (LastAnswer::new(at(0), 1, &denial(Some(700))), quotas());
    let repeat = |millis: u64, cost: u64| {
        let rest = Some(Span::from_millis(1_000 - millis));
        shown(&answer.repeat(&quotas, cost, at(millis), rest))
    };
    assert_eq!(repeat(0, 1), [(false, 0, Some(700), 9_700), (true, 40, None, 5_000)]);
    assert_eq!(repeat(600, 1), [(false, 0, Some(100), 9_100), (true, 40, None, 4_400)]);
    // The wait is over, and the node does not ask yet: only this quota denies, for the rest of that
    // time.
    assert_eq!(repeat(800, 1), [(false, 0, Some(200), 8_900), (true, 40, None, 4_200)]);
    // When it is no longer denied, it has as many units as the request waited for.
    let free = shown(&answer.repeat(&quotas, 1, at(800), None));
    assert_eq!(free, [(true, 1, None, 8_900), (true, 40, None, 4_200)]);
}

// Guards: a denial between two lease requests that names a quota with units left.
#[test]
fn a_denial_without_a_denying_quota_is_of_the_one_with_the_least_left() {
    let mut decisions = denial(None);
    decisions[0] = Decision { verdict: Verdict::Allow, retry_after: None, ..decisions[0] };
    let (answer, quotas) = (LastAnswer::new(at(0), 1, &decisions), quotas());
    let shown = shown(&answer.repeat(&quotas, 1, at(100), Some(Span::from_millis(30))));
    assert_eq!((shown[0].0, shown[1].0), (false, true), "{shown:?}");
}

// Guards: a client that gets a wait of a second for a cost that can never be allowed.
#[test]
fn a_cost_that_never_fits_has_no_wait() {
    let (quotas, rest) = (quotas(), Some(Span::from_millis(400)));
    let answer = LastAnswer::new(at(0), 11, &denial(None));
    let never = shown(&answer.repeat(&quotas, 11, at(600), rest));
    assert_eq!(never, [(false, 0, None, 9_100), (true, 40, None, 4_400)]);
    // The response for a lower cost does not hide it, nor does a quota with fewer units left.
    let answer = LastAnswer::new(at(0), 1, &denial(Some(700)));
    let never = shown(&answer.repeat(&quotas, 50, at(600), rest));
    assert_eq!(never, [(false, 0, None, 9_100), (false, 40, Some(4_400), 4_400)]);
    // Five need four seconds more than one.
    let more = shown(&answer.repeat(&quotas, 5, at(600), rest));
    assert_eq!(more[0].2, Some(13_100), "9.7 s after the answer one has grown back");
    assert_eq!(more[1], (true, 40, None, 4_400));
}

#[test]
fn what_is_remembered_is_read_back_and_damage_is_not() {
    let mut holding = Holding::default();
    let (set, cost, decisions) = (9, 1, denial(Some(700)).to_vec());
    let answer = DirectAnswer { set, cost, decisions, is_of_denied: true };
    holding.remember(at(0), &answer);
    let mut bytes = vec![];
    holding.encode(&mut bytes);
    assert_eq!(Holding::decode(&bytes).as_ref(), Some(&holding));
    for cut in 0..bytes.len() {
        assert_eq!(Holding::decode(&bytes[..cut]), None);
    }
    assert!(holding.last(at(1_000)).is_some() && holding.last(at(1_001)).is_none());
    assert_eq!(holding.denied_for(at(600), 1), Some(Span::from_millis(100)));
}
