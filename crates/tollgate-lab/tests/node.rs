//! A node decides as a surface does: it charges, settles, delays requests, and removes only idle
//! keys.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_lab::simulator::{Fate, Node, Store};
use tollgate_policy::{Facts, RuleResult, Surface};
use tollgate_test_support::Random;

/// A request of one client.
struct From(u32);

impl Facts for From {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        b"/"[..].into()
    }
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::from_bits(self.0).into())
    }
}

fn node(rules: &str) -> Node {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    let policy = tollgate_language::compile(&document, Surface::Library);
    let policy = policy.expect(&document);
    Node::new(Arc::new(policy), Store::exact())
}

const fn ms(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

const EACH: &str =
    r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1s"}]}"#;

#[test]
fn each_key_has_its_own_quota() {
    let mut node = node(EACH);
    let mut fates = |at| [1, 1, 1, 2].map(|client| node.decide(&From(client), ms(at), 200).fate());
    let denied = Fate::Denied { status: 429, retry_after: Some(Span::from_millis(500)) };
    assert_eq!(fates(1_000), [Fate::Admitted, Fate::Admitted, denied, Fate::Admitted]);
    assert_eq!(fates(1_500), [Fate::Admitted, denied, denied, Fate::Admitted]);
    assert_eq!((node.store().len(), node.store().state_bytes()), (2, 32));
}

#[test]
fn every_rule_and_quota_is_told_with_the_hash_of_its_key() {
    let mut node = node(
        r#"{"name": "each", "key": ["client_ip"], "cost": 2, "quotas": [
              {"limit": 4, "window": "1s", "name": "second"}, {"limit": 2, "window": "1h", "name": "hour"}]},
           {"name": "token", "key": [{"header": "x-token"}], "on_missing": "deny", "mode": "shadow",
            "quotas": [{"limit": 1, "window": "1m"}]}"#,
    );
    let first = node.decide(&From(1), ms(1), 200);
    let of_client: Vec<_> = first.rules().map(|rule| rule.key_hash).collect();
    assert_eq!(first.rules().map(|rule| rule.denied_by()).collect::<Vec<_>>(), [None, None]);
    let second = node.decide(&From(1), ms(2), 200);
    let rules: Vec<_> = second.rules().collect();
    assert_eq!(rules.iter().map(|rule| rule.key_hash).collect::<Vec<_>>(), of_client);
    assert!(of_client[0].is_some() && of_client[1].is_none());
    assert_eq!((rules[0].result, rules[0].denied_by()), (RuleResult::Denied, Some(1)));
    assert_eq!((rules[0].cost, rules[0].is_binding, rules[0].quota_set), (2, true, 0));
    let decisions: Vec<_> =
        rules[0].quotas().map(|(quota, said)| (quota.name(), said.limit)).collect();
    assert_eq!(decisions, [("second", 4), ("hour", 2)]);
    assert_eq!((rules[1].result, rules[1].quotas().count()), (RuleResult::Shadowed, 0));
    assert_eq!(node.decide(&From(2), ms(3), 200).rules().next().unwrap().denied_by(), None);
}

#[test]
fn what_the_response_brings_about_is_settled_before_the_next_request() {
    let mut node = node(
        r#"{"name": "guesses", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h"}],
            "charge": {"response_status": ["401"], "reserve": true}}"#,
    );
    let mut fate = |status| node.decide(&From(1), ms(1), status).fate().is_admitted();
    assert_eq!([200, 200, 401, 200].map(&mut fate), [true, true, true, false]);
}

#[test]
fn a_leaky_queue_says_at_once_when_each_goes() {
    let mut node = node(
        r#"{"name": "paced", "key": ["client_ip"], "action": {"delay": {"max": "1s"}},
            "quotas": [{"limit": 2, "window": "1s", "burst": 3, "algorithm": "leaky-queue"}]}"#,
    );
    let mut fate = |at| node.decide(&From(1), ms(at), 200).fate();
    assert_eq!(fate(1_000), Fate::Admitted);
    assert_eq!(fate(1_000), Fate::Delayed(Span::from_millis(500)));
    assert_eq!(fate(1_000), Fate::Delayed(Span::from_millis(1_000)));
    assert!(matches!(fate(1_000), Fate::Denied { status: 429, .. }));
    assert_eq!(fate(1_500), Fate::Delayed(Span::from_millis(1_000)));
    assert_eq!(node.waiting(), 2);
    assert!(node.resume(ms(9_000)).is_none(), "each was told when it got its place");
    assert_eq!((node.waiting(), node.next_at()), (0, None));
}

