//! Costs that are settled differently from their charge: repeated, late, after a reset, under
//! another policy, or by a clock that jumps. A count is left with no more units than a limiter that
//! was charged the settled costs.

use crate::support::*;
use tollgate_core::{Limiter, Timestamp};
use tollgate_policy::{GivenKey, Plan, Policy, Surface};
use tollgate_storage::{Counts, KeyOperation, MAX_SETTLED, SETTLE_WITHIN, Settlement, WireError};

const START: u64 = 1_780_000_000_000;
const STEPS: usize = if cfg!(debug_assertions) { 6_000 } else { 60_000 };
const MINUTE: u64 = 60_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn policy(rules: &str, version: u64) -> Policy {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    let mut policy =
        tollgate_language::compile(&document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"));
    policy.set_version(version);
    policy
}

/// A rule whose requests name their cost.
fn rule(quota: &str) -> String {
    format!(
        r#"{{"name": "r", "key": ["client_ip"], "cost": {{"header": "x-cost", "max": 1000}},
            "quotas": [{{"name": "q", {quota}}}]}}"#
    )
}

/// Charges a request of this cost: the receipt to settle it by, if it was allowed.
fn check(counts: &mut Counts, policy: &Policy, cost: u64, now: Timestamp) -> Option<Vec<u8>> {
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1").header("x-cost", cost.to_string()), &mut plan);
    let mut request = Vec::new();
    plan.partition(0).unwrap().request(policy, &mut request);
    let reply = counts.answer(&request, now).unwrap().reply;
    plan.partition_mut(0).unwrap().accept(policy, &reply).unwrap();
    let mut receipt = Vec::new();
    let is_charged = plan.partition(0).unwrap().write_receipt(policy, &mut receipt);
    assert_eq!(is_charged, !receipt.is_empty());
    is_charged.then_some(receipt)
}

fn settle(counts: &mut Counts, id: u64, cost: u64, receipt: &[u8], now: Timestamp) -> Settlement {
    let answered = counts.answer(&Settlement::request(id, cost, receipt), now).unwrap();
    Settlement::read(&answered.reply).unwrap()
}

fn left(counts: &mut Counts, policy: &Policy, now: Timestamp) -> u64 {
    let key = GivenKey::new(policy, "r", &["192.0.2.1".to_owned()]).unwrap();
    let mut request = Vec::new();
    key.request(policy, KeyOperation::Describe, &mut request);
    let state = counts.operate(&request, now).unwrap().reply;
    let state = tollgate_storage::KeyState::read(&state).unwrap();
    let set = &policy.quota_sets()[0];
    let limiter = set.quotas()[0].limiter();
    state.of(&set.to_stored()).map_or(limiter.capacity(), |used| used[0].decision.remaining)
}

/// One open or settled charge.
struct Open {
    id: u64,
    receipt: Vec<u8>,
    cost: u64,
    at: u64,
    version: u64,
    settled: Option<(u64, Settlement)>,
}

/// The events, for the limiter that is charged the settled costs.
enum Event {
    /// The cost of the charge with this number, once it is known.
    Charge(usize),
    Debit(u64),
    Policy(Box<Limiter>),
    Left(u64),
}

const QUOTAS: [&str; 9] = [
    r#""limit": 40, "window": "1m""#,
    r#""limit": 40, "window": "1m", "burst": 13"#,
    r#""limit": 60, "window": "10m", "algorithm": "token-bucket""#,
    r#""limit": 40, "window": "1m", "algorithm": "leaky-bucket""#,
    r#""limit": 40, "window": "1m", "algorithm": "leaky-queue""#,
    r#""limit": 40, "window": "5m", "algorithm": "fixed-window""#,
    r#""limit": 40, "window": "5m", "algorithm": "sliding-window""#,
    r#""limit": 40, "window": "5m", "algorithm": "sliding-buckets", "buckets": 5"#,
    r#""limit": 40, "window": "5m", "algorithm": "sliding-log""#,
];

