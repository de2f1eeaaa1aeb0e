//! Penalties: which denials start one, and the response while it runs.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Ending, Plan, RuleResult};

use crate::support::{Surfaced, get, seen};

const LOGIN: &str = r#"{"version": 1, "rules": [
    {"name": "login", "when": {"paths": ["/login"]}, "key": ["client_ip"],
     "quotas": [{"limit": 2, "window": "10s", "algorithm": "sliding-log", "penalty": ["1m", "10m"]}]}]}"#;

#[test]
fn a_denial_denies_for_the_time_of_its_step_and_no_denial_extends_it() {
    let mut surface = Surfaced::new(LOGIN);
    let request = get("/login", "192.0.2.1");
    for _ in 0..2 {
        assert_eq!(surface.check(&request, 1_000).answer, Disposition::Allow);
    }
    let first = surface.check(&request, 2_000);
    assert_eq!(first.answer, Disposition::Deny { status: 429 });
    assert_eq!(first.header("retry-after"), Some("60"));
    assert_eq!(first.header("ratelimit"), Some(r#""login";r=0;t=60"#));
    assert_eq!(
        first.body.as_deref(),
        Some(
            r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"detail":"try again in 60 seconds","violated-policies":["login"]}"#
        )
    );
    for millis in (2_000..62_000).step_by(1_000) {
        let denied = surface.check(&request, millis);
        let left = ((62_000 - millis) / 1_000).to_string();
        assert_eq!(denied.header("retry-after"), Some(&*left), "{millis}");
    }
    assert_eq!(surface.check(&request, 61_999).header("retry-after"), Some("1"));
    // The window is empty by then, and the second step follows within ten minutes.
    for _ in 0..2 {
        assert_eq!(surface.check(&request, 62_000).answer, Disposition::Allow);
    }
    assert_eq!(surface.check(&request, 62_000).header("retry-after"), Some("600"));
    // The longest step after its end the steps are forgotten.
    for _ in 0..2 {
        assert_eq!(surface.check(&request, 1_262_000).answer, Disposition::Allow);
    }
    assert_eq!(surface.check(&request, 1_262_000).header("retry-after"), Some("60"));
    // Another client is none of it.
    assert_eq!(surface.check(&get("/login", "192.0.2.2"), 1_262_000).answer, Disposition::Allow);
}

/// The results of the rules for a request at this time.
fn results(surface: &mut Surfaced, path: &str, millis: u64) -> Vec<RuleResult> {
    let mut plan = Plan::new();
    surface.policy.plan(&get(path, "192.0.2.1"), &mut plan);
    for i in 0..plan.len() {
        let mut partition = plan.partition_mut(i).unwrap();
        let stored = surface.store.get(partition.key()).cloned();
        partition.load(&surface.policy, stored.as_deref());
    }
    plan.decide(&surface.policy, Timestamp::from_millis(millis));
    for partition in plan.partitions().filter(|partition| partition.changed()) {
        surface.store.insert(partition.key().to_vec(), partition.value().to_vec());
    }
    let results = plan.outcome(&surface.policy).rules().map(|(_, result)| result).collect();
    let _ = seen(&surface.policy, &plan, Span::ZERO);
    results
}

#[test]
fn only_the_quota_that_denies_punishes_and_only_where_it_is_enforced() {
    use RuleResult::{Allowed, Denied, Penalised, Shadowed};
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
        {"name": "plain", "when": {"paths": ["/plain/**"]}, "key": [], "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "hard", "when": {"paths": ["/plain/hard", "/hard"]}, "key": ["client_ip"],
         "quotas": [{"limit": 2, "window": "1m", "algorithm": "fixed-window", "penalty": "1h"}]},
        {"name": "watched", "when": {"paths": ["/watched"]}, "key": ["path", "client_ip"], "mode": "shadow",
         "quotas": [{"limit": 1, "window": "1s", "penalty": "1h"}]}]}"#,
    );
    assert_eq!(results(&mut surface, "/plain/hard", 0), [Allowed, Allowed]);
    for _ in 0..10 {
        assert_eq!(
            results(&mut surface, "/plain/hard", 1),
            [Denied, Allowed],
            "another rule denies"
        );
    }
    assert_eq!(results(&mut surface, "/hard", 1), [Allowed]);
    // Both deny: the key of the one has its penalty, the key of the other none.
    assert_eq!(results(&mut surface, "/plain/hard", 1), [Denied, Penalised]);
    assert_eq!(results(&mut surface, "/hard", 120_000), [Penalised], "the window is over");
    assert_eq!(results(&mut surface, "/plain/other", 120_000), [Allowed]);
    assert_eq!(results(&mut surface, "/hard", 3_600_001), [Allowed], "and so is the hour");
    for (millis, expected) in [(0, Allowed), (0, Shadowed), (999, Shadowed), (1_000, Allowed)] {
        assert_eq!(results(&mut surface, "/watched", millis), [expected]);
    }
}

