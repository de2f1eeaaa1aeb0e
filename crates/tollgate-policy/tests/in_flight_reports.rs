//! Requests in flight whose caller reports that they run, or have ended: repeated, in any order,
//! with the receipt of the charge or of any confirmation, across changes of the limit.

use crate::support::*;
use tollgate_core::Timestamp;
use tollgate_policy::{Denials, Disposition, GivenKey, Plan, Policy, Surface};
use tollgate_storage::{
    Counts, InFlightReport, KeyOperation, KeyState, MAX_RELEASED, WireError, max_age_of,
};

const START: u64 = 1_780_000_000_000;
const STEPS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
/// The `max_age` of the limits, in milliseconds.
const AGE: u64 = 60_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn policy(limit: u64) -> Policy {
    let rules = format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"],
            "concurrency": {{"limit": {limit}, "max_age": "60s"}}}}]}}"#
    );
    let mut policy =
        tollgate_language::compile(&rules, Surface::Library).unwrap_or_else(|e| panic!("{e}"));
    policy.set_version(1);
    policy
}

/// The receipt of a request, if it was allowed.
fn check(counts: &mut Counts, policy: &Policy, ms: u64) -> Option<Vec<u8>> {
    let (plan, request, reply) = charge(counts, policy, ms);
    let mut receipt = Vec::new();
    let is_charged = plan.partition(0).unwrap().write_in_flight(policy, &mut receipt);
    let is_allowed = plan.outcome(policy).disposition() == Disposition::Allow;
    assert_eq!((is_charged, receipt.is_empty()), (is_allowed, !is_allowed));
    assert!(!Counts::gives_back(&request) && !reply.is_empty());
    is_charged.then_some(receipt)
}

fn charge(counts: &mut Counts, policy: &Policy, ms: u64) -> (Plan, Vec<u8>, Vec<u8>) {
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    let mut request = Vec::new();
    plan.partition(0).unwrap().request(policy, &mut request);
    let reply = counts.answer(&request, at(ms)).unwrap().reply;
    plan.partition_mut(0).unwrap().accept(policy, &reply).unwrap();
    (plan, request, reply)
}

/// The receipt after a report, and whether the count changed; stored and read in between.
fn report(
    counts: &mut Counts,
    report: InFlightReport,
    (number, receipt): (u64, &[u8]),
    ms: u64,
) -> (Vec<u8>, bool) {
    let request = report.request(number, receipt);
    let answered = counts.report_in_flight(&request, at(ms)).unwrap();
    let mut row = Vec::new();
    counts.encode(at(ms), &mut row);
    *counts = Counts::decode(&row).unwrap();
    (InFlightReport::read(&answered.reply).unwrap().to_vec(), answered.is_changed)
}

fn renew(counts: &mut Counts, number: u64, receipt: &[u8], ms: u64) -> Vec<u8> {
    report(counts, InFlightReport::Runs, (number, receipt), ms).0
}

fn done(counts: &mut Counts, number: u64, receipt: &[u8], ms: u64) -> bool {
    let (rest, is_changed) = report(counts, InFlightReport::Ended, (number, receipt), ms);
    assert!(rest.is_empty());
    is_changed
}

fn in_flight(counts: &mut Counts, policy: &Policy, ms: u64) -> u64 {
    let key = GivenKey::new(policy, "r", &["192.0.2.1".to_owned()]).unwrap();
    let mut request = Vec::new();
    key.request(policy, KeyOperation::Describe, &mut request);
    let state = KeyState::read(&counts.operate(&request, at(ms)).unwrap().reply).unwrap();
    let set = &policy.quota_sets()[0];
    let limit = set.quotas()[0].limiter().limit();
    state.of(&set.to_stored()).map_or(0, |used| limit - used[0].decision.remaining)
}

fn index(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.below(u64::try_from(len).unwrap())).unwrap()
}

/// A request of the model: its number, and every receipt of it, each with its time.
struct Sent {
    number: u64,
    receipts: Vec<(u64, Vec<u8>)>,
}

impl Sent {
    /// The newest receipt, or any earlier one by which it can still be reported.
    fn receipt(&self, random: &mut Random, ms: u64) -> &[u8] {
        let (newest, _) = self.receipts.last().unwrap();
        let may_be = |at: &u64| at == newest || ms - at < AGE / 4 * 3;
        let usable: Vec<_> = self.receipts.iter().filter(|(at, _)| may_be(at)).collect();
        &random.pick(&usable).1
    }
}