#[test]
fn what_stands_is_what_a_limiter_has_that_charged_the_settled_costs() {
    let (mut lower, mut higher, mut late, mut newer) = (0, 0, 0, 0);
    for (seed, quota) in QUOTAS.into_iter().enumerate() {
        let random = &mut Random::new(u64::try_from(seed).unwrap());
        let mut version = 1;
        let mut active = policy(&rule(quota), version);
        let mut counts = Counts::default();
        let mut open: Vec<Open> = Vec::new();
        let mut events: Vec<(u64, Event)> = Vec::new();
        let mut ms = START;
        for step in 0..STEPS {
            ms += *random.pick(&[0, 0, 1, 500, 2_000, 9_000, 40_000]);
            if random.one_in(500) {
                ms += 11 * MINUTE;
            }
            if random.one_in(400) {
                version += 1;
                let limit = *random.pick(&["40", "25", "90"]);
                let other = QUOTAS[seed].replace("40", limit);
                active = policy(&rule(&other), version);
                // The state is carried when the policy is first used.
                check(&mut counts, &active, 1_000, at(ms));
                let limiter = *active.quota_sets()[0].quotas()[0].limiter();
                events.push((ms, Event::Policy(Box::new(limiter))));
            }
            if random.one_in(2) {
                let cost = 1 + random.below(9);
                if let Some(receipt) = check(&mut counts, &active, cost, at(ms)) {
                    let id = u64::try_from(open.len()).unwrap();
                    events.push((ms, Event::Charge(open.len())));
                    open.push(Open { id, receipt, cost, at: ms, version, settled: None });
                }
            } else if !open.is_empty() {
                let back = *random.pick(&[1, 2, 4, 16, 1_000]);
                let back = back.min(u64::try_from(open.len()).unwrap());
                let i = open.len() - 1 - usize::try_from(random.below(back)).unwrap();
                let it = &mut open[i];
                // A full log forgets its oldest entry for each debited unit, and a count that has
                // charged more until now forgets sooner.
                let more = if quota.contains("sliding-log") { 0 } else { 1 + random.below(2) };
                let cost =
                    *random.pick(&[0, 1, it.cost, it.cost / 2, it.cost + more, it.cost + more]);
                let before = counts.clone();
                let settlement = settle(&mut counts, it.id, cost, &it.receipt, at(ms));
                let is_late = ms - it.at > 10 * MINUTE;
                match &it.settled {
                    _ if is_late => {
                        assert_eq!(settlement, Settlement::TooOld, "{step}");
                        assert_eq!(counts, before);
                        late += 1;
                    }
                    Some((earlier, said)) => {
                        // The same result for the same cost, a different one for another; nothing
                        // changed.
                        let another = Settlement::Another { cost: *earlier };
                        assert_eq!(settlement, if cost == *earlier { *said } else { another });
                        assert_eq!(counts, before);
                    }
                    None => {
                        let Settlement::Stands { charged } = settlement else {
                            panic!("{step}: {settlement:?}")
                        };
                        if cost >= it.cost {
                            assert_eq!(charged, cost, "{step}");
                            higher += usize::from(cost > it.cost);
                            events.push((ms, Event::Debit(charged - it.cost)));
                            it.settled = Some((cost, settlement));
                        } else {
                            let is_newer = it.version < version;
                            assert!(charged == cost || (is_newer && charged == it.cost));
                            newer += usize::from(charged != cost);
                            lower += usize::from(charged == cost);
                            it.settled = Some((cost, settlement));
                        }
                    }
                }
            }
            if random.one_in(20) {
                // The object is evicted, or finds itself idle.
                let mut row = Vec::new();
                counts.encode(at(ms), &mut row);
                counts = Counts::decode(&row).unwrap();
            }
            if counts.idle_at() <= at(ms) {
                counts = Counts::default();
            }
            events.push((ms, Event::Left(left(&mut counts, &active, at(ms)))));
        }
        assert_no_more_is_left(quota, &open, events);
    }
    let seen = [lower, higher, late, newer];
    assert!(seen.iter().all(|seen| *seen > STEPS / 200), "{seen:?}");
}