#[test]
fn failed_logins_that_are_still_in_progress_are_no_offence() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
        {"name": "login", "key": ["client_ip"], "charge": {"response_status": ["401"], "reserve": true, "on_abort": "skip"},
         "quotas": [{"limit": 3, "window": "1h", "burst": 3, "penalty": "10m"}]}]}"#,
    );
    let mut running = Vec::new();
    let ask = |surface: &mut Surfaced, millis| {
        let mut plan = Plan::new();
        surface.policy.plan(&get("/", "192.0.2.1"), &mut plan);
        let key = plan.partition(0).unwrap().key().to_vec();
        let stored = surface.store.get(&key).cloned();
        plan.partition_mut(0).unwrap().load(&surface.policy, stored.as_deref());
        plan.decide(&surface.policy, Timestamp::from_millis(millis));
        let partition = plan.partition(0).unwrap();
        if partition.changed() {
            surface.store.insert(key, partition.value().to_vec());
        }
        plan
    };
    let result =
        |surface: &Surfaced, plan: &Plan| plan.outcome(&surface.policy).rules().next().unwrap().1;
    for _ in 0..3 {
        let plan = ask(&mut surface, 0);
        assert_eq!(result(&surface, &plan), RuleResult::Allowed);
        running.push(plan);
    }
    let fourth = ask(&mut surface, 10);
    assert_eq!(result(&surface, &fourth), RuleResult::Denied, "three are in progress");
    assert!(!fourth.partition(0).unwrap().changed());
    for mut plan in running {
        assert!(plan.settle(&surface.policy, Ending::Response(401), &()));
        let key = plan.partition(0).unwrap().key().to_vec();
        let stored = surface.store.get(&key).cloned();
        plan.partition_mut(0).unwrap().load(&surface.policy, stored.as_deref());
        plan.decide(&surface.policy, Timestamp::from_millis(20));
        surface.store.insert(key, plan.partition(0).unwrap().value().to_vec());
    }
    let fifth = ask(&mut surface, 30);
    assert_eq!(result(&surface, &fifth), RuleResult::Penalised, "three have failed");
    let late = ask(&mut surface, 30 + 600_000);
    assert_eq!(
        result(&surface, &late),
        RuleResult::Penalised,
        "the next offence: 1 unit comes back in 20 min"
    );
}

#[test]
fn a_lost_race_takes_one_step_and_never_charges_half_a_request() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
        {"name": "all", "key": [], "quotas": [{"limit": 100, "window": "1m"}]},
        {"name": "each", "key": ["client_ip"],
         "quotas": [{"limit": 1, "window": "10s", "penalty": ["1m", "10m"]}]}]}"#,
    );
    let at = Timestamp::from_millis;
    assert_eq!(surface.check(&get("/", "192.0.2.1"), 0).answer, Disposition::Allow);
    let decided = |surface: &Surfaced| {
        let mut plan = Plan::new();
        surface.policy.plan(&get("/", "192.0.2.1"), &mut plan);
        for i in 0..plan.len() {
            let mut partition = plan.partition_mut(i).unwrap();
            let stored = surface.store.get(partition.key()).cloned();
            partition.load(&surface.policy, stored.as_deref());
        }
        plan.decide(&surface.policy, at(10));
        plan
    };
    let (winner, mut loser, mut late) = (decided(&surface), decided(&surface), decided(&surface));
    let value = |plan: &Plan| plan.partition(1).unwrap().value().to_vec();
    assert!(loser.partition(1).unwrap().changed() && !loser.partition(0).unwrap().changed());
    // Another process was faster: its penalty runs, and it is the only step.
    let policy = &surface.policy;
    loser.partition_mut(1).unwrap().load(policy, Some(&value(&winner)));
    assert!(loser.partition_mut(1).unwrap().redecide(policy, at(20)), "nothing is to be refunded");
    assert!(!loser.partition(1).unwrap().changed());
    assert_eq!(
        loser.outcome(policy).retry_after(),
        Some(Span::from_millis(59_990)),
        "of the winner"
    );
    assert_eq!(value(&loser), value(&winner));
    // The unit came back meanwhile: the request stays denied, as the other key was not charged.
    late.partition_mut(1).unwrap().load(policy, None);
    assert!(late.partition_mut(1).unwrap().redecide(policy, at(20)));
    assert!(!late.partition(1).unwrap().changed());
    assert!(matches!(late.outcome(policy).disposition(), Disposition::Deny { .. }));
}