#[test]
fn a_line_goes_in_order_and_everybody_is_told_how_it_ended() {
    let mut node = node(
        r#"{"name": "turns", "key": ["client_ip"], "action": {"delay": {"max": "1s"}},
            "quotas": [{"limit": 2, "window": "1s", "burst": 1}]}"#,
    );
    let fates: Vec<_> = (0..4).map(|_| node.decide(&From(1), ms(1_000), 200).fate()).collect();
    assert_eq!(fates[..3], [Fate::Admitted, Fate::Waiting, Fate::Waiting]);
    assert!(matches!(fates[3], Fate::Denied { status: 429, retry_after: Some(_) }));
    let mut decisions = Vec::new();
    while let Some(decided) = node.resume(ms(60_000)) {
        let result = decided.rules().next().unwrap().result;
        assert_eq!((decided.fate(), result), (Fate::Admitted, RuleResult::Delayed));
        decisions.push((decided.arrival().number, decided.at(), decided.waited()));
    }
    let half = Span::from_millis(500);
    let at = |number: u64| (number, ms(1_000 + 500 * number), half.saturating_mul(number));
    assert_eq!(decisions, [at(1), at(2)]);
}

/// A request of one client that names its plan.
struct Paid(&'static str);

impl Facts for Paid {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        b"/"[..].into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-plan").then(|| self.0.as_bytes().into())
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }
}

// Guards: a simulation that reports other waits than the filter's.
#[test]
fn those_of_a_higher_priority_have_their_turn_first() {
    let mut node = node(
        r#"{"name": "turns", "key": [], "quotas": [{"limit": 1, "window": "1s", "burst": 1}],
            "action": {"delay": {"max": "1m", "priority": [{"headers": {"x-plan": "gold"}}]}}}"#,
    );
    for plan in ["free", "free", "gold", "free", "gold"] {
        node.decide(&Paid(plan), ms(1_000), 200);
    }
    let mut decisions = Vec::new();
    while let Some(decided) = node.resume(ms(60_000)) {
        decisions.push((decided.arrival().number, decided.waited().as_secs_ceil()));
    }
    assert_eq!(decisions, [(2, 1), (4, 2), (1, 3), (3, 4)]);
}

#[test]
fn who_waits_too_long_behind_others_is_refused_and_charged_nothing() {
    let mut node = node(
        r#"{"name": "turns", "key": ["client_ip"], "action": {"delay": {"max": "10s"}},
            "quotas": [{"limit": 2, "window": "2s", "algorithm": "sliding-log"}]}"#,
    );
    let mut ends = [0; 2];
    for number in 0..40 {
        let at = ms(1_000 + number * 10);
        match node.decide(&From(1), at, 200).fate() {
            Fate::Admitted => ends[0] += 1,
            Fate::Denied { .. } => ends[1] += 1,
            Fate::Waiting | Fate::Delayed(_) => {}
        }
    }
    while let Some(decided) = node.resume(ms(60_000)) {
        ends[usize::from(!decided.fate().is_admitted())] += 1;
    }
    // Two at once, two every 2 s until the last one's 10 s are over.
    assert_eq!(ends, [12, 28]);
}

// Guards: a place that is looked for at intervals although its end is in the model.
#[test]
fn requests_wait_for_a_place_and_each_end_gives_the_next_its_turn() {
    let mut node = node(
        r#"{"name": "each", "key": ["client_ip"], "action": {"delay": {"max": "1s"}},
            "quotas": [{"limit": 20, "window": "1h", "algorithm": "fixed-window"}],
            "concurrency": {"limit": 2}}"#,
    )
    .with_latency(Span::from_millis(230));
    let fates: Vec<_> = (0..12).map(|i| node.decide(&From(1), ms(1_000 + i), 200).fate()).collect();
    assert_eq!(fates[..2], [Fate::Admitted; 2]);
    assert_eq!(fates[2..], [Fate::Waiting; 10]);
    let mut decisions = Vec::new();
    while let Some(decided) = node.resume(ms(60_000)) {
        decisions.push((decided.arrival().number, decided.at(), decided.fate()));
    }
    // Two at once, 230 ms each, until the time of the rest is over.
    let went = |number: u64| {
        let at = ms(1_000 + number % 2 + number / 2 * 230);
        (number, at, Fate::Admitted)
    };
    let denied = Fate::Denied { status: 429, retry_after: None };
    let denied = |number: u64| (number, ms(2_000 + number), denied);
    let expected: Vec<_> = (2..10).map(went).chain([denied(10), denied(11)]).collect();
    assert_eq!(decisions, expected);
    let left = node.decide(&From(1), ms(60_000), 200);
    let rule = left.rules().next().unwrap();
    assert_eq!(rule.quotas().next().unwrap().1.remaining, 9, "ten and this one are charged");
}

