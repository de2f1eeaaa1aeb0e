//! Charging by the response: which requests hold a place meanwhile, which responses give it back,
//! and the charge of a client that leaves.

use proptest::prelude::*;
use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Ending, Failure, Plan, RuleResult};
use tollgate_storage::Counts;

use crate::support::{Request, Surfaced};

const DENIED: Disposition = Disposition::Deny { status: 429 };

/// A policy of these rules, each with a name and a key.
fn rules(rules: &[&str]) -> String {
    let rule = |(i, more): (usize, &&str)| {
        format!(
            r#"{{"name": "r{i}", "key": [{{"header": "x-key"}}], "on_missing": "shared", {more}}}"#
        )
    };
    let rules: Vec<String> = rules.iter().enumerate().map(rule).collect();
    format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","))
}

/// One rule of these quotas, with this charge for a 401.
fn guarded(charge: &str, quota: &str) -> Surfaced {
    let charge = format!(r#""charge": {{"response_status": ["401"]{charge}}}"#);
    Surfaced::new(&rules(&[&format!(r#"{charge}, "quotas": [{quota}]"#)]))
}

const FIVE: &str = r#"{"limit": 5, "window": "1h", "algorithm": "sliding-log"}"#;
const RESERVE: &str = r#", "reserve": true"#;

/// The plan of an allowed request, to be settled later.
fn sent(surface: &mut Surfaced, millis: u64) -> Option<Plan> {
    let seen = surface.check(&login(), millis);
    (seen.answer == Disposition::Allow).then(|| std::mem::take(&mut surface.plan))
}

fn login() -> Request {
    Request { method: "POST", target: "/login".into(), ..Request::default() }
}

fn answered(surface: &mut Surfaced, plan: Plan, status: u16, millis: u64) -> bool {
    surface.plan = plan;
    surface.settle(status, millis)
}

// Guards: parallel guesses. At most the limit are in progress, whatever their responses; a success
// brings its place back, a failure does not.
#[test]
fn a_held_place_is_given_back_by_a_status_that_is_not_charged() {
    let mut surface = guarded(RESERVE, FIVE);
    let mut under_way: Vec<Plan> = (0..1000).filter_map(|_| sent(&mut surface, 0)).collect();
    assert_eq!(under_way.len(), 5);
    assert!(under_way.iter().all(|plan| plan.settlement(&surface.policy).is_deferred()));
    assert!(!answered(&mut surface, under_way.remove(0), 401, 10), "its place stays taken");
    assert!(sent(&mut surface, 10).is_none());
    for plan in under_way {
        assert!(answered(&mut surface, plan, 200, 10));
    }
    let next: Vec<Plan> = (0..1000).filter_map(|_| sent(&mut surface, 20)).collect();
    assert_eq!(next.len(), 4, "one has failed");
}

// Without it all of them are allowed, and `check` warns of that.
#[test]
fn without_a_held_place_all_under_way_pass() {
    let mut surface = guarded("", FIVE);
    let under_way: Vec<Plan> = (0..1000).filter_map(|_| sent(&mut surface, 0)).collect();
    assert_eq!(under_way.len(), 1000);
    let charged =
        under_way.into_iter().filter_map(|plan| answered(&mut surface, plan, 401, 1).then_some(()));
    assert_eq!(charged.count(), 1000, "each is due, and what no longer fits is left out");
    assert!(sent(&mut surface, 2).is_none());
}

// Guards: repeated work of the origin for a client that did not wait for it.
#[test]
fn a_client_that_leaves_is_charged_unless_the_policy_says_otherwise() {
    for (charge, passed) in [
        ("", 5),
        (r#", "on_abort": "charge""#, 5),
        (r#", "on_abort": "skip""#, 20),
        (r#", "reserve": true"#, 5),
        (r#", "reserve": true, "on_abort": "charge""#, 5),
        (r#", "reserve": true, "on_abort": "skip""#, 20),
        (r#", "reserve": false"#, 5),
    ] {
        let mut surface = guarded(charge, FIVE);
        let mut count = 0;
        for _ in 0..20 {
            let Some(plan) = sent(&mut surface, 0) else { break };
            surface.plan = plan;
            surface.end(Ending::Disconnect, 0);
            count += 1;
        }
        assert_eq!(count, passed, "{charge}");
    }
}

// Guards: a failure of our own that its client pays for: by a status, or as a client that left.
#[test]
fn a_request_that_was_never_sent_is_not_charged() {
    for charge in ["", r#", "on_abort": "charge""#, r#", "reserve": true"#] {
        let mut surface = guarded(charge, FIVE);
        for _ in 0..20 {
            surface.plan = sent(&mut surface, 0).unwrap();
            let has_place = charge.contains("reserve");
            assert_eq!(surface.end(Ending::NotSent, 0), has_place, "{charge}: a place goes back");
        }
        let left = if charge.contains("reserve") { 4 } else { 5 };
        let seen = surface.check(&login(), 0);
        let expected = format!(r#""r0";r={left}"#);
        assert!(seen.header("ratelimit").is_some_and(|field| field.starts_with(&expected)));
    }
}

// Guards: a place that comes back twice, or that was never stored: one more request than the limit.
#[test]
fn a_place_is_given_back_once_and_only_if_it_was_taken() {
    let mut surface = guarded(RESERVE, FIVE);
    let first = sent(&mut surface, 0).unwrap();
    assert!(answered(&mut surface, first, 200, 0));
    assert!(!surface.settle(200, 0), "it was settled");
    assert!(!surface.settlement().is_deferred());
    let _ = sent(&mut surface, 0).unwrap();
    // The commit of another one fails: the host did not respond, and the rule allows the request.
    surface.policy.plan(&login(), &mut surface.plan);
    surface.plan.partition_mut(0).unwrap().load(&surface.policy, None);
    surface.plan.decide(&surface.policy, Timestamp::ZERO);
    surface.plan.partition_mut(0).unwrap().fail(Failure::Contended);
    assert!(!surface.settlement().is_deferred() && !surface.settle(200, 0), "nothing was stored");
    assert_eq!((0..9).filter_map(|_| sent(&mut surface, 0)).count(), 4);
}

// A denied request holds nothing; nor does one that another rule denies.
#[test]
fn what_is_refused_holds_no_place() {
    let held =
        format!(r#""charge": {{"response_status": ["401"], "reserve": true}}, "quotas": [{FIVE}]"#);
    let other = r#""quotas": [{"limit": 1, "window": "1h"}]"#;
    let mut surface = Surfaced::new(&rules(&[&held, other]));
    let first = sent(&mut surface, 0).unwrap();
    for _ in 0..9 {
        assert_eq!(surface.check(&login(), 0).answer, DENIED);
        assert!(!surface.settle(200, 0), "nothing to give back");
    }
    assert!(answered(&mut surface, first, 200, 0));
    let denied = surface.check(&login(), 0);
    assert_eq!(denied.header("ratelimit"), Some(r#""r0";r=5;t=3600, "r1";r=0;t=3600"#));
}

// Two rules of one key are in one value: the refund by one and the charge by the other are one
// commit.
#[test]
fn rules_of_one_key_are_settled_together() {
    let held =
        format!(r#""charge": {{"response_status": ["401"], "reserve": true}}, "quotas": [{FIVE}]"#);
    let later = format!(r#""charge": {{"response_status": ["2xx"]}}, "quotas": [{FIVE}]"#);
    let always = format!(r#""quotas": [{FIVE}]"#);
    let mut surface = Surfaced::new(&rules(&[&held, &later, &always]));
    let plan = sent(&mut surface, 0).unwrap();
    assert_eq!(plan.len(), 1);
    assert!(answered(&mut surface, plan, 200, 0));
    let seen = surface.check(&login(), 0);
    assert_eq!(
        seen.header("ratelimit"),
        Some(r#""r0";r=4;t=2880, "r1";r=4;t=2880, "r2";r=3;t=2160"#)
    );
}

// An expired window is over: nothing comes back into the next one.
#[test]
fn nothing_is_given_back_into_another_window() {
    let quota = r#"{"limit": 2, "window": "1h", "algorithm": "fixed-window"}"#;
    let mut surface = guarded(RESERVE, quota);
    let late = sent(&mut surface, 3_599_000).unwrap();
    assert!(sent(&mut surface, 3_600_000).is_some() && sent(&mut surface, 3_600_000).is_some());
    answered(&mut surface, late, 200, 3_600_001);
    assert!(sent(&mut surface, 3_600_002).is_none(), "two were let through in this hour");
}

// A shadow rule holds and gives back, too; otherwise its numbers would not be those of the rule
// once it is enforced.
#[test]
fn a_shadow_counts_as_if_it_were_enforced() {
    let held = format!(
        r#""mode": "shadow", "charge": {{"response_status": ["401"], "reserve": true}}, "quotas": [{FIVE}]"#
    );
    let mut surface = Surfaced::new(&rules(&[&held]));
    let mut results = vec![];
    let mut under_way = vec![];
    for _ in 0..7 {
        under_way.push(sent(&mut surface, 0).unwrap());
        let plan = under_way.last().unwrap();
        results.extend(plan.outcome(&surface.policy).rules().map(|(_, result)| result));
    }
    let shadowed = results.iter().filter(|result| **result == RuleResult::Shadowed);
    assert_eq!(shadowed.count(), 2);
    let given =
        under_way.into_iter().filter_map(|plan| answered(&mut surface, plan, 200, 0).then_some(()));
    assert_eq!(given.count(), 5, "two held nothing");
}

const ALGORITHMS: [&str; 7] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];

const KEEP_HOLDS: [&str; 3] = ["gcra", "token-bucket", "leaky-bucket"];

/// The case that was reported: under 30 per minute ten clients send one request after the other,
/// whose responses take half a second and are not charged. Each second 20 of them pass.
#[test]
fn requests_that_are_never_charged_use_nothing_up() {
    for algorithm in ALGORITHMS {
        let quota = format!(r#"{{"limit": 30, "window": "1m", "algorithm": "{algorithm}"}}"#);
        let mut surface = guarded(RESERVE, &quota);
        let mut objects = guarded(RESERVE, &quota);
        let mut counts = Counts::default();
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for millis in (7_200_000..7_320_000).step_by(500) {
            for (client, plan) in std::mem::take(&mut here).into_iter().enumerate() {
                answered(&mut surface, plan, 200, millis + client as u64);
            }
            for (client, plan) in std::mem::take(&mut there).into_iter().enumerate() {
                settled_there(&objects, &mut counts, plan, 200, millis + client as u64);
            }
            for client in 0..10 {
                let passed = sent(&mut surface, millis + client);
                here.push(passed.unwrap_or_else(|| panic!("{algorithm}: denied at {millis}")));
                let passed = sent_there(&mut objects, &mut counts, millis + client);
                there.push(passed.unwrap_or_else(|| panic!("{algorithm}: denied at {millis}")));
            }
        }
    }
}

/// Responses of 5 s under 600 per minute and a burst of 10: charged requests pass at the rate of
/// the limit, although 50 requests are in progress.
#[test]
fn the_rate_is_the_limit_however_long_responses_take() {
    for algorithm in KEEP_HOLDS {
        let quota =
            format!(r#"{{"limit": 600, "window": "1m", "burst": 10, "algorithm": "{algorithm}"}}"#);
        let mut surface = guarded(RESERVE, &quota);
        let (mut under_way, mut passed) = (std::collections::VecDeque::new(), 0);
        for millis in (7_200_000..7_320_000_u64).step_by(20) {
            while under_way.front().is_some_and(|(due, _)| *due <= millis) {
                let (_, plan) = under_way.pop_front().unwrap();
                answered(&mut surface, plan, 401, millis);
            }
            if let Some(plan) = sent(&mut surface, millis) {
                under_way.push_back((millis + 5_000, plan));
                passed += 1;
            }
        }
        assert!((1_195..=1_209).contains(&passed), "{algorithm}: {passed} in two minutes");
    }
}

/// As [`sent`], where an object counts.
fn sent_there(surface: &mut Surfaced, counts: &mut Counts, millis: u64) -> Option<Plan> {
    let Surfaced { policy, plan, .. } = surface;
    policy.plan(&login(), plan);
    let mut request = vec![];
    plan.partition(0).unwrap().request(policy, &mut request);
    let answered = counts.answer(&request, Timestamp::from_millis(millis)).unwrap();
    plan.partition_mut(0).unwrap().accept(policy, &answered.reply).unwrap();
    (plan.outcome(policy).disposition() == Disposition::Allow).then(|| std::mem::take(plan))
}

fn settled_there(
    surface: &Surfaced,
    counts: &mut Counts,
    mut plan: Plan,
    status: u16,
    millis: u64,
) {
    if plan.settle(&surface.policy, Ending::Response(status), &()) {
        let mut request = vec![];
        plan.partition(0).unwrap().settle_request(&surface.policy, &mut request);
        assert!(counts.answer(&request, Timestamp::from_millis(millis)).unwrap().is_changed);
        // A row is read as it was written.
        let mut row = vec![];
        counts.encode(Timestamp::ZERO, &mut row);
        assert_eq!(Counts::decode(&row).as_ref(), Some(&*counts));
    }
}

proptest! {
    /// Guesses and their responses in any order, some without a response: at most the limit ever
    /// fail, and once every response was a success at one time the count is as if no request had
    /// come.
    #[test]
    fn no_order_of_answers_admits_more_than_the_limit(
        algorithm in 0..ALGORITHMS.len(),
        limit in 1..6_usize,
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8), 1..80),
    ) {
        let quota = format!(r#"{{"limit": {limit}, "window": "1h", "algorithm": "{}"}}"#, ALGORITHMS[algorithm]);
        let mut surface = guarded(RESERVE, &quota);
        let (mut under_way, mut failed) = (vec![], 0);
        for (index, step) in steps {
            if step < 3 || under_way.is_empty() {
                under_way.extend(sent(&mut surface, 7_200_000));
            } else {
                let plan = under_way.swap_remove(index.index(under_way.len()));
                let ending = if step == 3 { Ending::Response(200) } else { Ending::Disconnect };
                failed += usize::from(ending == Ending::Disconnect);
                surface.plan = plan;
                surface.end(ending, 7_200_000);
            }
            prop_assert!(under_way.len() + failed <= limit);
        }
        for plan in under_way {
            answered(&mut surface, plan, 200, 7_200_000);
        }
        let mut left = 0;
        while left <= limit && sent(&mut surface, 7_200_000).is_some() {
            left += 1;
        }
        prop_assert_eq!(left + failed, limit, "every place that was not used up came back");
    }

    /// The Worker settles in the object, by the bytes of the wire: the same value as here.
    #[test]
    fn an_object_settles_as_the_plan_does(
        algorithm in 0..ALGORITHMS.len(),
        before in 0..4_u64,
        later in 0..4_000_000_u64,
        ending in prop::sample::select(vec![
            Ending::Response(200), Ending::Response(401), Ending::Disconnect, Ending::NotSent,
        ]),
    ) {
        let quota = format!(r#"{{"limit": 5, "window": "1h", "algorithm": "{}"}}"#, ALGORITHMS[algorithm]);
        let held = format!(r#""charge": {{"response_status": ["401"], "reserve": true, "on_abort": "skip"}}, "quotas": [{quota}]"#);
        let charged_later = format!(r#""charge": {{"response_status": ["2xx"]}}, "quotas": [{quota}]"#);
        let mut surface = Surfaced::new(&rules(&[&held, &charged_later]));
        for millis in 0..before {
            let _ = sent(&mut surface, 7_200_000 + millis);
        }
        let now = 7_200_000 + before;
        let mut plan = sent(&mut surface, now).unwrap();
        let key = plan.partition(0).unwrap().key().to_vec();
        let stored = surface.store[&key].clone();
        let policy = &surface.policy;
        let group = &policy.groups()[0];
        let mut counts = group.counts_of(policy, &stored).unwrap();
        prop_assert!(plan.settle(policy, ending, &()) || ending == Ending::Response(401));
        let mut request = vec![];
        plan.partition(0).unwrap().settle_request(policy, &mut request);
        // Used units are settled, too, where the count stores held units separately.
        let is_settled = ending != Ending::Response(401) || KEEP_HOLDS.contains(&ALGORITHMS[algorithm]);
        prop_assert_eq!(plan.partition(0).unwrap().gives_back(), plan.partition(0).unwrap().applies() && is_settled);
        let now = Timestamp::from_millis(now + later);
        let answered = counts.answer(&request, now).unwrap();
        plan.partition_mut(0).unwrap().load(policy, Some(&stored));
        plan.decide(policy, now);
        let expected = group.counts_of(policy, plan.partition(0).unwrap().value()).unwrap();
        let kept = |counts: &Counts| {
            let mut row = vec![];
            counts.encode(Timestamp::ZERO, &mut row);
            row[26..].to_vec()
        };
        prop_assert_eq!(kept(&counts), kept(&expected));
        prop_assert_eq!(answered.is_changed, plan.partition(0).unwrap().changed());
        prop_assert!(plan.partition_mut(0).unwrap().accept(policy, &answered.reply).is_ok());
    }
}