/// Charges the settled costs to one limiter, when they were charged first.
fn assert_no_more_is_left(quota: &str, open: &[Open], events: Vec<(u64, Event)>) {
    let first = policy(&rule(quota), 1);
    let mut limiter = *first.quota_sets()[0].quotas()[0].limiter();
    let mut state = vec![0; limiter.state_len()];
    for (ms, event) in events {
        match event {
            Event::Charge(i) => {
                let cost = open[i].settled.map_or(open[i].cost, |(cost, _)| cost.min(open[i].cost));
                assert!(limiter.check(&mut state, at(ms), cost).is_admitted(), "{quota}");
            }
            Event::Debit(cost) => limiter.debit(&mut state, cost, at(ms)),
            Event::Policy(next) => {
                let mut carried = vec![0; next.state_len()];
                next.carry(&limiter, &state, at(ms), &mut carried);
                (limiter, state) = (*next, carried);
            }
            Event::Left(left) => {
                let most = limiter.peek(&state, at(ms), 0).remaining;
                assert!(left <= most, "{quota} at {}: {left} > {most}", ms - START);
            }
        }
    }
}

const BY_LOG: &str = r#""limit": 20, "window": "1h", "algorithm": "sliding-log""#;

/// A policy, a count and the receipt of a charge of 10 at the start.
fn charged(quota: &str) -> (Policy, Counts, Vec<u8>) {
    let (policy, mut counts) = (policy(&rule(quota), 1), Counts::default());
    let receipt = check(&mut counts, &policy, 10, at(START)).unwrap();
    (policy, counts, receipt)
}

const fn stands(charged: u64) -> Settlement {
    Settlement::Stands { charged }
}

#[test]
fn an_id_is_valid_for_ten_minutes() {
    for (after_ms, expected) in [
        (9 * MINUTE + 59_000, stands(4)),
        (10 * MINUTE, stands(4)),
        (10 * MINUTE + 1, Settlement::TooOld),
        (10 * MINUTE + 1_000, Settlement::TooOld),
        (u64::MAX / 2_000_000 - START, Settlement::TooOld),
    ] {
        let (policy, mut counts, receipt) = charged(BY_LOG);
        let now = at(START + after_ms);
        assert_eq!(settle(&mut counts, 1, 4, &receipt, now), expected, "{after_ms}");
        let used = if expected == Settlement::TooOld { 10 } else { 4 };
        if after_ms < 11 * MINUTE {
            assert_eq!(left(&mut counts, &policy, now), 20 - used);
        }
        // By a clock that goes back nothing comes back twice.
        let back = at(START + MINUTE);
        let said = settle(&mut counts, 1, 4, &receipt, back);
        let again = if expected == Settlement::TooOld { said } else { expected };
        assert_eq!((said, left(&mut counts, &policy, back)), (again, 16));
    }
    assert_eq!(SETTLE_WITHIN.as_millis_ceil(), 10 * MINUTE);
}

/// A clock that was set back by more than clocks differ: the charge is from another time.
#[test]
fn a_clock_that_was_set_back_gives_nothing_back_and_charges() {
    let (policy, mut counts, receipt) = charged(BY_LOG);
    let back = at(START - MINUTE);
    assert_eq!(settle(&mut counts, 1, 4, &receipt, back), stands(10));
    assert_eq!(left(&mut counts, &policy, at(START)), 10);
    let Settlement::Stands { charged } = settle(&mut counts, 2, 12, &receipt, back) else {
        panic!("it is not too old")
    };
    assert_eq!(charged, 12);
    // It is not remembered: it would outlast all later charges.
    assert!(counts.idle_at() < at(START + 61 * MINUTE));
    // Within it the charge is known.
    assert_eq!(settle(&mut counts, 3, 0, &receipt, at(START - 30_000)), stands(0));
}

