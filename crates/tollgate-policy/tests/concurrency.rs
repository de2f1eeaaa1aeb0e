//! Requests in flight: what a plan counts, confirms and releases, next to quotas and to other keys.

use std::mem;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Turn};
use tollgate_policy::{Disposition, Ending, Failure, RequestInFlight, Surface};

use crate::support::{Ended, Head, Request, Surfaced, Tokens, get};

const DENIED: Disposition = Disposition::Deny { status: 429 };
const START: u64 = 7_200_000;

/// Three requests in an hour, two at the same time.
const EACH: &str = r#"{"version": 1, "rules": [
    {"name": "each", "key": ["client_ip"],
     "quotas": [{"limit": 3, "window": "1h", "algorithm": "fixed-window"}],
     "concurrency": {"limit": 2, "max_age": "12s"}}]}"#;

fn request() -> Request {
    get("/", "192.0.2.1")
}

/// An allowed request, which is to be confirmed and released.
fn sent(surface: &mut Surfaced, millis: u64) -> Option<RequestInFlight> {
    let answer = surface.check(&request(), millis).answer;
    (answer == Disposition::Allow).then(|| surface.plan.in_flight(&surface.policy).unwrap())
}

/// Commits a request that was prepared to be confirmed or released.
fn commit(surface: &mut Surfaced, request: &mut RequestInFlight, millis: u64) {
    mem::swap(&mut surface.plan, request.plan_mut());
    surface.commit(millis);
    mem::swap(&mut surface.plan, request.plan_mut());
}

fn release(surface: &mut Surfaced, mut request: RequestInFlight, millis: u64) {
    assert!(request.release());
    commit(surface, &mut request, millis);
}

fn confirm(surface: &mut Surfaced, request: &mut RequestInFlight, millis: u64) -> usize {
    assert!(request.confirm());
    commit(surface, request, millis);
    request.confirmed(&surface.policy)
}

#[test]
fn it_is_two_rules_of_one_key_and_one_value() {
    let surface = Surfaced::new(EACH);
    let names: Vec<&str> = surface.policy.rules().iter().map(|rule| rule.name()).collect();
    assert_eq!(names, ["each", "each.concurrency"]);
    assert_eq!([0, 1].map(|rule| surface.policy.rules()[rule].place()), [0, 0]);
    assert_eq!(surface.policy.groups().len(), 1);
    // In the place of quotas it is one, by the rule's own name.
    let alone =
        r#"{"version": 1, "rules": [{"name": "r", "key": [], "concurrency": {"limit": 1}}]}"#;
    let alone = Surfaced::new(alone);
    assert_eq!(alone.policy.rules()[0].name(), "r");
    assert!(alone.policy.rules()[0].limits_requests_in_flight());
}

