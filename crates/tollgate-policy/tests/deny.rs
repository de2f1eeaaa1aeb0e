//! Rules that deny without counting: what they match, their response, and that nothing else of the
//! policy is read or counted for a denied request.

use std::fmt::Write;

use tollgate_core::Timestamp;
use tollgate_policy::explain::Applicability;
use tollgate_policy::{DenyMatch, Disposition, GrpcStatus, LoneQuota, Policy, RuleResult, Surface};

use crate::support::{Random, Request, Surfaced, get};

const DENIED: Disposition = Disposition::Deny { status: 403 };
const MALFORMED: Disposition = Disposition::Deny { status: 400 };

/// A rule with these members, and one quota of 2 requests per client.
fn with(deny: &str) -> Surfaced {
    Surfaced::new(&format!(
        r#"{{"version": 1, "geo": {{"country_header": "x-country"}}, "exempt": [{{"headers": {{"x-ok": "*"}}}}],
            "rules": [
                {{"name": "blocked", {deny}}},
                {{"name": "each", "key": ["client_ip"], "on_missing": "deny",
                  "quotas": [{{"limit": 2, "window": "1m"}}]}}]}}"#
    ))
}

fn networks() -> Surfaced {
    with(r#""deny": true, "when": {"client_cidrs": ["192.0.2.0/24"]}"#)
}

/// The names and results of the deny rules that matched.
fn matches(surface: &Surfaced) -> Vec<(&str, RuleResult)> {
    let outcome = surface.plan.outcome(&surface.policy);
    outcome.deny_matches().map(|it: DenyMatch<'_>| (it.rule.name(), it.result)).collect()
}

#[test]
fn a_matching_request_is_denied_and_counted_nowhere() {
    let mut surface = networks();
    for _ in 0..3 {
        let seen = surface.check(&get("/", "192.0.2.9"), 1);
        assert_eq!(seen.answer, DENIED);
        let fields = [
            ("content-type", "application/problem+json".to_string()),
            ("cache-control", "no-store".to_string()),
        ];
        assert_eq!(seen.headers, fields, "neither Retry-After nor RateLimit");
        assert_eq!(
            seen.body.as_deref(),
            Some(
                r#"{"type":"urn:tollgate:problem:denied-by-rule","title":"Denied by Rule","status":403,"detail":"a rule of the policy denies this request"}"#
            )
        );
        assert!(surface.plan.is_denied() && !surface.plan.is_empty());
        assert_eq!((surface.plan.len(), surface.store.len()), (0, 0));
        assert_eq!(matches(&surface), [("blocked", RuleResult::Denied)]);
        let outcome = surface.plan.outcome(&surface.policy);
        assert_eq!(outcome.denied_by().map(|it| it.index), Some(0));
        assert_eq!((outcome.refused_by(), outcome.rules().count()), (None, 0));
    }
    let other = surface.check(&get("/", "198.51.100.9"), 1);
    assert_eq!(
        (other.answer, other.header("ratelimit")),
        (Disposition::Allow, Some(r#""each";r=1;t=30"#))
    );
    assert_eq!(other.header("ratelimit-policy"), Some(r#""each";q=2;w=60"#));
    assert_eq!(matches(&surface), []);
    assert!(
        !surface.plan.is_denied() && surface.plan.outcome(&surface.policy).denied_by().is_none()
    );
}

#[test]
fn an_exemption_goes_first_and_a_denial_before_everything_else() {
    let mut surface = networks();
    let exempt = surface.check(&get("/", "192.0.2.9").header("x-ok", "1"), 1);
    assert_eq!(exempt.answer, Disposition::Allow);
    assert!(surface.plan.is_empty() && matches(&surface).is_empty());
    // The other rule would deny this request with 429, because it lacks a key part.
    let mut paths = with(r#""deny": true, "when": {"paths": ["/admin/**"]}"#);
    let unknown = Request { method: "GET", target: "/admin/x".into(), ..Request::default() };
    assert_eq!(paths.check(&unknown, 1).answer, DENIED);
    let unknown = Request { target: "/".into(), ..unknown };
    assert_eq!(paths.check(&unknown, 1).answer, Disposition::Deny { status: 429 });
}

#[test]
fn a_rule_has_its_own_status_and_body() {
    let when = r#""when": {"countries": ["XX"]}"#;
    let from = get("/", "192.0.2.9").header("x-country", "xx");
    for (deny, status, content_type, body) in [
        (r#"{"status": 451}"#, 451, "application/problem+json", None),
        (r#"{"body": "not \"here\""}"#, 403, "text/plain", Some("not \"here\"")),
        (r#"{"status": 404, "body": "no"}"#, 404, "text/plain", Some("no")),
        ("{}", 403, "application/problem+json", None),
    ] {
        let mut surface = with(&format!(r#""deny": {deny}, {when}"#));
        let seen = surface.check(&from, 1);
        assert_eq!(seen.answer, Disposition::Deny { status }, "{deny}");
        assert_eq!(seen.header("content-type"), Some(content_type), "{deny}");
        let problem = format!(r#""status":{status},"#);
        let found = seen.body.as_deref().unwrap_or_default();
        assert!(body.map_or(found.contains(&problem), |body| found == body), "{deny}: {found}");
        let outcome = surface.plan.outcome(&surface.policy);
        let message = body.unwrap_or("a rule of the policy denies this request").into();
        assert_eq!(outcome.grpc(), GrpcStatus { code: 7, message }, "{deny}");
        let mut fields = vec![];
        outcome.grpc_headers("application/grpc", &mut |name, _| fields.push(name));
        assert_eq!(fields, ["cache-control", "content-type", "grpc-status", "grpc-message"]);
    }
}

#[test]
fn in_shadow_mode_a_rule_is_only_counted() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
            {"name": "watched", "deny": true, "mode": "shadow", "when": {"methods": ["GET"]}},
            {"name": "each", "when": {"paths": ["/api"]}, "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1m"}]},
            {"name": "blocked", "deny": {"status": 451}, "when": {"paths": ["/x"]}},
            {"name": "never", "deny": true, "when": {"paths": ["/x"]}}]}"#,
    );
    let watched = ("watched", RuleResult::Shadowed);
    let api = surface.check(&get("/api", "192.0.2.9"), 1);
    assert_eq!((api.answer, api.header("ratelimit").is_some()), (Disposition::Allow, true));
    assert_eq!(matches(&surface), [watched]);
    let alone = surface.check(&get("/", "192.0.2.9"), 1);
    assert_eq!((alone.answer, alone.headers.len()), (Disposition::Allow, 0));
    assert!(!surface.plan.is_empty() && !surface.plan.is_denied(), "its match is to be counted");
    assert_eq!(matches(&surface), [watched]);
    assert_eq!(surface.check(&get("/x", "192.0.2.9"), 1).answer, Disposition::Deny { status: 451 });
    assert_eq!(matches(&surface), [watched, ("blocked", RuleResult::Denied)], "and none after it");
    let names: Vec<&str> = surface.policy.rule_names().collect();
    assert_eq!(names, ["each", "watched", "blocked", "never"]);
    assert_eq!(surface.policy.rules()[0].place(), 1, "in the document");
}

#[test]
fn no_spelling_evades_a_rule_and_a_missing_fact_matches_none() {
    let mut surface = with(
        r#""deny": true, "when": {"paths": ["/admin/**"]}, "unless": {"headers": {"x-team": "ops"}}"#,
    );
    for target in ["/admin", "/admin/", "/a/../admin/x", "/%61dmin/x", "/admin%2Fx", "//admin/x"] {
        assert_eq!(surface.check(&get(target, "192.0.2.9"), 1).answer, DENIED, "{target}");
    }
    let team = |value: &str| get("/admin", "198.51.100.9").header("x-team", value);
    assert_eq!(surface.check(&team("ops"), 1).answer, Disposition::Allow);
    assert_eq!(surface.check(&team("ops, dev"), 1).answer, DENIED, "it must hold for each value");

    let mut header =
        with(r#""deny": true, "when": {"headers": {"x-tool": ["bad", {"prefix": "scan"}]}}"#);
    let tool = |value: &str| get("/", "198.51.100.7").header("x-tool", value);
    for (value, answer) in [
        ("bad", DENIED),
        ("good, bad", DENIED),
        ("scanner", DENIED),
        ("Bad", Disposition::Allow),
        ("", Disposition::Allow),
    ] {
        assert_eq!(header.check(&tool(value), 1).answer, answer, "{value}");
    }
    // No address, no country: the conditions do not hold.
    for deny in [r#"{"client_cidrs": ["0.0.0.0/0", "::/0"]}"#, r#"{"countries": ["DE"]}"#] {
        let mut surface = Surfaced::new(&format!(
            r#"{{"version": 1, "geo": {{"country_header": "x-country"}},
                "rules": [{{"name": "blocked", "deny": true, "when": {deny}}}]}}"#
        ));
        let unknown = Request { method: "GET", target: "/".into(), ..Request::default() };
        assert_eq!(surface.check(&unknown, 1).answer, Disposition::Allow, "{deny}");
    }
}

#[test]
fn a_request_that_cannot_be_read_is_malformed_where_a_rule_reads_it() {
    let rule = |mode: &str| {
        with(&format!(
            r#""deny": true, {mode} "when": {{"hosts": ["bad.example"], "methods": ["GET"]}}"#
        ))
    };
    let from = |host| Request { host, ..get("/", "192.0.2.9") };
    let mut surface = rule("");
    assert_eq!(surface.check(&from("bad.example"), 1).answer, DENIED);
    assert_eq!(surface.check(&from("BAD.example:80"), 1).answer, DENIED);
    assert_eq!(surface.check(&from("good.example"), 1).answer, Disposition::Allow);
    assert_eq!(surface.check(&from("bad.example good.example"), 1).answer, MALFORMED);
    assert_eq!(matches(&surface), [("blocked", RuleResult::Malformed)]);
    assert_eq!((surface.plan.is_denied(), surface.plan.len()), (true, 0));
    let put = Request { method: "PUT", ..from("bad.example good.example") };
    assert_eq!(surface.check(&put, 1).answer, Disposition::Allow, "the rule is not for it");
    let mut shadow = rule(r#""mode": "shadow","#);
    assert_eq!(shadow.check(&from("bad.example good.example"), 1).answer, Disposition::Allow);
    assert_eq!(matches(&shadow), [("blocked", RuleResult::Malformed)]);
}

/// 10,000 networks in one rule, and 900 rules of different kinds: what is found is what a
/// comparison with each network, and each rule in turn, finds.
#[test]
fn many_networks_and_many_rules_deny_the_same_as_one_by_one() {
    let mut random = Random::new(41);
    let octets: Vec<[u64; 3]> =
        (0..10_000).map(|_| [random.below(16), random.below(256), random.below(256)]).collect();
    let mut list = String::new();
    for [a, b, c] in &octets {
        let _ = write!(list, r#"{}"10.{a}.{b}.{c}""#, if list.is_empty() { "" } else { ", " });
    }
    let mut surface = with(&format!(r#""deny": true, "when": {{"client_cidrs": [{list}]}}"#));
    let mut denied = 0;
    for _ in 0..2_000 {
        let at = [random.below(16), random.below(256), random.below(256)];
        let at = if random.below(2) == 0 { at } else { *random.pick(&octets) };
        let [a, b, c] = at;
        let expected = if octets.contains(&at) { DENIED } else { Disposition::Allow };
        let from = get("/", &format!("10.{a}.{b}.{c}"));
        assert_eq!(surface.check(&from, 1).answer == DENIED, expected == DENIED, "{at:?}");
        denied += usize::from(expected == DENIED);
    }
    assert!((800..1_300).contains(&denied), "{denied}");

    let condition = |i: u64| match i % 4 {
        0 => format!(r#"{{"client_cidrs": ["10.0.0.{}"]}}"#, i / 4),
        1 => format!(r#"{{"paths": ["/{}/**"]}}"#, i / 4),
        2 => format!(r#"{{"headers": {{"x-id": "{}"}}}}"#, i / 4),
        _ => format!(r#"{{"hosts": ["h{}.example"]}}"#, i / 4),
    };
    let rules: Vec<String> = (0..900)
        .map(|i| format!(r#"{{"name": "r{i}", "deny": true, "when": {}}}"#, condition(i)))
        .collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "));
    let mut surface = Surfaced::new(&document);
    for _ in 0..2_000 {
        let of = [(); 4].map(|()| random.below(250));
        let host: &'static str = format!("h{}.example", of[3]).leak();
        let request = Request { host, ..get(&format!("/{}", of[1]), &format!("10.0.0.{}", of[0])) };
        let request = request.header("x-id", of[2].to_string());
        let first = (0..4).map(|kind| of[kind as usize] * 4 + kind).filter(|i| *i < 900).min();
        surface.check(&request, 1);
        let outcome = surface.plan.outcome(&surface.policy);
        let found = outcome.denied_by().map(|it| it.rule.name().to_string());
        assert_eq!(found, first.map(|i| format!("r{i}")), "{of:?}");
    }
}

#[test]
fn nothing_is_asked_of_a_store_about_a_denied_request() {
    let mut surface = Surfaced::on(
        r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
            {"name": "blocked", "deny": true, "when": {"methods": ["TRACE"]}},
            {"name": "each", "key": [{"header": "x-org"}], "quotas": [{"limit": 2, "window": "1m"}]}]}"#,
        Surface::Worker,
    );
    let request = get("/", "192.0.2.9").header("x-org", "acme");
    surface.check(&request, 1);
    assert!(surface.plan.tenant().is_some());
    assert_eq!(surface.check(&request.method("TRACE"), 1).answer, DENIED);
    assert!(surface.plan.tenant().is_none(), "no entry is read for it");
    assert!(surface.plan.partitions().next().is_none());
}

#[test]
fn explanations_agree_with_the_decision() {
    let mut surface = networks();
    let stands = |surface: &Surfaced, request: &Request| {
        let explain = surface.policy.explain();
        (explain.deny_applicability(request), explain.applicability(request))
    };
    let denied = get("/", "192.0.2.9");
    let by = Applicability::DeniedBy("blocked".into());
    assert_eq!(stands(&surface, &denied), (vec![Applicability::Applies], vec![by]));
    let other = get("/", "198.51.100.9");
    let fails = Applicability::WhenFails("client in 192.0.2.0/24".into());
    assert_eq!(stands(&surface, &other), (vec![fails], vec![Applicability::Applies]));
    let exempt = denied.clone().header("x-ok", "1");
    let is_exempt = || vec![Applicability::Exempt(0)];
    assert_eq!(stands(&surface, &exempt), (is_exempt(), is_exempt()));
    surface.check(&denied, 1);
    assert_eq!(surface.plan.outcome(&surface.policy).verdicts(), []);
    let words = surface.policy.explain().deny_rules();
    assert_eq!(words[0].applies, "requests with client in 192.0.2.0/24");
    assert_eq!((words[0].mode, &*words[0].action), ("enforced", "deny with 403, without a count"));
}

#[test]
fn a_compiled_policy_denies_the_same() {
    let surface = networks();
    let mut bytes = vec![];
    surface.policy.write_compiled(&mut bytes);
    let policy = Policy::read_compiled(&bytes, Surface::Envoy).unwrap();
    let mut again = vec![];
    policy.write_compiled(&mut again);
    assert_eq!(bytes, again);
    let mut plan = tollgate_policy::Plan::new();
    policy.plan(&get("/", "192.0.2.9"), &mut plan);
    plan.decide(&policy, Timestamp::from_millis(1));
    assert_eq!(plan.outcome(&policy).disposition(), DENIED);
}

#[test]
fn the_short_way_for_one_quota_is_not_taken_past_a_deny_rule() {
    let quota =
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1m"}]}"#;
    let lone = |deny: &str| {
        let document = format!(r#"{{"version": 1, "rules": [{quota}{deny}]}}"#);
        LoneQuota::of(&Surfaced::new(&document).policy).is_some()
    };
    assert!(lone(""));
    assert!(!lone(r#", {"name": "blocked", "deny": true, "when": {"methods": ["PUT"]}}"#));
}