/// Guards: units that come back twice because the row that contained the first time is gone, and
/// then out of other requests' use.
#[test]
fn what_was_lost_is_not_given_back() {
    for quota in QUOTAS {
        let (policy, mut before, receipt) = charged(quota);
        let (now, later) = (at(START + 1_000), at(START + 40_000));
        assert_eq!(settle(&mut before, 1, 2, &receipt, now), Settlement::Stands { charged: 2 });
        for mut counts in [Counts::begun_anew(now), {
            let mut row = Vec::new();
            Counts::begun_anew(now).encode(now, &mut row);
            Counts::decode(&row).unwrap()
        }] {
            check(&mut counts, &policy, 10, now).unwrap();
            let used_up = left(&mut counts, &policy, now);
            settle(&mut counts, 1, 2, &receipt, now);
            assert_eq!(left(&mut counts, &policy, now), used_up, "{quota}");
            // Later charges are settled as usual.
            let receipt = check(&mut counts, &policy, 5, later).unwrap();
            let before = left(&mut counts, &policy, later);
            let settled = settle(&mut counts, 2, 1, &receipt, later);
            assert_eq!(settled, Settlement::Stands { charged: 1 }, "{quota}");
            let queues = quota.contains("leaky-queue");
            assert!(left(&mut counts, &policy, later) > before || queues, "{quota}");
        }
    }
}

/// Guards: a caller that repeats itself, and is charged each time because the row that contained
/// the first time is gone.
#[test]
fn what_is_repeated_after_a_loss_is_charged_once() {
    for quota in QUOTAS {
        let (policy, mut lost, receipt) = charged(quota);
        assert_eq!(settle(&mut lost, 1, 12, &receipt, at(START + 1)), stands(12));
        let now = at(START + 1_000);
        let mut counts = Counts::begun_anew(now);
        let said = settle(&mut counts, 1, 12, &receipt, now);
        let after = left(&mut counts, &policy, now);
        assert_eq!(said, stands(12), "{quota}");
        for i in 1..4 {
            // As for an object that was evicted meanwhile, or began again on another machine.
            let mut row = Vec::new();
            counts.encode(now, &mut row);
            counts = Counts::decode(&row).unwrap();
            let request = Settlement::request(1, 12, &receipt);
            let answered = counts.answer(&request, now).unwrap();
            assert_eq!(Settlement::read(&answered.reply).unwrap(), said, "{quota}: {i}");
            assert!(!answered.is_changed, "{quota}: {i}");
            assert_eq!(left(&mut counts, &policy, now), after, "{quota}: {i}");
        }
        let another = Settlement::Another { cost: 12 };
        assert_eq!(settle(&mut counts, 1, 13, &receipt, now), another, "{quota}");
    }
}

#[test]
fn a_reset_or_blocked_key_gives_nothing_back_and_charges() {
    for operation in [KeyOperation::Reset, KeyOperation::Block(at(START + 60 * MINUTE))] {
        let (policy, mut counts, receipt) = charged(BY_LOG);
        let mut request = Vec::new();
        let key = GivenKey::new(&policy, "r", &["192.0.2.1".to_owned()]).unwrap();
        key.request(&policy, operation, &mut request);
        counts.operate(&request, at(START + 1)).unwrap();
        let is_reset = operation == KeyOperation::Reset;
        if is_reset {
            check(&mut counts, &policy, 5, at(START + 2)).unwrap();
        }
        assert_eq!(settle(&mut counts, 1, 0, &receipt, at(START + 3)), stands(0));
        let used = if is_reset { 5 } else { 0 };
        assert_eq!(left(&mut counts, &policy, at(START + 3)), 20 - used);
        // A higher final cost is charged, and none of it was reset.
        assert_eq!(settle(&mut counts, 2, 13, &receipt, at(START + 4)), stands(13));
        assert_eq!(left(&mut counts, &policy, at(START + 4)), 17 - used);
    }
}