// Guards: a quota that is charged for a request that found no place.
#[test]
fn a_request_without_a_place_costs_no_quota() {
    let mut surface = Surfaced::new(EACH);
    let first = sent(&mut surface, START).unwrap();
    let second = sent(&mut surface, START).unwrap();
    for _ in 0..9 {
        let denied = surface.check(&request(), START);
        assert_eq!((denied.answer, denied.header("retry-after")), (DENIED, None));
        assert_eq!(
            denied.header("ratelimit-policy"),
            Some(r#""each";q=3;w=3600, "each.concurrency";q=2;qu="concurrent-requests""#)
        );
        assert_eq!(
            denied.header("ratelimit"),
            Some(r#""each";r=1;t=3600, "each.concurrency";r=0"#)
        );
        assert!(surface.plan.in_flight(&surface.policy).is_none());
    }
    assert_eq!(surface.check(&get("/", "192.0.2.2"), START).answer, Disposition::Allow);
    release(&mut surface, first, START + 1);
    let third = sent(&mut surface, START + 1).unwrap();
    release(&mut surface, second, START + 2);
    release(&mut surface, third, START + 2);
    // All places are free, and the quota is used up: its time is reported.
    let denied = surface.check(&request(), START + 2);
    assert_eq!(denied.answer, DENIED);
    assert!(denied.header("retry-after").is_some());
}

#[test]
fn both_deny_and_the_time_of_the_quota_is_reported() {
    let mut surface = Surfaced::new(&EACH.replace("\"limit\": 3", "\"limit\": 2"));
    let _running = [sent(&mut surface, START), sent(&mut surface, START)];
    let denied = surface.check(&request(), START);
    assert_eq!(denied.header("retry-after"), Some("3600"));
    let violated = r#""violated-policies":["each","each.concurrency"]"#;
    assert!(denied.body.unwrap().contains(violated));
}

#[test]
fn a_confirmed_request_counts_for_as_long_as_it_runs() {
    let mut surface = Surfaced::new(EACH);
    let mut running = sent(&mut surface, START).unwrap();
    let _never_confirmed = sent(&mut surface, START).unwrap();
    assert_eq!(running.confirm_after(&surface.policy), Some(Span::from_secs(4)));
    for round in 1..=5 {
        assert_eq!(confirm(&mut surface, &mut running, START + round * 4_000), 0);
    }
    // The other one does not count by now.
    let third = sent(&mut surface, START + 20_000).unwrap();
    assert_eq!(surface.check(&request(), START + 20_000).answer, DENIED);
    release(&mut surface, third, START + 20_001);
    release(&mut surface, running, START + 20_001);
    let value = surface.store.values().next().unwrap();
    let rest = value.iter().filter(|byte| **byte != 0).count();
    assert!(rest < 32, "only the quota has a state");
}

// Guards: a request that was confirmed too late and runs uncounted from then on.
#[test]
fn one_that_was_confirmed_too_late_is_counted_again_beyond_the_limit() {
    let mut surface = Surfaced::new(&EACH.replace("\"limit\": 3", "\"limit\": 9"));
    let mut late = sent(&mut surface, START).unwrap();
    let one = sent(&mut surface, START + 12_000).unwrap();
    let _two = sent(&mut surface, START + 12_000).unwrap();
    assert_eq!(confirm(&mut surface, &mut late, START + 12_000), 1);
    release(&mut surface, one, START + 12_001);
    assert_eq!(surface.check(&request(), START + 12_001).answer, DENIED, "two run");
    assert_eq!(confirm(&mut surface, &mut late, START + 13_000), 0);
    release(&mut surface, late, START + 13_001);
    assert_eq!(surface.check(&request(), START + 13_001).answer, Disposition::Allow);
}

// Guards: a confirmation whose store did not answer, after which the request was forgotten.
#[test]
fn a_confirmation_that_fails_is_tried_again() {
    let mut surface = Surfaced::new(EACH);
    let mut running = sent(&mut surface, START).unwrap();
    assert!(running.confirm());
    running.plan_mut().each_partition(|partition| partition.fail(Failure::Unreachable));
    running.plan_mut().decide(&surface.policy, Timestamp::from_millis(START + 4_000));
    assert_eq!(running.confirmed(&surface.policy), 0);
    assert!(running.plan().has_failed());
    assert_eq!(confirm(&mut surface, &mut running, START + 5_000), 0);
    release(&mut surface, running, START + 5_001);
}

// Guards: a confirmation that lost a race and then takes its new time for the earlier one.
#[test]
fn a_confirmation_that_lost_its_race_is_decided_again() {
    let mut surface = Surfaced::new(EACH);
    let mut running = sent(&mut surface, START).unwrap();
    assert!(running.confirm());
    let Surfaced { policy, store, .. } = &mut surface;
    let now = Timestamp::from_millis(START + 4_000);
    let key = running.plan().partition(0).unwrap().key().to_vec();
    for _ in 0..2 {
        let mut partition = running.plan_mut().partition_mut(0).unwrap();
        partition.load(policy, store.get(&key).map(Vec::as_slice));
        partition.redecide(policy, now);
    }
    store.insert(key, running.plan().partition(0).unwrap().value().to_vec());
    assert_eq!(running.confirmed(policy), 0);
    let _second = sent(&mut surface, START + 4_000).unwrap();
    assert_eq!(surface.check(&request(), START + 4_000).answer, DENIED, "it counts once");
}

/// A cost that the response settles, next to a limit on requests in flight.
const TOKENS: &str = r#"{"version": 1, "rules": [
    {"name": "tokens", "key": ["client_ip"],
     "cost": {"estimate": 10, "max": 60, "actual": {"header": "x-tokens"}},
     "quotas": [{"limit": 100, "window": "1h", "algorithm": "fixed-window"}],
     "concurrency": {"limit": 1}}]}"#;

