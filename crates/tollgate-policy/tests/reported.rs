//! `"cost": "reported"`: a descriptor's hits were used already, and are recorded whatever the
//! decision is.

use crate::support::{Request, Surfaced, seen};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, GivenKey, Partition, Plan, Policy, Surface};
use tollgate_storage::{Counts, KeyOperation};

const DENIED: Disposition = Disposition::Deny { status: 429 };

/// A descriptor of one user, with this many hits.
fn asked(hits: u64) -> Request {
    Request {
        domain: Some("llm"),
        entries: vec![("user", "ada"), ("model", "big")],
        hits: Some(hits),
        ..Request::default()
    }
}

/// A policy of a budget of 1,000 tokens per minute for each user, and other rules.
fn budget(fields: &str, others: &str) -> String {
    format!(
        r#"{{"version": 1, "rules": [{{"name": "tokens", "when": {{"domain": "llm"}}, "key": [{{"descriptor": "user"}}],
            "cost": "reported", "quotas": [{{"limit": 1000, "window": "1m"}}]{fields}}}{others}]}}"#
    )
}

/// Counts that decide the partitions of a plan, as the server and its stores do.
#[derive(Default)]
struct Elsewhere(std::collections::BTreeMap<Vec<u8>, Counts>);

impl Elsewhere {
    fn ask(
        &mut self,
        (policy, plan): (&Policy, &mut Plan),
        write: impl Fn(Partition<'_>, &mut Vec<u8>),
        millis: u64,
    ) {
        for i in 0..plan.len() {
            let mut request = Vec::new();
            let partition = plan.partition(i).unwrap();
            write(partition, &mut request);
            let counts = self.0.entry(partition.key().to_vec()).or_default();
            let answered = counts.answer(&request, Timestamp::from_millis(millis)).unwrap();
            plan.partition_mut(i).unwrap().accept(policy, &answered.reply).unwrap();
        }
    }

    /// Decides a request as `Plan::decide` does on one store.
    fn check(&mut self, policy: &Policy, request: &Request, millis: u64) -> Disposition {
        let mut plan = Plan::new();
        policy.plan(request, &mut plan);
        self.ask((policy, &mut plan), |it, out| it.peek_request(policy, out), millis);
        if matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. }) {
            if plan.waiting(policy).is_decided_once() {
                self.ask((policy, &mut plan), |it, out| it.report_request(policy, out), millis);
            }
        } else {
            self.ask((policy, &mut plan), |it, out| it.request(policy, out), millis);
        }
        plan.outcome(policy).disposition()
    }
}

#[test]
fn a_budget_ends_though_its_last_report_did_not_fit() {
    let policy = budget("", "");
    let mut surface = Surfaced::on(&policy, Surface::Server);
    let mut elsewhere = Elsewhere::default();
    let compiled = tollgate_language::compile(&policy, Surface::Server).unwrap();
    // Three reports of 300 fit; the fourth is used up to 1,200: a peek is denied until 201 are
    // back.
    let mut passed = 0;
    for i in 0..11 {
        let answer = surface.check(&asked(0), i).answer;
        assert_eq!(elsewhere.check(&compiled, &asked(0), i), answer, "request {i}");
        if answer == Disposition::Allow {
            passed += 1;
            let answer = surface.check(&asked(300), i).answer;
            assert_eq!(answer, Disposition::Allow, "the look before it was not over the limit");
            assert_eq!(elsewhere.check(&compiled, &asked(300), i), answer);
        }
    }
    assert_eq!(passed, 4);
    let denied = surface.check(&asked(0), 20);
    assert_eq!(denied.answer, DENIED);
    assert_eq!(denied.header("retry-after"), Some("13")); // 201 units of 60 ms, less 20 ms
    assert_eq!(surface.check(&asked(0), 20 + 12_039).answer, DENIED);
    assert_eq!(surface.check(&asked(0), 20 + 12_060).answer, Disposition::Allow);
}

#[test]
fn a_report_is_recorded_whatever_it_is_answered() {
    // Over the limit already: 1,200 are used, and 100 more are.
    let mut surface = Surfaced::on(&budget("", ""), Surface::Server);
    assert_eq!(surface.check(&asked(1200), 0).answer, Disposition::Allow);
    let denied = surface.check(&asked(100), 0);
    assert_eq!(denied.answer, DENIED);
    assert_eq!(denied.header("retry-after"), Some("19")); // 301 units of 60 ms, after the report
    // Absent hits are one.
    let mut surface = Surfaced::on(&budget("", ""), Surface::Server);
    let one = surface.check(&Request { hits: None, ..asked(0) }, 0);
    assert_eq!(one.header("ratelimit"), Some("\"tokens\";r=999;t=59"));
    let looked = surface.check(&asked(0), 0);
    assert_eq!(looked.header("ratelimit"), Some("\"tokens\";r=999;t=59"));
}