/// Guards: a receipt of old quotas that brings them back, or their states.
#[test]
fn changed_quotas_stay_changed() {
    let (old, mut counts, receipt) = charged(BY_LOG);
    let new = policy(&rule(&BY_LOG.replace("20", "12")), 2);
    assert!(check(&mut counts, &new, 2, at(START + 1)).is_some());
    assert_eq!(settle(&mut counts, 1, 0, &receipt, at(START + 2)), stands(10));
    assert_eq!(settle(&mut counts, 2, 15, &receipt, at(START + 2)), stands(15));
    assert_eq!(left(&mut counts, &new, at(START + 2)), 0);
    // And back again: it is not known which part of the states the charge is.
    let mut old_again = old;
    old_again.set_version(3);
    check(&mut counts, &old_again, 1, at(START + 3)).unwrap();
    assert_eq!(settle(&mut counts, 3, 0, &receipt, at(START + 4)), stands(10));
    // Where no versions are counted, the same.
    let unversioned = |limit: &str| policy(&rule(&BY_LOG.replace("20", limit)), 0);
    let (old, mut counts) = (unversioned("20"), Counts::default());
    let receipt = check(&mut counts, &old, 10, at(START)).unwrap();
    check(&mut counts, &unversioned("12"), 2, at(START + 1)).unwrap();
    assert_eq!(settle(&mut counts, 1, 0, &receipt, at(START + 1)), stands(10));
    check(&mut counts, &old, 1, at(START + 2)).unwrap();
    assert_eq!(settle(&mut counts, 2, 0, &receipt, at(START + 2)), stands(10));
}