// Guards: a place that the head of the response frees, or that its settlement takes with it.
#[test]
fn a_response_settles_the_cost_and_not_the_request_in_flight() {
    let mut surface = Surfaced::new(TOKENS);
    let running = sent(&mut surface, START).unwrap();
    assert!(surface.settlement().is_deferred());
    assert!(surface.end_with(Ending::Response(200), &Head(Tokens("40")), START + 1));
    assert_eq!(surface.settlement().costs().len(), 1);
    assert!(!surface.settlement().awaits_end());
    let main = mem::take(&mut surface.plan);
    assert_eq!(surface.check(&request(), START + 2).answer, DENIED);
    drop(main);
    release(&mut surface, running, START + 3);
    let seen = surface.check(&request(), START + 3);
    assert!(seen.header("ratelimit").unwrap().starts_with(r#""tokens";r=50;"#));
}

#[test]
fn a_policy_without_settled_costs_has_nothing_to_do_at_the_response() {
    let mut surface = Surfaced::new(EACH);
    let _running = sent(&mut surface, START).unwrap();
    assert!(!surface.settlement().is_deferred());
    assert!(!surface.end_with(Ending::Response(200), &Ended(9), START + 1));
}

// Guards: a request that another key denies and that keeps its place.
#[test]
fn a_charge_that_is_taken_back_frees_the_place() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
            {"name": "each", "key": ["client_ip"], "concurrency": {"limit": 1}},
            {"name": "all", "key": [], "quotas": [{"limit": 9, "window": "1h"}]}]}"#,
    );
    surface.check(&request(), START);
    let key = surface.plan.partition(0).unwrap().key().to_vec();
    let now = Timestamp::from_millis(START);
    let Surfaced { policy, plan, store, .. } = &mut surface;
    let mut partition = plan.partition_mut(0).unwrap();
    partition.load(policy, store.get(&key).map(Vec::as_slice));
    assert!(partition.refund(policy, now));
    store.insert(key, partition.view().value().to_vec());
    partition.refunded(policy, now);
    assert!(plan.in_flight(policy).is_none(), "nothing is left to release");
    assert_eq!(surface.check(&request(), START).answer, Disposition::Allow);
}

#[test]
fn a_tier_has_its_own_limit_and_the_rules_without_one() {
    let mut surface = Surfaced::on(
        r#"{"version": 1, "rules": [
            {"name": "each", "key": [{"header": "x-plan"}],
             "quotas": [{"limit": 100, "window": "1h"}], "concurrency": {"limit": 1},
             "tiers": [
                {"name": "gold", "key_values": ["gold"], "quotas": [{"limit": 200, "window": "1h"}],
                 "concurrency": {"limit": 3}},
                {"name": "iron", "key_values": ["iron"], "quotas": [{"limit": 50, "window": "1h"}]}]}]}"#,
        Surface::Library,
    );
    for (plan, limit) in [("gold", 3), ("iron", 1), ("none", 1)] {
        let request = request().header("x-plan", plan);
        let allowed =
            (0..9).filter(|_| surface.check(&request, START).answer == Disposition::Allow).count();
        assert_eq!(allowed, limit, "{plan}");
    }
}

#[test]
fn a_request_in_flight_is_small() {
    let mut surface = Surfaced::new(EACH);
    let mut running = sent(&mut surface, START).unwrap();
    assert!(running.plan_mut().memory().shrink() < 2_000);
    assert_eq!(confirm(&mut surface, &mut running, START + 4_000), 0);
}

