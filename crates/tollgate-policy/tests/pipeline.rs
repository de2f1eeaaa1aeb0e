//! The pipeline from document to response, as a surface runs it, on an in-memory store.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Failure, Plan, RuleResult, Surface};
use tollgate_storage::Counts;

use crate::support::{Request, Surfaced, get, seen};

const PER_CLIENT: &str = r#"{"version": 1, "rules": [
    {"name": "api", "when": {"paths": ["/api/**"], "methods": ["GET", "POST"]}, "key": ["client_ip"],
     "quotas": [{"name": "burst", "limit": 2, "window": "2s"}, {"name": "day", "limit": 3, "window": "1d"}]}]}"#;

#[test]
fn a_client_is_admitted_up_to_its_quota_and_told_the_numbers() {
    let mut surface = Surfaced::new(PER_CLIENT);
    let request = get("/api/x?q=1", "192.0.2.1");
    let first = surface.check(&request, 10_000);
    assert_eq!(first.answer, Disposition::Allow);
    assert_eq!(
        first.headers,
        [
            ("ratelimit-policy", r#""burst";q=2;w=2, "day";q=3;w=86400"#.to_string()),
            ("ratelimit", r#""burst";r=1;t=1, "day";r=2;t=57600"#.to_string()),
        ]
    );
    assert_eq!(surface.check(&request, 10_000).answer, Disposition::Allow);
    let third = surface.check(&request, 10_000);
    assert_eq!(third.answer, Disposition::Deny { status: 429 });
    assert_eq!(third.header("retry-after"), Some("1"));
    assert_eq!(third.header("cache-control"), Some("no-store"));
    assert_eq!(third.header("content-type"), Some("application/problem+json"));
    assert_eq!(third.header("ratelimit"), Some(r#""burst";r=0;t=1, "day";r=1;t=28800"#));
    assert_eq!(
        third.body.as_deref(),
        Some(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"try again in 1 second","violated-policies":["burst"]}"#
        )
    );
    // The denial was charged to neither quota: the day still has its third unit a second later.
    assert_eq!(surface.check(&request, 11_000).answer, Disposition::Allow);
    assert_eq!(surface.check(&request, 13_000).answer, Disposition::Deny { status: 429 });
    // Another client is another key; one /64 is one client.
    assert_eq!(surface.check(&get("/api/x", "2001:db8::1"), 13_000).answer, Disposition::Allow);
    assert_eq!(surface.check(&get("/api/x", "2001:db8::2"), 13_000).answer, Disposition::Allow);
    let same = surface.check(&get("/api/x", "2001:db8::3"), 13_000);
    assert_eq!(same.answer, Disposition::Deny { status: 429 });
}

#[test]
fn a_rule_applies_to_its_paths_and_methods_only() {
    let mut surface = Surfaced::new(PER_CLIENT);
    for (method, target, applies) in [
        ("GET", "/api", true),
        ("POST", "/api/1/2", true),
        ("DELETE", "/api/1", false),
        ("get", "/api/1", true), // Werkzeug and Django serve it as GET
        ("GET", "/apis", false),
        ("GET", "//x/..//%61pi/1", true),
    ] {
        let mut request = get("/", "192.0.2.1");
        (request.method, request.target) = (method, target.to_string());
        let headers = surface.check(&request, 1).headers;
        assert_eq!(!headers.is_empty(), applies, "{method} {target}");
        surface.store.clear();
    }
}

const TWO_KEYS: &str = r#"{"version": 1, "rules": [
    {"name": "key", "key": [{"header": "X-Api-Key"}], "quotas": [{"limit": 10, "window": "1m"}]},
    {"name": "ip", "key": ["client_ip"], "on_failure": "deny", "quotas": [{"limit": 1, "window": "1m"}]}]}"#;

fn with_key(ip: &str, key: &[u8]) -> Request {
    get("/", ip).header("x-api-key", key)
}

#[test]
fn what_one_key_denies_is_charged_to_no_other() {
    let mut surface = Surfaced::new(TWO_KEYS);
    let request = with_key("192.0.2.1", b"\xff\xfe not UTF-8");
    assert_eq!(surface.check(&request, 0).answer, Disposition::Allow);
    for _ in 0..20 {
        let denied = surface.check(&request, 0);
        assert_eq!(denied.header("ratelimit"), Some(r#""key";r=9;t=54, "ip";r=0;t=60"#));
    }
    for ip in 2..11 {
        let admitted = surface.check(&with_key(&format!("192.0.2.{ip}"), b"\xff\xfe not UTF-8"), 0);
        assert_eq!(admitted.answer, Disposition::Allow);
    }
}

#[test]
fn a_request_without_the_header_skips_the_rule() {
    let mut surface = Surfaced::new(TWO_KEYS);
    let seen = surface.check(&get("/", "192.0.2.1"), 0);
    assert_eq!(seen.header("ratelimit-policy"), Some(r#""ip";q=1;w=60"#));
}

#[test]
fn a_failed_partition_answers_as_its_rule_says() {
    let surface = Surfaced::new(TWO_KEYS);
    let mut plan = Plan::new();
    surface.policy.plan(&with_key("192.0.2.1", b"k"), &mut plan);
    assert_eq!(plan.len(), 2);
    plan.partition_mut(0).unwrap().fail(Failure::Unreachable);
    plan.partition_mut(1).unwrap().load(&surface.policy, None);
    plan.decide(&surface.policy, Timestamp::ZERO);
    assert_eq!(seen(&surface.policy, &plan, Span::ZERO).answer, Disposition::Allow);
    assert!(!plan.partition(0).unwrap().changed());
    assert!(plan.partition(1).unwrap().changed());
    let results: Vec<_> = plan.outcome(&surface.policy).rules().collect();
    assert_eq!(results, [(0, RuleResult::Failed), (1, RuleResult::Allowed)]);

    surface.policy.plan(&with_key("192.0.2.1", b"k"), &mut plan);
    plan.partition_mut(0).unwrap().load(&surface.policy, None);
    plan.partition_mut(1).unwrap().fail(Failure::Contended);
    plan.decide(&surface.policy, Timestamp::ZERO);
    let refused = seen(&surface.policy, &plan, Span::ZERO);
    assert_eq!(refused.answer, Disposition::Deny { status: 503 });
    assert_eq!(refused.header("retry-after"), None);
    assert!(refused.body.unwrap().contains("#temporary-reduced-capacity\""));
    assert!(!plan.partition(0).unwrap().changed(), "a refused request is charged nowhere");
}

#[test]
fn a_lost_race_is_decided_again_and_rolled_back() {
    let surface = Surfaced::new(TWO_KEYS);
    let (policy, now) = (&surface.policy, Timestamp::from_millis(5));
    let mut plan = Plan::new();
    policy.plan(&with_key("192.0.2.1", b"k"), &mut plan);
    plan.partition_mut(0).unwrap().load(policy, None);
    plan.partition_mut(1).unwrap().load(policy, None);
    plan.decide(policy, now);
    let (committed, theirs) =
        (plan.partition(0).unwrap().value().to_vec(), plan.partition(1).unwrap().value().to_vec());
    // Another worker took the only unit of partition 1 meanwhile.
    plan.partition_mut(1).unwrap().load(policy, Some(&theirs));
    assert!(!plan.partition_mut(1).unwrap().redecide(policy, now));
    plan.partition_mut(0).unwrap().load(policy, Some(&committed));
    // Its commit loses a race, too: another worker wrote the same value again.
    plan.partition_mut(0).unwrap().refund(policy, now);
    let refunded = plan.partition(0).unwrap().value().to_vec();
    plan.partition_mut(0).unwrap().load(policy, Some(&committed));
    plan.partition_mut(0).unwrap().refund(policy, now);
    assert_eq!(
        plan.partition(0).unwrap().value(),
        refunded,
        "nothing is forgotten by a race that was lost"
    );
    plan.partition_mut(0).unwrap().refunded(policy, now);
    let refused = seen(policy, &plan, Span::ZERO);
    assert_eq!(refused.answer, Disposition::Deny { status: 429 });
    assert_eq!(refused.header("ratelimit"), Some(r#""key";r=10;t=60, "ip";r=0;t=60"#));
    plan.partition_mut(0).unwrap().load(policy, Some(&refunded));
    assert!(plan.partition_mut(0).unwrap().redecide(policy, now));
    assert_eq!(
        plan.partition(0).unwrap().value(),
        committed,
        "refunded and charged again is charged once"
    );
}

#[test]
fn a_partition_decided_elsewhere_gives_the_same_outcome() {
    let mut surface = Surfaced::new(PER_CLIENT);
    let request = get("/api/x", "192.0.2.1");
    let elsewhere = Surfaced::new(PER_CLIENT);
    let policy = &elsewhere.policy;
    let (mut plan, mut counts) = (Plan::new(), Counts::default());
    for millis in [0, 0, 0, 900, 1000, 1999, 2000, 90_000_000] {
        policy.plan(&request, &mut plan);
        let mut asked = Vec::new();
        plan.partition(0).unwrap().request(policy, &mut asked);
        let answered = counts.answer(&asked, Timestamp::from_millis(millis)).unwrap().reply;
        plan.partition_mut(0).unwrap().accept(policy, &answered).unwrap();
        assert_eq!(
            seen(policy, &plan, Span::ZERO),
            surface.check(&request, millis),
            "at {millis} ms"
        );
        for cut in 0..answered.len() {
            assert!(plan.partition_mut(0).unwrap().accept(policy, &answered[..cut]).is_err());
        }
        let before = counts.clone();
        for cut in 0..asked.len() {
            let nobody_asks = cut == 25; // the head alone, of no rule
            let answered = counts.answer(&asked[..cut], Timestamp::from_millis(millis));
            assert_eq!(answered.is_ok(), nobody_asks, "{cut}");
        }
        assert_eq!(counts, before);
    }
}

#[test]
fn changing_one_rule_keeps_the_counts_of_the_others() {
    let two = |limit: u32| {
        format!(
            r#"{{"version": 1, "rules": [
            {{"name": "a", "key": ["client_ip"], "quotas": [{{"limit": {limit}, "window": "1h"}}]}},
            {{"name": "b", "key": ["client_ip"], "quotas": [{{"limit": 5, "window": "1h", "algorithm": "sliding-log"}}]}}]}}"#
        )
    };
    let mut surface = Surfaced::new(&two(10));
    let request = get("/", "192.0.2.1");
    surface.check(&request, 0);
    surface.check(&request, 0);
    surface.policy = tollgate_language::compile(&two(20), Surface::Envoy).unwrap();
    let seen = surface.check(&request, 0);
    assert_eq!(seen.header("ratelimit"), Some(r#""a";r=19;t=3420, "b";r=2;t=1440"#));
}

#[test]
fn stored_bytes_of_any_kind_never_fail() {
    let surface = Surfaced::new(PER_CLIENT);
    let (policy, mut plan) = (&surface.policy, Plan::new());
    let len = policy.groups()[0].value_len();
    for filler in [0_u8, 1, 0x7f, 0xff] {
        for stored in [vec![filler; len], vec![filler; len + 3], vec![filler; 5], vec![]] {
            policy.plan(&get("/api/x", "192.0.2.1"), &mut plan);
            plan.partition_mut(0).unwrap().load(policy, Some(&stored));
            plan.decide(policy, Timestamp::from_millis(1));
            assert_eq!(plan.partition(0).unwrap().value().len(), len);
            let _ = policy.groups()[0].idle_at(policy, &stored);
        }
    }
}

#[test]
fn a_value_of_an_earlier_layout_is_not_idle_before_its_time() {
    let rule = |name: &str| {
        format!(
            r#"{{"name": "{name}", "key": ["client_ip"], "quotas": [{{"limit": 5, "window": "1h"}}]}}"#
        )
    };
    let before = format!(r#"{{"version": 1, "rules": [{}]}}"#, rule("b"));
    let after = format!(r#"{{"version": 1, "rules": [{}, {}]}}"#, rule("a"), rule("b"));
    let mut surface = Surfaced::new(&before);
    surface.check(&get("/", "192.0.2.1"), 0);
    let stored = surface.plan.partition(0).unwrap().value().to_vec();
    let idle_at = surface.plan.partition(0).unwrap().idle_at(&surface.policy);
    assert_eq!(idle_at, Timestamp::from_millis(720_000));
    let policy = tollgate_language::compile(&after, Surface::Envoy).unwrap();
    assert_eq!(policy.groups()[0].idle_at(&policy, &stored), idle_at);
}

#[test]
fn every_committed_value_is_one_and_what_was_cut_is_none() {
    let policy = tollgate_language::compile(PER_CLIENT, Surface::Worker).unwrap();
    let mut plan = Plan::new();
    policy.plan(&get("/api/x", "192.0.2.1"), &mut plan);
    plan.partition_mut(0).unwrap().load(&policy, None);
    plan.decide(&policy, Timestamp::ZERO.saturating_add(Span::from_secs(9)));
    let value = plan.partition(0).unwrap().value();
    assert!(plan.partition(0).unwrap().changed() && tollgate_policy::is_value(value));
    for length in 0..value.len() {
        assert!(!tollgate_policy::is_value(&value[..length]), "{length}");
    }
    assert!(!tollgate_policy::is_value(&vec![0; value.len()]));
}

/// A single quota is checked and charged at once; of several, every quota is checked before any is
/// charged.
#[test]
fn a_quota_alone_decides_as_it_does_beside_another() {
    let algorithms = [
        "gcra",
        "token-bucket",
        "leaky-bucket",
        "leaky-queue",
        "fixed-window",
        "sliding-window",
        "sliding-log",
    ];
    let mut denied = 0;
    for (algorithm, action) in algorithms.iter().flat_map(|a| {
        let wait = r#", "action": {"delay": {"max": "1s"}}"#;
        [(*a, ""), (*a, r#", "mode": "shadow""#), (*a, wait)]
    }) {
        let rule = format!(
            r#"{{"name": "a", "key": ["client_ip"]{action},
            "quotas": [{{"limit": 3, "window": "2s", "algorithm": "{algorithm}"}}]}}"#
        );
        let beside = r#"{"name": "b", "key": ["client_ip"], "mode": "shadow",
            "quotas": [{"limit": 9, "window": "1s"}]}"#;
        let mut alone = Surfaced::new(&format!(r#"{{"version": 1, "rules": [{rule}]}}"#));
        let mut two = Surfaced::new(&format!(r#"{{"version": 1, "rules": [{rule}, {beside}]}}"#));
        let (mut now, mut step) = (10_000_u64, 7_u64);
        for _ in 0..300 {
            step = step * 1_103_515_245 % 1_000_003;
            // The clock sometimes steps back.
            now = if step % 9 == 0 { now - step % 700 } else { now + step % 900 };
            let request = get("/", "192.0.2.1");
            let seen = alone.check(&request, now);
            assert_eq!(seen, two.check(&request, now), "{algorithm} {action} at {now} ms");
            denied +=
                u32::from(matches!(seen.answer, Disposition::Deny { .. } | Disposition::Retry(_)));
        }
    }
    assert!(denied > 500, "{denied}");
}