/// Guards: a million settlements of one key that fill the object, or that make it forget the
/// refunds.
#[test]
fn a_key_remembers_no_more_than_it_may_and_forgets_on_the_strict_side() {
    let policy =
        policy(&rule(r#""limit": 100000, "window": "1h", "algorithm": "fixed-window""#), 1);
    let mut counts = Counts::default();
    let count = 3 * u64::try_from(MAX_SETTLED).unwrap();
    let mut receipts = Vec::new();
    for i in 0..count {
        let receipt = check(&mut counts, &policy, 10, at(START + i)).unwrap();
        assert_eq!(settle(&mut counts, i, 3, &receipt, at(START + i)), stands(3));
        receipts.push(receipt);
    }
    let used = count * 3;
    let now = at(START + count);
    assert_eq!(left(&mut counts, &policy, now), 100_000 - used);
    let mut row = Vec::new();
    counts.encode(now, &mut row);
    assert!(row.len() < 34_000, "{}", row.len());
    let mut counts = Counts::decode(&row).unwrap();
    for (i, receipt) in receipts.iter().enumerate() {
        // The charge of a forgotten one stays as it is by now, which is less than this result.
        let is_forgotten = i < receipts.len() - MAX_SETTLED;
        let expected = stands(if is_forgotten { 10 } else { 3 });
        assert_eq!(settle(&mut counts, u64::try_from(i).unwrap(), 3, receipt, now), expected);
    }
    assert_eq!(left(&mut counts, &policy, now), 100_000 - used);
    // A higher cost is still charged, or a crowd could hide it.
    assert_eq!(settle(&mut counts, 0, 30, &receipts[0], now), stands(30));
    assert_eq!(left(&mut counts, &policy, now), 100_000 - used - 20);
    // All of it is forgotten in the end.
    assert!(counts.idle_at() <= at(START + 120 * MINUTE));
    let mut row = Vec::new();
    counts.encode(at(START + 30 * MINUTE), &mut row);
    assert!(row.len() < 200 && row[0] == 2, "{}", row.len());
}

/// Rules that name no cost count requests, shadow rules do not affect the result, and a higher cost
/// is debited in each of several quotas, up to two limits.
#[test]
fn rules_that_name_a_cost_are_settled() {
    let each = |limit: u32, name: &str, more: &str| {
        format!(
            r#"{{"name": "{name}", "key": ["client_ip"], {more}
                "quotas": [{{"name": "q{name}", "limit": {limit}, "window": "1h", "algorithm": "fixed-window"}},
                           {{"name": "d{name}", "limit": 1000, "window": "24h", "algorithm": "fixed-window"}}]}}"#
        )
    };
    let document = [
        each(20, "r", r#""cost": 5,"#),
        each(12, "shadow", r#""cost": 10, "mode": "shadow","#),
        each(20, "requests", ""),
    ]
    .join(",");
    let policy = policy(&document, 1);
    let used = |counts: &mut Counts, name: &str| {
        let key = GivenKey::new(&policy, name, &["192.0.2.1".to_owned()]).unwrap();
        let mut request = Vec::new();
        key.request(&policy, KeyOperation::Describe, &mut request);
        let reply = counts.operate(&request, at(START)).unwrap().reply;
        let state = tollgate_storage::KeyState::read(&reply).unwrap();
        let set = policy.quota_sets().iter().find(|set| policy.rules()[set.rule()].name() == name);
        let of = |used: &tollgate_storage::QuotaUse| used.decision.limit - used.decision.remaining;
        state.of(&set.unwrap().to_stored()).unwrap().iter().map(of).collect::<Vec<_>>()
    };
    for (cost, charged, rule, shadow) in [
        (0, 0, [0, 0], [0, 0]),
        (7, 7, [7, 7], [7, 7]),
        (15, 15, [15, 15], [12, 15]),
        (30, 30, [20, 30], [12, 30]),
        (3_000, 3_000, [20, 1_000], [12, 1_000]),
    ] {
        let mut counts = Counts::default();
        let receipt = check(&mut counts, &policy, 1, at(START)).unwrap();
        assert_eq!(used(&mut counts, "shadow"), [10, 10]);
        assert_eq!(settle(&mut counts, 1, cost, &receipt, at(START)), stands(charged));
        assert_eq!(used(&mut counts, "r"), rule, "{cost}");
        assert_eq!(used(&mut counts, "shadow"), shadow, "{cost}");
        assert_eq!(used(&mut counts, "requests"), [1, 1], "{cost}");
    }
}

/// Guards: a charge that a crash forgets, and that is then given back from other requests' charges.
#[test]
fn what_is_to_be_settled_is_durable_before_it_is_answered() {
    let document = rule(r#""limit": 10, "window": "1h""#)
        .replace(r#""cost""#, r#""durability": "relaxed", "cost""#);
    let policy = policy(&document, 1);
    let is_strict = |settle: &str| {
        let request = format!(
            r#"{{"method": "GET", "path": "/", "headers": {{"x-cost": "2"}},
                "client_ip": "192.0.2.1"{settle}}}"#
        );
        let request = tollgate_language::DescribedRequest::parse(request.as_bytes()).unwrap();
        let mut plan = Plan::new();
        policy.plan(&request, &mut plan);
        let mut bytes = Vec::new();
        plan.partition(0).unwrap().request(&policy, &mut bytes);
        Counts::is_strict(&bytes)
    };
    let all = ["", r#", "settle": true"#, r#", "settle": false"#].map(is_strict);
    assert_eq!(all, [false, true, false]);
}

#[test]
fn what_is_no_settlement_changes_nothing() {
    let (_, mut counts, receipt) = charged(BY_LOG);
    let request = Settlement::request(1, 4, &receipt);
    let before = counts.clone();
    for end in 0..request.len() {
        assert!(counts.answer(&request[..end], at(START)).is_err(), "{end}");
        assert_eq!(counts, before);
    }
    // A request to be decided is not a receipt.
    let mut plan = Plan::new();
    let policy = policy(&rule(BY_LOG), 1);
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    let mut other = Vec::new();
    plan.partition(0).unwrap().request(&policy, &mut other);
    let wrong = counts.answer(&Settlement::request(1, 4, &other), at(START));
    assert_eq!((wrong, &counts), (Err(WireError::Malformed), &before));
    let reply = counts.answer(&request, at(START)).unwrap().reply;
    for end in 0..reply.len() {
        assert!(Settlement::read(&reply[..end]).is_err(), "{end}");
    }
    assert!(Settlement::read(&[&reply[..], b"x"].concat()).is_err());
}

#[test]
fn two_counts_of_one_cost_say_what_somebody_has_to_know() {
    let (another, old) = (Settlement::Another { cost: 7 }, Settlement::TooOld);
    for (one, two, expected) in [
        (stands(5), stands(5), stands(5)),
        (stands(9), stands(5), stands(9)),
        (stands(5), another, another),
        (old, another, another),
        (old, stands(5), stands(5)),
        (old, old, old),
    ] {
        assert_eq!((one.and(two), two.and(one)), (expected, expected));
    }
}
