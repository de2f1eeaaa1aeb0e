//! The requirements of waiting on plans: decided again unchanged, small while they are kept, denied
//! without `on_failure`.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Limits, Pace};
use tollgate_policy::{Disposition, Plan, Policy, RuleResult, Surface};

use crate::support::{Request, get};

const TURN: &str = r#"{"version": 1, "rules": [
    {"name": "turn", "key": [{"header": "x-key"}], "action": {"delay": {"max": "10s"}},
     "cost": {"header": "x-cost", "max": 9}, "quotas": [{"limit": 4, "window": "4s"}],
     "tiers": [{"name": "paid", "when": {"headers": {"x-plan": "paid"}}, "quotas": [{"limit": 8, "window": "4s"}]}]}]}"#;

const QUEUE: &str = r#"{"version": 1, "rules": [{"name": "q", "key": ["client_ip"], "action": {"delay": {"max": "1m"}},
    "quotas": [{"limit": 1, "window": "1s", "burst": 9, "algorithm": "leaky-queue"}]}]}"#;

fn policy(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Envoy).unwrap_or_else(|e| panic!("{e}"))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn planned(policy: &Policy, request: &Request) -> Plan {
    let mut plan = Plan::new();
    policy.plan(request, &mut plan);
    plan
}

/// Decides on the stored value and stores the charge.
fn decide(policy: &Policy, plan: &mut Plan, stored: &mut Vec<u8>, now: u64) -> Disposition {
    plan.partition_mut(0).unwrap().load(policy, Some(stored));
    plan.decide(policy, at(now));
    if plan.partition(0).unwrap().changed() {
        *stored = plan.partition(0).unwrap().value().to_vec();
    }
    plan.outcome(policy).disposition()
}

fn request(cost: &str) -> Request {
    get("/", "192.0.2.1").header("x-key", "k").header("x-cost", cost)
}

#[test]
fn a_kept_plan_is_decided_again_as_it_came() {
    let (policy, mut stored) = (policy(TURN), Vec::new());
    let mut first = planned(&policy, &request("4"));
    assert_eq!(decide(&policy, &mut first, &mut stored, 1_000), Disposition::Allow);
    let mut waits = planned(&policy, &request("3"));
    let answer = decide(&policy, &mut waits, &mut stored, 1_000);
    assert_eq!(answer, Disposition::Retry(Span::from_secs(3)));
    let outcome = waits.outcome(&policy);
    let turn = outcome.turn().unwrap();
    assert_eq!((turn.partition, turn.cost, turn.max), (0, 3, Span::from_secs(10)));
    assert_eq!(waits.waiting(&policy).turns().collect::<Vec<_>>(), [turn]);
    waits.memory().shrink();
    assert_eq!(
        decide(&policy, &mut waits, &mut stored, 3_999),
        Disposition::Retry(Span::from_millis(1))
    );
    assert_eq!(decide(&policy, &mut waits, &mut stored, 4_000), Disposition::Allow);
    // Its cost was charged once: the next unit comes a second later.
    let mut next = planned(&policy, &request("1"));
    assert_eq!(
        decide(&policy, &mut next, &mut stored, 4_000),
        Disposition::Retry(Span::from_secs(1))
    );
    // Another tier is another line.
    let paid = planned(&policy, &request("1").header("x-plan", "paid"));
    assert_ne!(paid.waiting(&policy).turns().next().unwrap().record, turn.record);
}

// Guards: a request with two values that is allowed to continue for one of them first.
#[test]
fn a_request_stands_by_the_first_conditions_that_surely_hold() {
    let policy = policy(
        r#"{"version": 1, "repeated": "first", "rules": [{"name": "turn", "key": [],
        "action": {"delay": {"max": "10s", "priority": [
            {"headers": {"x-plan": "gold"}}, {"headers": {"x-plan": "silver"}, "methods": ["GET"]}]}},
        "quotas": [{"limit": 4, "window": "4s"}]}]}"#,
    );
    let rank = |request: &Request| {
        let plan = planned(&policy, request);
        plan.waiting(&policy).turns().next().unwrap().rank
    };
    let of = |plan: &str| get("/", "192.0.2.1").header("x-plan", plan);
    assert_eq!([rank(&of("gold")), rank(&of("silver")), rank(&of("free"))], [0, 1, 2]);
    assert_eq!(rank(&get("/", "192.0.2.1")), 2);
    assert_eq!(rank(&of("gold").header("x-plan", "free")), 2, "whichever it means");
}

