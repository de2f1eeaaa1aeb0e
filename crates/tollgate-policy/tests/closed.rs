//! Quotas with the limit 0: they deny every request that reaches them, and nothing is counted or
//! read for it.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_policy::spec::Surface;
use tollgate_policy::{Disposition, GrpcStatus, Policy, RuleResult, Tenant};

use crate::support::{Request, Surfaced, get};

const DENIED: Disposition = Disposition::Deny { status: 429 };

/// A tier for requests with `x-plan: free`, and a rule that counts every request.
fn with(rule: &str, quota: &str) -> Surfaced {
    Surfaced::new(&format!(
        r#"{{"version": 1, "rules": [
            {{"name": "each", "key": ["client_ip"], "quotas": [{{"limit": 2, "window": "1m"}}]}},
            {{"name": "export", "key": ["client_ip"], "quotas": [{{"limit": 5, "window": "1m"}}], {rule}
              "tiers": [{{"name": "free", "when": {{"headers": {{"x-plan": "free"}}}}, "quotas": [{quota}]}}]}}]}}"#
    ))
}

fn free() -> Request {
    get("/", "192.0.2.9").header("x-plan", "free")
}

#[test]
fn a_request_is_denied_and_counted_nowhere() {
    let mut surface = with("", r#"{"name": "none", "limit": 0}"#);
    for _ in 0..3 {
        let seen = surface.check(&free(), 1);
        assert_eq!(seen.answer, DENIED);
        let fields = [
            ("content-type", "application/problem+json".to_string()),
            ("cache-control", "no-store".to_string()),
            ("ratelimit-policy", r#""none";q=0"#.to_string()),
            ("ratelimit", r#""none";r=0"#.to_string()),
        ];
        assert_eq!(seen.headers, fields, "neither Retry-After nor t");
        assert_eq!(
            seen.body.as_deref(),
            Some(
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"the quota allows no requests","violated-policies":["none"]}"#
            )
        );
        assert_eq!((surface.plan.len(), surface.store.len()), (0, 0));
        let outcome = surface.plan.outcome(&surface.policy);
        assert_eq!((outcome.refused_by(), outcome.retry_after()), (Some(1), None));
        let results: Vec<_> = outcome.rules().collect();
        assert_eq!(results, [(1, RuleResult::Denied)]);
        let message = "the quota allows no requests".into();
        assert_eq!(outcome.grpc(), GrpcStatus { code: 8, message });
        let decision = outcome.decisions().next().unwrap();
        assert_eq!((decision.quotas.len(), decision.said_by()), (1, Some(0)));
    }
    let other = surface.check(&get("/", "192.0.2.9"), 1);
    assert_eq!(other.answer, Disposition::Allow);
    assert_eq!(other.header("ratelimit"), Some(r#""each";r=1;t=30, "export";r=4;t=48"#));
}

#[test]
fn each_generation_of_fields_leaves_the_reset_out() {
    for (headers, fields) in [
        ("draft-7", vec![("ratelimit-policy", "0;w=60"), ("ratelimit", "limit=0, remaining=0")]),
        (
            "draft-6",
            vec![
                ("ratelimit-policy", "0;w=60"),
                ("ratelimit-limit", "0"),
                ("ratelimit-remaining", "0"),
            ],
        ),
        ("x-ratelimit", vec![("x-ratelimit-limit", "0"), ("x-ratelimit-remaining", "0")]),
    ] {
        let document = format!(
            r#"{{"version": 1, "response": {{"headers": "{headers}"}},
                "rules": [{{"name": "off", "key": [], "quotas": [{{"limit": 0, "window": "1m"}}]}}]}}"#
        );
        let seen = Surfaced::new(&document).check(&free(), 1);
        let of_limits: Vec<_> =
            seen.headers.iter().skip(2).map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(of_limits, fields, "{headers}");
    }
}

#[test]
fn the_rule_decides_the_response_and_whether_it_is_enforced() {
    for (rule, answer, result) in [
        (r#""action": {"deny": {"status": 402}},"#, 402, RuleResult::Denied),
        (r#""action": {"respond": {"status": 404}},"#, 404, RuleResult::Denied),
        (r#""mode": "shadow","#, 0, RuleResult::Shadowed),
        (r#""action": {"mark": {"header": "x-over", "value": "1"}},"#, 0, RuleResult::Marked),
        (r#""action": {"delay": {"max": "10s"}},"#, 429, RuleResult::Denied),
        (r#""charge": {"response_status": ["5xx"]},"#, 429, RuleResult::Denied),
        (r#""cost": {"header": "x-cost", "max": 3},"#, 429, RuleResult::Denied),
    ] {
        let mut surface = with(rule, r#"{"limit": 0}"#);
        let seen = surface.check(&free(), 1);
        let expected =
            if answer == 0 { Disposition::Allow } else { Disposition::Deny { status: answer } };
        assert_eq!(seen.answer, expected, "{rule}");
        let outcome = surface.plan.outcome(&surface.policy);
        assert_eq!(outcome.rules().last(), Some((1, result)), "{rule}");
        assert_eq!(surface.store.len(), usize::from(answer == 0), "only the other rule counts");
        assert_eq!(seen.marks.len(), usize::from(result == RuleResult::Marked), "{rule}");
        let is_reported = seen.header("ratelimit").is_some_and(|it| it.contains(r#""export";r=0"#));
        assert_eq!(is_reported, answer != 404 && result != RuleResult::Shadowed, "{rule}");
        assert!(!surface.settle(500, 2), "nothing is charged");
    }
}

#[test]
fn a_missing_key_is_decided_first_only_where_the_rule_is_skipped() {
    for (on_missing, answer) in [("skip", Disposition::Allow), ("deny", DENIED), ("shared", DENIED)]
    {
        let mut surface = Surfaced::new(&format!(
            r#"{{"version": 1, "rules": [{{"name": "off", "key": [{{"header": "x-k"}}],
                "on_missing": "{on_missing}", "quotas": [{{"limit": 0}}]}}]}}"#
        ));
        let seen = surface.check(&free(), 1);
        assert_eq!(seen.answer, answer, "{on_missing}");
        let said = seen.header("ratelimit");
        assert_eq!(said, (answer == DENIED).then_some(r#""off";r=0"#), "{on_missing}");
    }
}

fn bytes_of(policy: &Policy) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.write_compiled(&mut bytes);
    bytes
}

/// Other rules of the group keep their places, and a policy is the same from its bytes.
#[test]
fn it_has_no_place_in_a_stored_value() {
    let surface = with("", r#"{"limit": 0}"#);
    let [group] = surface.policy.groups() else { panic!("one group") };
    assert_eq!(group.value_len(), 2 * 16);
    let bytes = bytes_of(&surface.policy);
    let read = Policy::read_compiled(&bytes, Surface::Envoy).unwrap();
    assert_eq!(bytes_of(&read), bytes);
    let alone = Surfaced::new(
        r#"{"version": 1, "rules": [{"name": "off", "key": ["client_ip"], "quotas": [{"limit": 0}]}]}"#,
    );
    assert_eq!(alone.policy.groups()[0].value_len(), 0);
}

#[test]
fn a_tenant_that_is_switched_off_is_denied_and_one_that_is_switched_on_is_not() {
    let document = |quota: &str| {
        format!(
            r#"{{"version": 1, "tenant": {{"header": "x-org"}}, "rules": [
                {{"name": "each", "key": [{{"header": "x-org"}}], "scope": {{"share": 2}},
                  "quotas": [{quota}]}}]}}"#
        )
    };
    for (own, entry, without, with) in [
        (r#"{"limit": 4, "window": "1m"}"#, r#"{"limit": 0}"#, true, false),
        (r#"{"limit": 0}"#, r#"{"limit": 4, "window": "1m"}"#, false, true),
    ] {
        let mut surface = Surfaced::on(&document(own), Surface::Library);
        let request = get("/", "192.0.2.9").header("x-org", "acme");
        let seen = surface.check(&request, 1);
        assert_eq!(seen.answer == Disposition::Allow, without);
        let entry = format!(r#"{{"quotas": {{"each": [{entry}]}}}}"#);
        let entry = tollgate_language::tenant_entry_for(&surface.policy, entry.as_bytes()).unwrap();
        let id = surface.plan.tenant().expect("its entry can change the decision").id().to_vec();
        let tenant = Arc::new(Tenant::new(&surface.policy, &id, &entry));
        surface.policy.plan_for(&request, &tenant, &mut surface.plan);
        assert_eq!(surface.plan.len(), usize::from(with));
        surface.plan.each_partition(|partition| partition.load(&surface.policy, None));
        surface.plan.decide(&surface.policy, Timestamp::from_millis(1));
        let answer = surface.plan.outcome(&surface.policy).disposition();
        assert_eq!(answer == Disposition::Allow, with);
    }
}