/// The number of held keys is proportional to that of live ones, however many came.
#[test]
fn idle_keys_are_forgotten_and_their_places_used_again() {
    let mut node = node(EACH);
    // Each key is idle half a second after its request: 500 are live at any time.
    let mut most = 0;
    for number in 0..100_000_u32 {
        node.decide(&From(number), ms(u64::from(number) + 1_000), 200);
        most = most.max(node.store().len());
    }
    assert!((500..=2_000).contains(&most), "{most} keys were held at once");
}

/// Removing keys loses nothing: a store that removes none decides the same.
#[test]
fn forgetting_never_changes_a_decision() {
    let (mut forgets, mut keeps) = (node(EACH), node(EACH));
    let policy = Arc::clone(keeps.policy());
    keeps = Node::new(policy, Store::exact_for_a_clock_that_steps_back(Span::MAX));
    let mut random = Random::new(1);
    for number in 0..50_000_u64 {
        let client = u32::try_from(random.below(3_000)).unwrap();
        let at = ms(1_000 + number / 4);
        let expected = keeps.decide(&From(client), at, 200).fate();
        assert_eq!(forgets.decide(&From(client), at, 200).fate(), expected, "request {number}");
    }
    assert_eq!(keeps.store().len(), 3_000);
    assert!(forgets.store().len() < 3_000);
}