// Guards: an end or a confirmation that is repeated, or comes late, and counts twice; a place that
// is lost when a reply is.
#[test]
fn what_is_counted_is_what_runs() {
    let (mut denied, mut repeated, mut lost) = (0, 0, 0);
    for seed in 0..4 {
        let random = &mut Random::new(seed);
        let (mut counts, mut active, mut limit) = (Counts::default(), policy(10), 10);
        let (mut running, mut ended): (Vec<Sent>, Vec<Sent>) = (Vec::new(), Vec::new());
        let (mut ms, mut number) = (START, 0);
        for _ in 0..STEPS {
            ms += *random.pick(&[0, 0, 1, 100, 1_000, 4_000]);
            // Each is confirmed in time.
            for sent in running.iter_mut().filter(|it| ms - it.receipts.last().unwrap().0 > AGE / 3)
            {
                let newest = sent.receipts.last().unwrap().1.clone();
                sent.receipts.push((ms, renew(&mut counts, sent.number, &newest, ms)));
                assert!(!sent.receipts.last().unwrap().1.is_empty());
            }
            match random.below(6) {
                0 | 1 => match check(&mut counts, &active, ms) {
                    Some(receipt) => {
                        assert!(running.len() < limit);
                        number += 1;
                        running.push(Sent { number, receipts: vec![(ms, receipt)] });
                    }
                    None => {
                        assert!(running.len() >= limit, "{} of {limit}", running.len());
                        denied += 1;
                    }
                },
                2 if !running.is_empty() => {
                    let i = index(random, running.len());
                    let receipt = running[i].receipt(random, ms).to_vec();
                    let next = renew(&mut counts, running[i].number, &receipt, ms);
                    assert_eq!(max_age_of(&next).map(|age| age.as_millis_ceil()), Some(AGE));
                    // A caller that does not get the reply keeps the receipt that it had.
                    if random.one_in(3) {
                        lost += 1;
                    } else {
                        running[i].receipts.push((ms, next));
                    }
                }
                3 if !running.is_empty() => {
                    let sent = running.swap_remove(index(random, running.len()));
                    let receipt = sent.receipt(random, ms).to_vec();
                    assert!(done(&mut counts, sent.number, &receipt, ms));
                    ended.push(sent);
                }
                4 if !ended.is_empty() => {
                    let back = index(random, ended.len().min(MAX_RELEASED));
                    let sent = &ended[ended.len() - 1 - back];
                    let receipt = random.pick(&sent.receipts).1.clone();
                    if random.one_in(2) {
                        done(&mut counts, sent.number, &receipt, ms);
                    } else {
                        let (rest, _) =
                            report(&mut counts, InFlightReport::Runs, (sent.number, &receipt), ms);
                        // After a while without any request its count is gone.
                        assert!(rest.is_empty() || ms - sent.receipts[0].0 > 30_000);
                        if !rest.is_empty() {
                            done(&mut counts, sent.number, &rest, ms);
                        }
                    }
                    repeated += 1;
                }
                5 if random.one_in(20) => {
                    limit = *random.pick(&[3, 10, 20]);
                    active = policy(u64::try_from(limit).unwrap());
                    // The next decision carries what runs to it.
                    if let Some(receipt) = check(&mut counts, &active, ms) {
                        number += 1;
                        running.push(Sent { number, receipts: vec![(ms, receipt)] });
                    }
                }
                _ => {}
            }
            let counted = in_flight(&mut counts, &active, ms);
            assert_eq!(counted, u64::try_from(running.len().min(limit)).unwrap(), "{seed}");
        }
    }
    assert!(denied > 100 && repeated > 1_000 && lost > 100, "{denied} {repeated} {lost}");
}

#[test]
fn one_that_is_not_confirmed_is_counted_no_more() {
    let (active, mut counts) = (policy(2), Counts::default());
    let dead = check(&mut counts, &active, START).unwrap();
    let runs = check(&mut counts, &active, START).unwrap();
    let next = renew(&mut counts, 2, &runs, START + AGE / 3);
    let next = renew(&mut counts, 2, &next, START + AGE / 3 * 2);
    assert!(check(&mut counts, &active, START + AGE / 4 * 3 - 1).is_none());
    let later = START + AGE;
    assert_eq!(in_flight(&mut counts, &active, later), 1);
    assert!(renew(&mut counts, 1, &dead, later).is_empty());
    done(&mut counts, 1, &dead, later);
    assert_eq!(in_flight(&mut counts, &active, later), 1, "its end releases no other");
    assert!(done(&mut counts, 2, &next, later) && !done(&mut counts, 2, &next, later));
    assert_eq!(in_flight(&mut counts, &active, later), 0);
}

// Guards: a count that was evicted or reset, and an end that frees a place of a later request.
#[test]
fn a_lost_count_begins_again_with_what_is_confirmed() {
    let (active, mut counts) = (policy(2), Counts::default());
    let receipts = [1_u64, 2].map(|_| check(&mut counts, &active, START).unwrap());
    counts = Counts::default();
    let other = check(&mut counts, &active, START + 1).unwrap();
    done(&mut counts, 1, &receipts[0], START + 2);
    assert_eq!(in_flight(&mut counts, &active, START + 2), 1, "it is not the later one's");
    let renewed = renew(&mut counts, 2, &receipts[1], START + 3);
    assert_eq!(in_flight(&mut counts, &active, START + 3), 2);
    assert!(done(&mut counts, 2, &renewed, START + 4) && done(&mut counts, 3, &other, START + 4));
    assert_eq!(in_flight(&mut counts, &active, START + 4), 0);
    // Also where nothing is stored.
    counts = Counts::default();
    assert!(!done(&mut counts, 4, &receipts[0], START + 5));
    assert!(!renew(&mut counts, 5, &receipts[0], START + 6).is_empty());
    assert_eq!(in_flight(&mut counts, &active, START + 6), 1);
}