/// The same; a request waits for at most 5 s.
fn waiting() -> Surfaced {
    let action = r#""action": {"delay": {"max": "5s"}}, "quotas""#;
    Surfaced::new(&EACH.replace("\"quotas\"", action))
}

#[test]
fn a_request_without_a_place_looks_again_until_its_time_is_over() {
    let mut surface = waiting();
    let _running = [sent(&mut surface, START), sent(&mut surface, START)];
    let look = Span::from_millis(100);
    assert_eq!(surface.check(&request(), START).answer, Disposition::Retry(look));
    let outcome = surface.plan.outcome(&surface.policy);
    let after = |millis| outcome.disposition_after(Span::from_millis(millis));
    assert_eq!(after(4_899), Disposition::Retry(look));
    assert_eq!(after(4_999), Disposition::Retry(Span::from_millis(1)));
    assert_eq!(after(5_000), DENIED);
    // What it reports is that of a rule that denies at once.
    assert_eq!((outcome.retry_after(), outcome.final_disposition()), (None, DENIED));
}

// Guards: a request that passes another one of its key between the quotas and the places.
#[test]
fn the_quotas_and_the_limit_next_to_them_have_one_line() {
    let mut surface = waiting();
    let _running = [sent(&mut surface, START), sent(&mut surface, START)];
    surface.check(&request(), START);
    let turns: Vec<_> = surface.plan.waiting(&surface.policy).turns().collect();
    assert_eq!(turns.len(), 2);
    assert_eq!(turns[0], turns[1]);
    assert_eq!(surface.plan.outcome(&surface.policy).turn(), Some(turns[0]));
    // Its line is the one that an end names.
    let mut ended = sent(&mut surface, START + 60_000).unwrap();
    assert!(ended.release());
    let freed: Vec<_> = Turn::freed_by(&surface.policy, &ended).collect();
    assert_eq!(freed.len(), 1);
    let key = freed[0].key(ended.plan());
    assert_eq!((freed[0].record, key), (turns[0].record, turns[0].key(ended.plan())));
}

#[test]
fn a_quota_that_waits_longer_than_the_rule_allows_denies_at_once() {
    let mut surface = waiting();
    let running = [0; 3].map(|_| sent(&mut surface, START));
    assert_eq!(running.iter().flatten().count(), 2, "two places");
    for request in running.into_iter().flatten() {
        release(&mut surface, request, START + 1);
    }
    assert!(sent(&mut surface, START + 2).is_some(), "the third of the hour");
    let denied = surface.check(&request(), START + 3);
    assert_eq!((denied.answer, denied.header("retry-after")), (DENIED, Some("3600")));
}

#[test]
fn a_request_that_waited_in_vain_is_denied_as_one_that_does_not_wait() {
    let mut surface = waiting();
    let running = [sent(&mut surface, START), sent(&mut surface, START)];
    surface.check(&request(), START);
    surface.plan.waiting_mut(&surface.policy).reject(Full::NoPlace);
    let violated = |surface: &Surfaced| {
        let outcome = surface.plan.outcome(&surface.policy);
        assert_eq!((outcome.disposition(), outcome.retry_after()), (DENIED, None));
        outcome.violated().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(violated(&surface), ["each.concurrency"]);
    // Also behind others, where it saw a free place that was not its own.
    release(&mut surface, running.into_iter().flatten().next().unwrap(), START + 1);
    surface.policy.plan(&request(), &mut surface.plan);
    let Surfaced { policy, plan, store, .. } = &mut surface;
    plan.each_partition(|it| it.load(policy, store.get(it.key()).map(Vec::as_slice)));
    plan.waiting_mut(policy).look(Timestamp::from_millis(START + 1));
    assert_eq!(surface.plan.outcome(&surface.policy).disposition(), Disposition::Allow);
    surface.plan.waiting_mut(&surface.policy).reject(Full::NoPlace);
    assert_eq!(violated(&surface), ["each.concurrency"]);
}
