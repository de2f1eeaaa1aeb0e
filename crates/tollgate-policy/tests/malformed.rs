//! Requests that cannot be read: denied with 400 by the rules that would have to guess, counted by
//! the others.
//!
//! Invariant: such a request charges nothing, loads nothing, and no spelling of it removes a mark.

use tollgate_policy::{Disposition, Plan, RuleResult, Surface};

use crate::support::{Request, Surfaced, get};

const BAD: Disposition = Disposition::Deny { status: 400 };

/// A rule that cannot read two costs that differ, and one that can read anything.
fn document(fields: &str) -> String {
    format!(
        r#"{{"version": 1, "rules": [
            {{"name": "cost", "key": [], "cost": {{"header": "x-cost", "max": 9}},
              "quotas": [{{"limit": 10, "window": "1m"}}]{fields}}},
            {{"name": "each", "key": ["client_ip"], "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
    )
}

fn twice() -> Request {
    get("/", "192.0.2.1").header("x-cost", "1").header("x-cost", "2")
}

fn results(surface: &Surfaced) -> Vec<(usize, RuleResult)> {
    surface.plan.outcome(&surface.policy).rules().collect()
}

#[test]
fn an_enforced_rule_refuses_and_nothing_is_loaded_or_charged() {
    let mut surface = Surfaced::new(&document(""));
    let seen = surface.check(&twice(), 0);
    assert_eq!(seen.answer, BAD);
    assert_eq!(surface.plan.len(), 0, "what is known needs no store");
    assert_eq!(results(&surface), [(0, RuleResult::Malformed)]);
    assert_eq!(
        seen.headers,
        [
            ("content-type", "application/problem+json".to_owned()),
            ("cache-control", "no-store".to_owned())
        ]
    );
    assert_eq!(
        seen.body.unwrap(),
        r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"a field that is read as one value is given several that differ"}"#
    );
    assert_eq!(surface.plan.outcome(&surface.policy).grpc().code, 3);
    assert!(surface.store.is_empty());
    assert_eq!(surface.check(&get("/", "192.0.2.1"), 0).answer, Disposition::Allow);
}

// A custom status is for requests over a limit, and a wait ends in the same request.
#[test]
fn whatever_the_action_says_the_answer_is_400() {
    for action in [
        r#""deny""#,
        r#"{"deny": {"status": 418, "body": "no"}}"#,
        r#"{"respond": {"status": 200}}"#,
        r#"{"delay": {"max": "5s"}}"#,
    ] {
        let document = document(&format!(r#", "action": {action}"#));
        assert_eq!(Surfaced::new(&document).check(&twice(), 0).answer, BAD, "{action}");
    }
}

#[test]
fn what_is_not_enforced_counts_it_and_lets_it_pass() {
    for mode in [r#""shadow""#, r#"{"enforce_percent": 0}"#] {
        let mut surface = Surfaced::new(&document(&format!(r#", "mode": {mode}"#)));
        assert_eq!(surface.check(&twice(), 0).answer, Disposition::Allow, "{mode}");
        let expected = [(0, RuleResult::Malformed), (1, RuleResult::Allowed)];
        assert_eq!(results(&surface), expected, "{mode}");
        assert_eq!(surface.check(&twice(), 0).answer, Disposition::Deny { status: 429 }, "{mode}");
    }
    let document = document(r#", "mode": {"enforce_percent": 1}"#);
    assert_eq!(Surfaced::new(&document).check(&twice(), 0).answer, BAD, "it may be of those");
}

#[test]
fn a_mark_stays_on_what_cannot_be_read() {
    let mark = r#", "action": {"mark": {"header": "x-over-limit", "value": "1"}}"#;
    let mut surface = Surfaced::new(&document(mark));
    let seen = surface.check(&twice(), 0);
    assert_eq!(seen.answer, Disposition::Allow);
    assert_eq!(seen.marks, [("x-over-limit".to_owned(), "1".to_owned())]);
    let mut shadow = Surfaced::new(&document(&format!(r#"{mark}, "mode": "shadow""#)));
    assert_eq!(shadow.check(&twice(), 0).marks, []);
}

#[test]
fn the_same_cost_twice_is_one_cost() {
    for (lines, answer) in [
        (&["9", "9"][..], Disposition::Allow),
        (&["9, 9 ,,\t9"], Disposition::Allow),
        (&["9", ""], Disposition::Allow),
        (&["9", "09"], BAD),
        (&["9,1"], BAD),
        (&["9", "none"], BAD),
    ] {
        let mut surface = Surfaced::new(&document(""));
        let request =
            |ip| lines.iter().fold(get("/", ip), |request, line| request.header("x-cost", line));
        assert_eq!(surface.check(&request("192.0.2.1"), 0).answer, answer, "{lines:?}");
        let again = surface.check(&request("192.0.2.2"), 0).answer;
        assert_ne!(again, Disposition::Allow, "nine twice is more than ten: {lines:?}");
    }
}

// RFC 9110, 8.6: the forwarded length may be any of the lengths.
#[test]
fn lengths_that_differ_cannot_be_read() {
    let document =
        document("").replace(r#"{"header": "x-cost", "max": 9}"#, r#"{"content_length_per": 100}"#);
    for (lengths, answer) in [("100, 100", Disposition::Allow), ("100, 2000", BAD)] {
        let request = get("/", "192.0.2.1").header("content-length", lengths);
        assert_eq!(Surfaced::new(&document).check(&request, 0).answer, answer, "{lengths}");
    }
}

#[test]
fn a_verdict_says_why() {
    let policy = tollgate_language::compile(&document(""), Surface::Envoy).unwrap();
    let mut plan = Plan::new();
    policy.plan(&twice(), &mut plan);
    let verdicts = plan.outcome(&policy).verdicts();
    let [verdict] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    assert_eq!((verdict.partition, verdict.quotas.len()), (None, 0));
    assert!(verdict.malformed.unwrap().detail().contains("several that differ"));
}