// Guards: the charge of a client that left, or that another key denied, after the limit changed.
#[test]
fn a_refund_ends_it_also_by_another_limit() {
    let (active, other, mut counts) = (policy(1), policy(2), Counts::default());
    let (_, request, reply) = charge(&mut counts, &active, START);
    assert!(check(&mut counts, &other, START + 1).is_some());
    assert!(check(&mut counts, &other, START + 1).is_none());
    assert!(counts.refund(&request, &reply, at(START + 2)).unwrap().is_changed);
    assert_eq!(in_flight(&mut counts, &other, START + 2), 1);
}

#[test]
fn other_bytes_are_no_report() {
    let (active, mut counts) = (policy(1), Counts::default());
    let receipt = check(&mut counts, &active, START).unwrap();
    let good = InFlightReport::Ended.request(7, &receipt);
    let before = counts.clone();
    let mut of_charge = Vec::new();
    let mut plan = Plan::new();
    active.plan(&get("/", "192.0.2.1"), &mut plan);
    plan.partition(0).unwrap().request(&active, &mut of_charge);
    let wrong = [
        good[..good.len() - 1].to_vec(),
        InFlightReport::Ended.request(7, &[]),
        InFlightReport::Ended.request(7, &of_charge),
        InFlightReport::Runs.request(7, &receipt[..receipt.len() - 8]),
        receipt.clone(),
        [&good[..16], &[3], &receipt[..]].concat(),
    ];
    for bytes in wrong {
        let answered = counts.report_in_flight(&bytes, at(START + 1));
        assert_eq!(answered.err().map(|it| it != WireError::Newer(0)), Some(true), "{bytes:?}");
        assert_eq!(counts, before);
    }
    for reply in [&b""[..], &[5], &[0, 1], &[6, 1]] {
        assert!(InFlightReport::read(reply).is_err(), "{reply:?}");
    }
    assert_eq!((InFlightReport::read(&[6]), max_age_of(&[])), (Ok(&[][..]), None));
    assert!(counts.answer(&good, at(START + 1)).is_err(), "no request is a report");
    assert!(Counts::is_in_flight_report(&good) && !Counts::is_in_flight_report(&of_charge));
}

// Guards: reports that are written later than the charge was, or earlier.
#[test]
fn a_report_is_as_durable_as_the_charge() {
    for (durability, is_strict) in [("strict", true), ("relaxed", false)] {
        let rules = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"],
                "durability": "{durability}", "concurrency": {{"limit": 1}}}}]}}"#
        );
        let active = tollgate_language::compile(&rules, Surface::Worker).unwrap();
        let mut counts = Counts::default();
        let mut receipt = check(&mut counts, &active, START).unwrap();
        for _ in 0..2 {
            for what in [InFlightReport::Runs, InFlightReport::Ended] {
                assert_eq!(Counts::is_strict(&what.request(7, &receipt)), is_strict);
            }
            receipt = renew(&mut counts, 7, &receipt, START + 1);
        }
    }
}

// Guards: a place that is free, and a server that denies by what it remembers.
#[test]
fn a_denial_for_want_of_a_place_is_not_remembered() {
    let (active, mut counts) = (policy(1), Counts::default());
    let mut denials = Denials::new([0; 16]).refunded();
    let receipt = check(&mut counts, &active, START).unwrap();
    let (plan, _, _) = charge(&mut counts, &active, START + 1);
    denials.record_reply(&active, &plan, 0, at(START + 1));
    denials.close(&active, &plan);
    assert!(matches!(plan.outcome(&active).disposition(), Disposition::Deny { .. }));
    assert_eq!((denials.is_empty(), plan.outcome(&active).retry_after()), (true, None));
    done(&mut counts, 1, &receipt, START + 1);
    assert!(check(&mut counts, &active, START + 1).is_some());
}

/// An id that is older than `max_age` ends nothing, and does not keep a later one from it.
#[test]
fn an_end_by_an_id_that_is_too_old_changes_nothing() {
    let (mut counts, policy) = (Counts::default(), policy(10));
    let first = check(&mut counts, &policy, START).unwrap();
    let second = renew(&mut counts, 1, &first, START + AGE / 2);
    let now = START + AGE;
    assert!(!done(&mut counts, 1, &first, now));
    assert_eq!(in_flight(&mut counts, &policy, now), 1);
    assert!(done(&mut counts, 1, &second, now));
    assert_eq!(in_flight(&mut counts, &policy, now), 0);
}