#[test]
fn what_is_kept_is_small_and_counted() {
    let policy = policy(
        r#"{"version": 1, "rules": [{"name": "turn", "when": {"paths": ["/*"]}, "key": ["client_ip"],
        "action": {"delay": {"max": "10s"}}, "quotas": [{"limit": 1, "window": "1s", "algorithm": "sliding-log"}]}]}"#,
    );
    let long = format!("/{}", "a".repeat(60_000));
    let mut plan = planned(&policy, &get(&long, "192.0.2.1"));
    plan.partition_mut(0).unwrap().load(&policy, None);
    plan.decide(&policy, at(1));
    let held = plan.memory().bytes();
    assert!(held > 60_000, "{held}");
    let held = plan.memory().shrink();
    assert!(held < 2_000, "{held}");
    // A plan that waits keeps its long key.
    let policy = self::policy(TURN);
    let mut plan = planned(&policy, &get("/", "192.0.2.1").header("x-key", "k".repeat(5_000)));
    let held = plan.memory().shrink();
    assert!((5_000..8_000).contains(&held), "{held}");
}

#[test]
fn whoever_may_not_wait_is_refused_and_told_when_to_come_back() {
    let wait = Span::from_millis(6_500);
    for (document, full, status, title) in [
        (TURN, Full::Late(wait), 429, "quota-exceeded"),
        (TURN, Full::Key(wait), 429, "quota-exceeded"),
        (TURN, Full::Worker(wait), 503, "temporary-reduced-capacity"),
        (QUEUE, Full::Key(wait), 429, "quota-exceeded"),
        (QUEUE, Full::Worker(wait), 503, "temporary-reduced-capacity"),
    ] {
        let (policy, mut stored) = (policy(document), Vec::new());
        let mut first = planned(&policy, &request("4"));
        decide(&policy, &mut first, &mut stored, 1_000);
        let before = stored.clone();
        let mut plan = planned(&policy, &request("3"));
        let answer = decide(&policy, &mut plan, &mut stored, 1_000);
        assert!(matches!(answer, Disposition::Retry(_) | Disposition::Delay(_)), "{answer:?}");
        plan.waiting_mut(&policy).reject(full);
        if plan.partition(0).unwrap().changed() {
            plan.partition_mut(0).unwrap().load(&policy, Some(&stored));
            plan.partition_mut(0).unwrap().refund(&policy, at(1_000));
            plan.partition_mut(0).unwrap().refunded(&policy, at(1_000));
            assert_eq!(plan.partition(0).unwrap().value(), before, "its place is given back");
        }
        let outcome = plan.outcome(&policy);
        assert_eq!(outcome.disposition(), Disposition::Deny { status }, "{full:?}");
        assert_eq!(outcome.retry_after(), Some(wait));
        assert!(!outcome.is_failure());
        assert_eq!(outcome.rules().next(), Some((0, RuleResult::Denied)));
        assert_eq!(outcome.violated().count(), 1);
        assert!(outcome.body().contains(title), "{}", outcome.body());
        let mut retry_after = None;
        outcome.headers(&mut |name, value| {
            if name == "retry-after" {
                retry_after = Some(value.to_owned());
            }
        });
        assert_eq!(retry_after.as_deref(), Some("7"));
    }
}

#[test]
fn a_long_key_that_is_kept_as_its_digest_is_told_as_itself() {
    let document = TURN.replace(
        r#""version": 1,"#,
        r#""version": 1, "response": {"partition_key": true, "jitter": "5m"},"#,
    );
    let (policy, long) = (policy(&document), "k".repeat(2_000));
    let told = |is_trimmed: bool| {
        let (mut stored, mut said) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let request = get("/", "192.0.2.1").header("x-key", &long).header("x-cost", "4");
            let mut plan = planned(&policy, &request);
            if is_trimmed {
                plan.memory().trim(&policy, 1_024, |_, _| [7; 16]);
                assert_eq!(plan.partition(0).unwrap().key(), [7; 16]);
            }
            decide(&policy, &mut plan, &mut stored, 1_000);
            plan.waiting_mut(&policy).reject(Full::Key(Span::from_secs(1)));
            plan.outcome(&policy).headers(&mut |name, value| said.push((name, value.to_owned())));
        }
        said
    };
    assert!(told(false).iter().any(|(name, value)| *name == "ratelimit" && value.contains(";pk=")));
    assert_eq!(told(true), told(false));
}