/// The short way for known clients gives the same decisions, by every algorithm that has one,
/// whether idle keys are held or removed.
#[test]
fn a_known_client_is_decided_alike_in_the_short_way() {
    let quotas = [
        r#"{"limit": 3, "window": "1s"}"#,
        r#"{"limit": 3, "window": "1s", "burst": 2, "strict": true}"#,
        r#"{"limit": 3, "window": "1s", "algorithm": "token-bucket"}"#,
        r#"{"limit": 3, "window": "1s", "algorithm": "leaky-bucket"}"#,
        r#"{"limit": 3, "window": "1s", "algorithm": "fixed-window"}"#,
        r#"{"limit": 3, "window": "1s", "algorithm": "sliding-window"}"#,
        r#"{"limit": 3, "window": "1s", "algorithm": "sliding-buckets"}"#,
        r#"{"limit": 3, "window": "1s", "algorithm": "sliding-log"}"#,
    ];
    let more = ["", r#", "cost": 2"#, r#", "mode": "shadow""#];
    for (quota, more) in quotas.iter().flat_map(|quota| more.map(|more| (quota, more))) {
        let rule = format!(r#"{{"name":"r","key":["client_ip"],"quotas":[{quota}]{more}}}"#);
        let mut long = node(&rule);
        let policy = || Arc::clone(long.policy());
        let mut shorts =
            [Node::new(policy(), Store::exact()), Node::new(policy(), Store::exact().holding(100))];
        let mut known = [[None; 60], [None; 60]];
        let (mut random, mut short_ways) = (Random::new(7), [0, 0]);
        for number in 0..6_000_u64 {
            let client = random.below(60);
            let at = ms(1_000 + number * 5);
            let facts = From(u32::try_from(client).unwrap());
            let expected = long.decide(&facts, at, 200);
            let results: Vec<_> = expected.rules().map(|rule| rule.result).collect();
            let (fate, hash) = (expected.fate(), expected.rules().next().unwrap().key_hash);
            for (i, short) in shorts.iter_mut().enumerate() {
                let seen = &mut known[i][usize::try_from(client).unwrap()];
                if let Some(seen) = seen.filter(|seen| short.admit(*seen, at)) {
                    assert_eq!((fate, &*results), (Fate::Admitted, &[RuleResult::Allowed][..]));
                    assert_eq!(Some(seen.key_hash()), hash);
                    short_ways[i] += 1;
                    continue;
                }
                let decided = short.decide(&facts, at, 200);
                assert_eq!(decided.fate(), fate, "{rule}, request {number}");
                assert!(decided.rules().map(|rule| rule.result).eq(results.iter().copied()));
                assert_eq!(decided.arrival().number, number, "all are counted");
                *seen = short.known();
            }
        }
        assert!(short_ways[1] > 1_000 && short_ways[0] <= short_ways[1], "{rule}: {short_ways:?}");
    }
}

/// The same for random rules: shares of keys, costs that never fit, layouts of every width, and a
/// clock that is set back by more than the skew.
#[test]
fn the_short_way_is_the_long_one_under_random_rules_and_clocks() {
    let algorithms = ["gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-window"];
    let algorithms = algorithms.into_iter().chain(["sliding-buckets", "sliding-log"]);
    let algorithms: Vec<_> = algorithms.collect();
    let mut random = Random::new(11);
    let mut below = |n: u64| random.below(n);
    let (mut short_ways, mut steps_back, mut shadowed) = (0_u64, 0_u64, 0_u64);
    for round in 0..80 {
        let algorithm = algorithms[usize::try_from(below(7)).unwrap()];
        let (limit, window) = (1 + below(6), [50, 1_000, 7_777, 60_000][below(4) as usize]);
        let cost = [1, 1, 1, 2, 3, 7][below(6) as usize];
        let buckets = if algorithm == "sliding-buckets" {
            [", \"buckets\": 4", ", \"buckets\": 8, \"weighted\": true"][below(2) as usize]
        } else {
            ""
        };
        let mode = [
            "",
            r#", "mode": "shadow""#,
            r#", "mode": {"enforce_percent": 50, "salt": "0123456789abcdef"}"#,
        ][below(3) as usize];
        let rule = format!(
            r#"{{"name":"r","key":["client_ip"],"cost":{cost}{mode},"quotas":[
                {{"limit":{limit},"window":"{window}ms","algorithm":"{algorithm}"{buckets}}}]}}"#
        );
        let document = format!(r#"{{"version": 1, "rules": [{rule}]}}"#);
        let Ok(policy) = tollgate_language::compile(&document, Surface::Library) else { continue };
        let policy = Arc::new(policy);
        let store = || Store::exact_for_a_clock_that_steps_back(Span::from_secs(1_000_000));
        let mut long = Node::new(Arc::clone(&policy), store());
        let mut short = Node::new(policy, store().holding(8));
        let mut known = [None; 12];
        let mut now = 10_000_000_u64;
        for number in 0..600_u64 {
            match below(40) {
                0 => now += below(200_000),
                1 => {
                    (now, steps_back) = (now - below(150_000), steps_back + 1);
                }
                _ => now += below(window / 4 + 1),
            }
            let client = below(12);
            let (at, facts) = (ms(now), From(u32::try_from(client).unwrap()));
            let expected = long.decide(&facts, at, 200);
            let results: Vec<_> = expected.rules().map(|rule| rule.result).collect();
            shadowed += u64::from(results == [RuleResult::Shadowed]);
            let fate = expected.fate();
            let seen = &mut known[usize::try_from(client).unwrap()];
            if let Some(seen) = seen.filter(|seen| short.admit(*seen, at)) {
                assert_eq!(
                    (fate, &*results),
                    (Fate::Admitted, &[RuleResult::Allowed][..]),
                    "round {round}, request {number}: {rule}"
                );
                assert!(short.holds(seen));
                short_ways += 1;
                continue;
            }
            let decided = short.decide(&facts, at, 200);
            assert_eq!(decided.fate(), fate, "round {round}, request {number}: {rule}");
            assert!(decided.rules().map(|rule| rule.result).eq(results.iter().copied()));
            *seen = short.known();
        }
        assert_eq!(long.store().len(), short.store().len(), "{rule}");
    }
    assert!(
        short_ways > 7_000 && steps_back > 350 && shadowed > 350,
        "{short_ways}, {steps_back}, {shadowed}"
    );
}

/// A policy in which anything else influences the decision has no short way.
#[test]
fn only_a_lone_quota_of_clients_has_a_short_way() {
    let quota = r#""quotas": [{"limit": 3, "window": "1s"}]"#;
    let is_lone = |rules: &str| node(rules).lone().is_some();
    assert!(is_lone(&format!(r#"{{"name": "r", "key": ["client_ip"], {quota}}}"#)));
    for rules in [
        format!(r#"{{"name": "r", "key": [], {quota}}}"#),
        format!(r#"{{"name": "r", "key": ["client_ip", "path"], {quota}}}"#),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {quota}, "when": {{"methods": ["GET"]}}}}"#
        ),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {quota}, "unless": {{"methods": ["GET"]}}}}"#
        ),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {quota}, "cost": {{"header": "c", "max": 9}}}}"#
        ),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {quota}, "action": {{"delay": {{"max": "1s"}}}}}}"#
        ),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {quota}, "charge": {{"response_status": ["4xx"]}}}}"#
        ),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {}}}"#,
            quota.replace("\"1s\"", "\"1s\", \"algorithm\": \"leaky-queue\"")
        ),
        format!(
            r#"{{"name": "r", "key": ["client_ip"], {quota}}}, {{"name": "s", "key": ["client_ip"], {quota}}}"#
        ),
    ] {
        assert!(!is_lone(&rules), "{rules}");
    }
}
