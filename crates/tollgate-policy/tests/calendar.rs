//! Quotas by a calendar: the window that clients see, tenants' own quotas, the words, and costs
//! that are settled after a window has ended.

use crate::support::{Surfaced, Tokens, get};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::explain::words;
use tollgate_policy::{Disposition, Ending, Now, Plan, Policy, Surface};

/// 2027-02-28 23:59:50 UTC.
const FEBRUARY: u64 = 1_803_859_190_000;
const MARCH: u64 = FEBRUARY + 10_000;
const DAY: u64 = 86_400_000;

fn policy(fields: &str, headers: &str) -> String {
    format!(
        r#"{{"version": 1, "response": {{"headers": "{headers}"}}, "rules": [{{"name": "r", "key": [],
        "quotas": [{{"limit": 2, "algorithm": "fixed-window", "align": "calendar", {fields}}}]}}]}}"#
    )
}

fn compile(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Library).unwrap_or_else(|e| panic!("{e}"))
}

fn headers(surface: &mut Surfaced, millis: u64) -> String {
    let seen = surface.check(&get("/", "192.0.2.1"), millis);
    let each = seen.headers.iter().map(|(name, value)| format!("{name}: {value}"));
    each.filter(|line| !line.starts_with("c")).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_window_is_the_current_one() {
    let mut surface = Surfaced::new(&policy(r#""window": "1mo""#, "draft-11"));
    let february = "ratelimit-policy: \"r\";q=2;w=2419200\nratelimit: \"r\";r=1;t=10";
    assert_eq!(headers(&mut surface, FEBRUARY), february);
    assert_eq!(headers(&mut surface, FEBRUARY), february.replace("r=1", "r=0"));
    let denied =
        "retry-after: 10\nratelimit-policy: \"r\";q=2;w=2419200\nratelimit: \"r\";r=0;t=10";
    assert_eq!(headers(&mut surface, FEBRUARY), denied);
    let march = "ratelimit-policy: \"r\";q=2;w=2678400\nratelimit: \"r\";r=1;t=2678400";
    assert_eq!(headers(&mut surface, MARCH), march);
}

#[test]
fn every_generation_of_fields_has_the_current_window() {
    for (generation, expected) in [
        ("draft-7", "ratelimit-policy: 2;w=2419200\nratelimit: limit=2, remaining=1, reset=10"),
        (
            "draft-6",
            "ratelimit-policy: 2;w=2419200\nratelimit-limit: 2\nratelimit-remaining: 1\nratelimit-reset: 10",
        ),
        ("x-ratelimit", "x-ratelimit-limit: 2\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 10"),
    ] {
        let mut surface = Surfaced::new(&policy(r#""window": "1mo""#, generation));
        assert_eq!(headers(&mut surface, FEBRUARY), expected);
    }
    let compiled = compile(&policy(r#""window": "1mo""#, "draft-11"));
    let mut plan = Plan::new();
    for (at, days) in [(FEBRUARY, 28), (MARCH, 31)] {
        compiled.plan(&get("/", "192.0.2.1"), &mut plan);
        plan.each_partition(|partition| partition.load(&compiled, None));
        plan.decide(&compiled, Timestamp::from_millis(at));
        let nearest = plan.outcome(&compiled).nearest().expect("it was decided");
        assert_eq!(nearest.window, Span::from_secs(days * 86_400));
    }
}

#[test]
fn windows_in_words() {
    for (fields, quota, bound) in [
        (
            r#""window": "1mo""#,
            "2 per calendar month, fixed-window",
            "at most 2 in any calendar month, 6 in any 31 days",
        ),
        (
            r#""window": "1mo", "anchor_day": 15, "utc_offset": "-05:30""#,
            "2 per calendar month from day 15, UTC-05:30, fixed-window",
            "at most 2 in any calendar month, 6 in any 31 days",
        ),
        (
            r#""window": "1w""#,
            "2 per calendar week from monday, fixed-window",
            "at most 2 in any calendar week, 4 in any 7 days",
        ),
        (
            r#""window": "1d", "utc_offset": "+02:00""#,
            "2 per calendar day, UTC+02:00, fixed-window",
            "at most 2 in any calendar day, 4 in any day",
        ),
        (
            r#""window": "1h""#,
            "2 per calendar hour, fixed-window",
            "at most 2 in any calendar hour, 4 in any hour",
        ),
    ] {
        let policy = compile(&policy(fields, "off"));
        let limiter = policy.quota_sets()[0].quotas()[0].limiter();
        assert_eq!((words::quota(limiter), words::bound(limiter)), (quota.into(), bound.into()));
    }
}

/// Each field is a part of the identity of a stored state.
#[test]
fn another_calendar_is_another_quota() {
    let mut ids: Vec<u32> = [
        r#""window": "1mo""#,
        r#""window": "1mo", "anchor_day": 2"#,
        r#""window": "1mo", "utc_offset": "+00:01""#,
        r#""window": "1w""#,
        r#""window": "1w", "week_start": "sunday""#,
        r#""window": "1d""#,
        r#""window": "1h""#,
    ]
    .iter()
    .map(|fields| compile(&policy(fields, "off")).quota_sets()[0].to_stored().record_id())
    .collect();
    // The fields have these defaults.
    let defaults = r#""window": "1mo", "anchor_day": 1, "utc_offset": "+00:00""#;
    let same = compile(&policy(defaults, "off")).quota_sets()[0].to_stored().record_id();
    assert_eq!(same, ids[0]);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 7);
}

#[test]
fn a_tenant_has_a_calendar_where_its_rule_has_one() {
    let document = |quota: &str| {
        format!(
            r#"{{"version": 1, "tenant": {{"header": "x-org"}}, "rules": [
            {{"name": "each", "key": [{{"header": "x-org"}}], "quotas": [{quota}]}}]}}"#
        )
    };
    let month =
        r#"{"limit": 9, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}"#;
    let minute = r#"{"limit": 9, "window": "1m"}"#;
    let read = |policy: &str, entry: &str| {
        let policy = tollgate_language::compile(&document(policy), Surface::Worker).unwrap();
        let entry = format!(r#"{{"quotas": {{"each": [{entry}]}}}}"#);
        tollgate_language::tenant_entry_for(&policy, entry.as_bytes())
    };
    assert!(read(month, month).is_ok());
    assert!(read(month, minute).is_ok());
    assert!(read(minute, minute).is_ok());
    assert_eq!(
        read(minute, month).unwrap_err().to_string(),
        "quotas.each[0].align: is for a rule that has a quota by calendar in the policy, too; leave it out"
    );
}

/// Only groups with a calendar are decided at the time of the wall clock.
#[test]
fn each_group_has_its_clock() {
    let document = r#"{"version": 1, "rules": [
        {"name": "month", "key": [], "quotas": [{"limit": 2, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}]},
        {"name": "same key", "key": [], "quotas": [{"limit": 5, "window": "1s"}]},
        {"name": "other key", "key": ["method"], "quotas": [{"limit": 5, "window": "1s"}]}]}"#;
    let policy = compile(document);
    let (clock, wall) = (Timestamp::from_millis(7), Timestamp::from_millis(MARCH));
    let now = Now::new(clock, Some(wall));
    assert_eq!(policy.groups().len(), 2);
    assert_eq!([now.of(&policy, 0), now.of(&policy, 1)], [wall, clock]);
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    plan.each_partition(|partition| partition.load(&policy, None));
    plan.decide(&policy, now);
    let at: Vec<Timestamp> = plan.outcome(&policy).decisions().map(|rule| rule.at).collect();
    assert_eq!(at, [wall, wall, clock]);
    assert_eq!(plan.outcome(&policy).disposition(), Disposition::Allow);
    assert_eq!(Now::new(clock, None).of(&policy, 0), clock);
}

/// Units that are held at the end of a month come back in that month, not in the next one.
#[test]
fn a_cost_is_settled_in_the_month_of_its_request() {
    let document = r#"{"version": 1, "response": {"headers": "draft-11"}, "rules": [{"name": "r", "key": [],
        "cost": {"estimate": 4, "max": 9, "actual": {"header": "x-tokens"}},
        "quotas": [{"limit": 10, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}]}]}"#;
    let mut surface = Surfaced::new(document);
    assert!(headers(&mut surface, FEBRUARY).contains("r=6;"));
    let tokens = Tokens("1");
    assert!(surface.end_with(Ending::Response(200), &tokens, MARCH));
    let march = headers(&mut surface, MARCH + DAY);
    assert!(march.contains("r=6;"), "{march}");
    // What is used above the estimate is debited when the response ends.
    let tokens = Tokens("5");
    assert!(surface.end_with(Ending::Response(200), &tokens, MARCH + DAY));
    let march = headers(&mut surface, MARCH + 2 * DAY);
    assert!(march.contains("r=1;"), "{march}");
}