#[test]
fn a_report_is_recorded_whatever_other_rules_decide() {
    let calls = r#", {"name": "calls", "when": {"domain": "llm"}, "key": [KEY], "quotas": [{"limit": 2, "window": "1m"}]}"#;
    for (key, partitions) in [(r#"{"descriptor": "user"}"#, 1), (r#"{"descriptor": "model"}"#, 2)] {
        let policy = budget("", &calls.replace("KEY", key));
        let compiled = tollgate_language::compile(&policy, Surface::Server).unwrap();
        let (mut surface, mut elsewhere) =
            (Surfaced::on(&policy, Surface::Server), Elsewhere::default());
        for (i, (hits, expected, left)) in [
            (2, Disposition::Allow, "\"tokens\";r=998;t=59, \"calls\";r=0;t=30"),
            (500, DENIED, "\"tokens\";r=498;t=29, \"calls\";r=0;t=30"),
            (600, DENIED, "\"tokens\";r=0;t=7, \"calls\";r=0;t=30"),
            (0, DENIED, "\"tokens\";r=0;t=7, \"calls\";r=0;t=30"),
        ]
        .into_iter()
        .enumerate()
        {
            let seen = surface.check(&asked(hits), 0);
            assert_eq!(surface.plan.len(), partitions);
            assert_eq!(seen.answer, expected, "{i}");
            assert_eq!(seen.header("ratelimit"), Some(left), "{i}");
            assert_eq!(elsewhere.check(&compiled, &asked(hits), 0), expected, "{i}");
        }
    }
}

#[test]
fn a_report_is_recorded_in_shadow_and_where_another_rule_lacks_its_key() {
    let mut surface = Surfaced::on(&budget(r#", "mode": "shadow""#, ""), Surface::Server);
    assert_eq!(surface.check(&asked(2000), 0).answer, Disposition::Allow);
    let result = |surface: &Surfaced| {
        let outcome = surface.plan.outcome(&surface.policy);
        outcome.decisions().next().unwrap().result
    };
    assert_eq!(surface.check(&asked(0), 0).answer, Disposition::Allow);
    assert_eq!(result(&surface).label(), "shadowed");
    // A rule that denies requests without its key denies them before anything is loaded; not a
    // report.
    let keyed = r#", {"name": "keyed", "when": {"domain": "llm"}, "key": [{"descriptor": "none"}],
        "on_missing": "deny", "quotas": [{"limit": 2, "window": "1m"}]}"#;
    let mut surface = Surfaced::on(&budget("", keyed), Surface::Server);
    assert_ne!(surface.check(&asked(2000), 0).answer, Disposition::Allow);
    assert_eq!(surface.store.len(), 1, "the report is stored");
    assert_ne!(surface.check(&asked(0), 0).answer, Disposition::Allow);
}

#[test]
fn a_look_charges_nothing_and_nothing_takes_a_report_back() {
    let policy = budget("", "");
    let policy = tollgate_language::compile(&policy, Surface::Server).unwrap();
    let (mut plan, now) = (Plan::new(), Timestamp::from_millis(1));
    policy.plan(&asked(400), &mut plan);
    assert!(plan.waiting(&policy).is_decided_once());
    plan.partition_mut(0).unwrap().load(&policy, None);
    let unused = plan.partition(0).unwrap().value().to_vec();
    plan.waiting_mut(&policy).look(now);
    assert!(!plan.partition(0).unwrap().changed());
    assert_eq!(plan.partition(0).unwrap().value(), unused);
    plan.decide(&policy, now);
    let partition = plan.partition(0).unwrap();
    assert!(partition.changed() && !partition.is_charged());
    assert_ne!(partition.value(), unused);
    let stored = partition.value().to_vec();
    assert!(plan.partition_mut(0).unwrap().refund(&policy, now));
    assert_eq!(plan.partition(0).unwrap().value(), stored);
    assert_eq!(seen(&policy, &plan, Span::ZERO).header("ratelimit"), Some("\"tokens\";r=600;t=36"));
    // The same for counts elsewhere.
    let mut counts = Counts::default();
    let mut request = Vec::new();
    policy.plan(&asked(400), &mut plan);
    plan.partition(0).unwrap().request(&policy, &mut request);
    let answered = counts.answer(&request, now).unwrap();
    assert!(answered.is_changed);
    let before = counts.clone();
    assert!(!counts.refund(&request, &answered.reply, now).unwrap().is_changed);
    assert_eq!(counts, before);
}

#[test]
fn a_blocked_key_is_reported_all_the_same() {
    let policy = tollgate_language::compile(&budget("", ""), Surface::Server).unwrap();
    let mut elsewhere = Elsewhere::default();
    let operate = |elsewhere: &mut Elsewhere, operation, millis| {
        let key = GivenKey::new(&policy, "tokens", &["ada".into()]).unwrap();
        let mut request = Vec::new();
        key.request(&policy, operation, &mut request);
        let counts = elsewhere.0.entry(key.bytes().to_vec()).or_default();
        counts.operate(&request, Timestamp::from_millis(millis)).unwrap();
    };
    let until = KeyOperation::Block(Timestamp::from_millis(5_000));
    operate(&mut elsewhere, until, 0);
    assert_eq!(elsewhere.check(&policy, &asked(1_200), 1_000), DENIED);
    assert_eq!(elsewhere.check(&policy, &asked(0), 5_001), DENIED, "201 units are not back");
    assert_eq!(elsewhere.check(&policy, &asked(0), 13_061), Disposition::Allow);
}