#[test]
fn a_look_charges_nothing_and_says_who_refuses() {
    let policy = policy(
        r#"{"version": 1, "rules": [
        {"name": "turn", "key": [], "action": {"delay": {"max": "10s"}}, "quotas": [{"limit": 1, "window": "1s"}]},
        {"name": "each", "key": [], "quotas": [{"limit": 2, "window": "1h"}]}]}"#,
    );
    let request = get("/", "192.0.2.1");
    let mut stored = Vec::new();
    let mut plan = planned(&policy, &request);
    assert_eq!(decide(&policy, &mut plan, &mut stored, 1_000), Disposition::Allow);
    let mut look = planned(&policy, &request);
    look.partition_mut(0).unwrap().load(&policy, Some(&stored));
    look.waiting_mut(&policy).look(at(1_000));
    assert_eq!(look.outcome(&policy).disposition(), Disposition::Retry(Span::from_secs(1)));
    assert!(!look.partition(0).unwrap().changed());
    assert_eq!(look.partition(0).unwrap().value(), stored);
    let turn = look.waiting(&policy).turns().next().unwrap();
    let pace: Pace = look.waiting(&policy).pace(&turn, at(1_000)).unwrap();
    assert_eq!((pace.fits_at(0, 1), pace.fits_at(4, 1)), (at(2_000), at(6_000)));
    assert_eq!(decide(&policy, &mut plan, &mut stored, 2_000), Disposition::Allow);
    look.partition_mut(0).unwrap().load(&policy, Some(&stored));
    look.waiting_mut(&policy).look(at(2_000));
    assert_eq!(
        look.outcome(&policy).disposition(),
        Disposition::Deny { status: 429 },
        "by the other rule"
    );
}

#[test]
fn a_place_can_be_another_one() {
    let (policy, mut stored) = (policy(QUEUE), Vec::new());
    let request = get("/", "192.0.2.1");
    let mut plans: Vec<Plan> = (0..4).map(|_| planned(&policy, &request)).collect();
    for plan in &mut plans {
        decide(&policy, plan, &mut stored, 1_000);
    }
    let last = plans[3].partition(0).unwrap().value().to_vec();
    // The second leaves; those behind move up, and its refund is the last time.
    let leaves = &mut plans[1];
    assert_eq!(leaves.waiting(&policy).place().unwrap().cost, 1);
    leaves.waiting_mut(&policy).move_place(at(4_000));
    leaves.partition_mut(0).unwrap().load(&policy, Some(&last));
    leaves.partition_mut(0).unwrap().refund(&policy, at(1_500));
    let mut next = planned(&policy, &request);
    let mut stored = leaves.partition(0).unwrap().value().to_vec();
    let answer = decide(&policy, &mut next, &mut stored, 1_500);
    assert_eq!(
        answer,
        Disposition::Delay(Span::from_millis(2_500)),
        "at 4 s, where the last one was"
    );
    // A time that could not be given back serves the next one, and is not charged again.
    let mut spare = planned(&policy, &request);
    spare.partition_mut(0).unwrap().load(&policy, Some(&stored));
    spare.waiting_mut(&policy).take_place(at(1_500), at(3_000));
    assert_eq!(spare.outcome(&policy).disposition(), Disposition::Delay(Span::from_millis(1_500)));
    assert!(!spare.partition(0).unwrap().changed());
    assert_eq!(spare.partition(0).unwrap().value(), stored);
}

#[test]
fn limits_are_settings() {
    let compile = |waiting: &str| {
        let document = format!(r#"{{"version": 1, "waiting": {waiting}, "rules": []}}"#);
        tollgate_language::compile(&document, Surface::Worker).map(|policy| policy.waiting())
    };
    let defaults = Limits { per_key: 1_000, total: 10_000, bytes: 64 << 20 };
    assert_eq!(compile("{}").unwrap(), defaults);
    assert_eq!(policy(TURN).waiting(), defaults);
    let set = compile(r#"{"per_key": 1, "total": 1000000, "bytes": 65536}"#).unwrap();
    assert_eq!(set, Limits { per_key: 1, total: 1_000_000, bytes: 65_536 });
    for wrong in [
        r#"{"per_key": 0}"#,
        r#"{"total": 1000001}"#,
        r#"{"bytes": 65535}"#,
        r#"{"bytes": "64MiB"}"#,
        r#"{"each": 1}"#,
        "10",
    ] {
        assert!(compile(wrong).is_err(), "{wrong}");
    }
}
