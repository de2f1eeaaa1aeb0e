//! Compares the results of a replay with the known content of a log.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects)]

use crate::support;
use std::sync::Arc;

use tollgate_lab::replay::{
    AssumedValues, ChangeCounts, CountedRequest, Moment, Observer, Options, Replay, Tally,
    WITHOUT_ENTRIES,
};
use tollgate_policy::Surface;

use support::{at, each_client, line, policy, run, summary};

/// Two per minute: `a` comes four times in one second, `b` twice, `c` once in the next minute.
const BUSY: [(u64, &str); 7] =
    [(0, "a"), (0, "a"), (0, "b"), (0, "a"), (0, "a"), (1, "b"), (70, "c")];

fn log(requests: &[(u64, &str)]) -> String {
    requests.iter().map(|(second, host)| line(*second, host, "GET /", 200)).collect()
}

fn two_a_minute() -> Arc<tollgate_policy::Policy> {
    each_client(r#""limit": 2, "window": "1m""#, "")
}

#[test]
fn who_when_how_often_and_by_which_rule() {
    let found = summary(&two_a_minute(), Options::default(), &log(&BUSY));
    let tally = Tally { total: 7, admitted: 5, denied: 2, ..Tally::default() };
    assert_eq!(found.requests, tally);
    assert_eq!((found.clients.total, found.clients.denied, found.clients.one_of), (3, 1, 1));
    let rule = &found.rules[0];
    assert_eq!((&*rule.name, rule.allowed, rule.denied, rule.limited_keys), ("each", 5, 2, 1));
    // Four of the five requests of the first second are spread over 0, 200, 600 and 800 ms.
    let first = rule.first.as_ref().unwrap();
    assert_eq!((first.at, &*first.key), (Moment(at(600)), "a"));
    let quota = &rule.quotas[0];
    assert_eq!((&*quota.name, quota.limit, quota.window_ms), ("each", 2, 60_000));
    assert_eq!((&*quota.algorithm, quota.limited), ("gcra", 2));
    let key = &found.keys.top[0];
    assert_eq!((&*key.key, key.denied, key.error, found.keys.error), ("a", 2, 0, 0));
    assert_eq!((key.first, key.last), (Moment(at(600)), Moment(at(800))));
    assert_eq!(found.keys.top.len(), 1);
    assert_eq!((found.log.lines, found.log.unparsable), (7, 0));
    assert_eq!(found.log.first, Some(Moment(at(0))));
    assert_eq!(found.log.last, Some(Moment(at(70_000))));
    assert_eq!((found.timeline.bin_seconds, found.timeline.bins.len()), (1, 71));
    let bins = &found.timeline.bins;
    assert_eq!((bins[0].total, bins[0].denied, bins[1].total, bins[70].total), (5, 2, 1, 1));
    assert_eq!(bins[70].at.to_string(), "1995-08-01T06:01:10.000Z");
    assert!(found.waits.is_none() && found.against.is_none() && found.notes.is_empty());
}

/// By a clock that is 6 h 1 min behind UTC, August begins a minute after the log.
#[test]
fn a_month_that_begins_in_the_log_returns_its_units() {
    let month = r#""limit": 2, "window": "1mo", "algorithm": "fixed-window", "align": "calendar""#;
    let requests = [(0, "a"), (0, "a"), (59, "a"), (60, "a"), (61, "a"), (62, "a")];
    for (offset, denied) in [("-06:01", 2), ("-06:02", 4)] {
        let quota = format!(r#"{month}, "utc_offset": "{offset}""#);
        let found = summary(&each_client(&quota, ""), Options::default(), &log(&requests));
        assert_eq!((found.requests.total, found.requests.denied), (6, denied), "{offset}");
        let quota = &found.rules[0].quotas[0];
        assert_eq!((&*quota.algorithm, quota.window_ms), ("fixed-window", 2_678_400_000));
    }
}

/// A request allowed with a mark, or over a shadow's limit, is distinguished from one that another
/// rule denies: only of the first are more denied when the shadow is enforced.
#[test]
fn what_is_refused_is_neither_marked_nor_shadowed() {
    let rules = r#"
        {"name": "refuses", "key": ["client_ip"], "quotas": [{"limit": 3, "window": "1m"}]},
        {"name": "shadow", "key": ["client_ip"], "mode": "shadow", "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "marks", "key": ["client_ip"], "action": {"mark": {"header": "x-over", "value": "1"}},
         "quotas": [{"limit": 2, "window": "1m"}]}"#;
    let policy = policy(&format!(r#"{{"version": 1, "rules": [{rules}]}}"#));
    let found = summary(&policy, Options::default(), &log(&[(0, "a"); 7]));
    let tally =
        Tally { total: 7, admitted: 3, denied: 4, marked: 1, shadowed: 2, ..Tally::default() };
    assert_eq!(found.requests, tally);
    let bin = &found.timeline.bins[0];
    assert_eq!((bin.total, bin.denied, bin.over), (7, 4, 2));
    // Each rule decides the same, whatever the others do.
    assert_eq!((found.rules[1].shadowed, found.rules[2].marked), (6, 5));
    assert_eq!((found.clients.marked, found.clients.shadowed, found.clients.denied), (1, 1, 1));
}

/// A rule that denies without counting is a row of its own, and its requests use up no quota.
#[test]
fn what_a_rule_denies_without_counting_is_counted_for_it() {
    let rules = r#"
        {"name": "blocked", "deny": true, "when": {"paths": ["/x"]}},
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1m"}]},
        {"name": "watched", "deny": true, "mode": "shadow", "when": {"paths": ["/y"]}},
        {"name": "never", "deny": true, "when": {"methods": ["PUT"]}}"#;
    let policy = policy(&format!(r#"{{"version": 1, "rules": [{rules}]}}"#));
    let requests =
        [("a", "GET /x"), ("a", "GET /x"), ("a", "GET /y"), ("a", "GET /"), ("b", "GET /x")];
    let log: String = requests.iter().map(|(host, what)| line(0, host, what, 200)).collect();
    let found = summary(&policy, Options::default(), &log);
    let tally = Tally { total: 5, admitted: 2, denied: 3, shadowed: 1, ..Tally::default() };
    assert_eq!(found.requests, tally);
    assert_eq!((found.clients.denied, found.clients.shadowed), (2, 1));
    let rows: Vec<_> =
        found.rules.iter().map(|it| (&*it.name, it.allowed, it.denied, it.shadowed)).collect();
    assert_eq!(
        rows,
        [("each", 2, 0, 0), ("blocked", 0, 3, 0), ("watched", 0, 0, 1), ("never", 0, 0, 0)]
    );
    assert!(found.rules[1].first.as_ref().is_some_and(|first| first.at == Moment(at(0))));
    assert_eq!(found.notes, [r#"rule "never" applied to no request"#]);
    assert!(found.keys.top.is_empty(), "no key is limited");
}

/// Guards: figures that look like those of tenants with entries.
#[test]
fn that_entries_are_not_looked_at_is_said() {
    let rule =
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1m"}]}"#;
    let of = |tenant: &str| {
        let text = format!(r#"{{"version": 1, {tenant} "rules": [{rule}]}}"#);
        let policy = tollgate_language::compile(&text, Surface::Worker).unwrap();
        summary(&Arc::new(policy), Options::default(), &log(&BUSY))
    };
    let found = of(r#""tenant": "client_ip","#);
    assert_eq!(found.notes[0], WITHOUT_ENTRIES);
    let shown = found.report("r").to_text(80);
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(&format!("Note: {WITHOUT_ENTRIES}.")), "{shown}");
    assert!(!of("").notes.iter().any(|note| note.contains("tenants")));
}

/// Guards: a report of "nobody was limited" for a log without the key of the rule.
#[test]
fn a_rule_that_counts_nothing_is_named() {
    let nobody = summary(&two_a_minute(), Options::default(), &log(&[(0, "-"); 5]));
    assert_eq!((nobody.requests.denied, nobody.clients.requests_without), (0, 5));
    assert_eq!(nobody.notes, [r#"rule "each" applied to no request"#]);
    let shown = nobody.report("r").to_text(80);
    assert!(
        shown.contains("without a client") && shown.contains("applied to no request"),
        "{shown}"
    );
    let one = summary(&two_a_minute(), Options::default(), &log(&[(0, "-"), (0, "a")]));
    assert!(one.notes.is_empty() && one.clients.requests_without == 1);
    let none = summary(&two_a_minute(), Options::default(), "");
    assert!(none.notes.is_empty(), "of no requests none is missed");
}

#[test]
fn requests_that_were_refused_already_are_told_apart() {
    let mut text = log(&BUSY);
    text.push_str(&line(71, "d", "GET /", 429));
    text.push_str(&line(71, "d", "GET /", 503));
    text.push_str(&line(71, "d", "GET /", 500));
    let found = summary(&two_a_minute(), Options::default(), &text);
    assert_eq!((found.requests.total, found.log.already_refused), (8, 2));
    let options = Options { include_refused: true, ..Options::default() };
    let found = summary(&two_a_minute(), options, &text);
    assert_eq!(
        (found.requests.total, found.requests.denied, found.log.already_refused),
        (10, 3, 0)
    );
}

#[test]
fn since_and_until_are_half_open() {
    let options = Options { since: Some(at(800)), until: Some(at(70_000)), ..Options::default() };
    let found = summary(&two_a_minute(), options, &log(&BUSY));
    // The last one of the first second, at 800 ms, and the one of second 1.
    assert_eq!((found.requests.total, found.requests.denied, found.log.outside), (2, 0, 5));
}

#[test]
fn each_name_is_a_client_whatever_the_prefix() {
    let prefixes = r#""client_ip": {"ipv6_prefix": 40, "ipv4_prefix": 8}, "#;
    let rules = r#""rules": [{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m"}]}]"#;
    let policy = policy(&format!(r#"{{"version": 1, {prefixes}{rules}}}"#));
    let names: Vec<String> = (0..500).map(|i| format!("host-{i}")).collect();
    let text = log(&names.iter().map(|name| (0, name.as_str())).collect::<Vec<_>>());
    let found = summary(&policy, Options::default(), &text);
    assert_eq!((found.requests.denied, found.clients.total), (0, 500));
    // True addresses are grouped as usual.
    let found = summary(&policy, Options::default(), &log(&[(0, "10.0.0.1"), (0, "10.9.9.9")]));
    assert_eq!((found.requests.denied, found.clients.total), (1, 1));
    assert_eq!(found.keys.top[0].key, "10.0.0.0/8");
}

#[test]
fn a_key_part_with_its_own_prefixes_counts_its_networks() {
    let key = r#"[{"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 48}}]"#;
    let rules = format!(
        r#""rules": [{{"name": "each", "key": {key}, "quotas": [{{"limit": 2, "window": "1m"}}]}}]"#
    );
    let policy = policy(&format!(r#"{{"version": 1, {rules}}}"#));
    let clients = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8:0:1::1", "2001:db8:0:2::1"];
    let more = ["2001:db8:0:3::1", "2001:db8:1::1", "192.0.3.1"];
    let text = log(&clients.iter().chain(&more).map(|client| (0, *client)).collect::<Vec<_>>());
    let found = summary(&policy, Options::default(), &text);
    // Clients are those of the document.
    assert_eq!((found.requests.denied, found.clients.total), (2, 7));
    let mut top: Vec<&str> = found.keys.top.iter().map(|key| key.key.as_str()).collect();
    top.sort_unstable();
    assert_eq!(top, ["192.0.2.0/24", "2001:db8::/48"]);
}

#[test]
fn who_waits_is_told_when_his_turn_has_come() {
    let delay = r#", "action": {"delay": {"max": "40s"}}"#;
    let policy = each_client(r#""limit": 2, "window": "1m", "burst": 1"#, delay);
    let found =
        summary(&policy, Options::default(), &log(&[(0, "a"), (0, "a"), (0, "a"), (0, "b")]));
    let tally = Tally { total: 4, admitted: 2, delayed: 1, denied: 1, ..Tally::default() };
    assert_eq!(found.requests, tally);
    // Spread over 0, 250 and 500 ms: the second is sent on at 30 s, the third not before 60 s.
    let waits = found.waits.unwrap();
    assert_eq!((waits.waited, waits.max_ms), (1, 29_750));
    assert_eq!((found.clients.delayed, found.clients.denied), (1, 1));
    let (delayed, denied) = (found.rules[0].delayed, found.rules[0].denied);
    assert_eq!((found.rules[0].allowed, delayed, denied), (2, 1, 1), "{:?}", found.rules);
    assert_eq!(found.timeline.bins[0].delayed, 1, "when it came");
}

#[test]
fn a_leaky_queue_tells_the_wait_at_once() {
    let quota = r#""limit": 60, "window": "1m", "algorithm": "leaky-queue", "burst": 3"#;
    let policy = each_client(quota, r#", "action": {"delay": {"max": "5s"}}"#);
    let requests: Vec<(u64, &str)> = (0..8).map(|_| (0, "a")).collect();
    let found = summary(&policy, Options::default(), &log(&requests));
    let Tally { total, admitted, delayed, denied, .. } = found.requests;
    assert_eq!((total, admitted + delayed + denied), (8, 8));
    assert!(delayed >= 2 && denied >= 1, "{:?}", found.requests);
    assert_eq!(found.waits.unwrap().waited, delayed);
    assert_eq!(found.rules[0].delayed, delayed);
}

#[test]
fn what_passes_over_the_limit_is_counted_apart() {
    let shadow = each_client(r#""limit": 2, "window": "1m""#, r#", "mode": "shadow""#);
    let found = summary(&shadow, Options::default(), &log(&BUSY));
    assert_eq!(
        (found.requests.denied, found.requests.shadowed, found.requests.admitted),
        (0, 2, 7)
    );
    assert_eq!((found.clients.denied, found.clients.shadowed), (0, 1));
    assert_eq!((found.keys.top[0].shadowed, found.rules[0].shadowed), (2, 2));
    assert_eq!(found.timeline.bins[0].over, 2);
    let mark = r#", "action": {"mark": {"header": "x-over", "value": "1"}}"#;
    let mark = each_client(r#""limit": 2, "window": "1m""#, mark);
    let found = summary(&mark, Options::default(), &log(&BUSY));
    assert_eq!((found.requests.marked, found.clients.marked, found.requests.denied), (2, 1, 0));
}

#[test]
fn what_cannot_be_read_is_no_denial() {
    let policy = policy(
        r#"{"version": 1, "rules": [{"name": "page", "key": [{"query": "q"}], "quotas": [{"limit": 1, "window": "1m"}]}]}"#,
    );
    let text = line(0, "a", "GET /?q=1&q=2", 200) + &line(1, "a", "GET /?q=1", 200);
    let found = summary(&policy, Options::default(), &text);
    let tally = Tally { total: 2, admitted: 1, unreadable: 1, ..Tally::default() };
    assert_eq!((found.requests, found.clients.unreadable, found.clients.denied), (tally, 1, 0));
    assert_eq!(found.rules[0].malformed, 1);
}

#[test]
fn both_directions_of_a_comparison() {
    let (new, old) = (two_a_minute(), each_client(r#""limit": 1, "window": "1s""#, ""));
    let replay = Replay::new(Arc::clone(&new), AssumedValues::default(), Options::default());
    let replay = replay.against(Arc::clone(&old));
    let mut requests = BUSY.to_vec();
    requests.extend([(80, "d"), (81, "d"), (82, "d"), (82, "d"), (200, "e"), (200, "e")]);
    let (found, ()) = run(replay, &new, "combined", log(&requests).as_bytes());
    let against = found.against.unwrap();
    // The new one: a 2, d 2. The old one: a 3, b 1, d 1, e 1.
    assert_eq!((found.requests.denied, against.requests.denied), (4, 6));
    let changed = ChangeCounts { newly_limited: 1, no_longer_limited: 3, both: 3 };
    assert_eq!(against.changed_requests, changed);
    let clients = ChangeCounts { newly_limited: 0, no_longer_limited: 2, both: 2 };
    assert_eq!(against.changed_clients, clients);
    assert_eq!(against.newly_limited[0].client, "d");
    assert_eq!(against.newly_limited[0].request, "GET /");
    assert_eq!(against.newly_limited[0].at, Moment(at(82_000)));
    let gone: Vec<&str> = against.no_longer_limited.iter().map(|e| e.client.as_str()).collect();
    assert_eq!(gone, ["a", "b", "e"]);
    assert_eq!((against.rules[0].denied, against.clients.denied), (6, 4));
    // In the reverse order.
    let replay =
        Replay::new(old, AssumedValues::default(), Options::default()).against(Arc::clone(&new));
    let (back, ()) = run(replay, &new, "combined", log(&requests).as_bytes());
    let back = back.against.unwrap();
    let changed = ChangeCounts { newly_limited: 3, no_longer_limited: 1, both: 3 };
    assert_eq!((back.changed_requests, back.requests), (changed, found.requests));
    // A policy does not differ from itself.
    let replay = Replay::new(Arc::clone(&new), AssumedValues::default(), Options::default());
    let (same, ()) =
        run(replay.against(Arc::clone(&new)), &new, "combined", log(&requests).as_bytes());
    let same = same.against.unwrap().changed_requests;
    assert_eq!(same, ChangeCounts { both: 4, ..ChangeCounts::default() });
}

/// A client that waits under one policy only is compared when its fate is known.
#[test]
fn a_comparison_waits_for_who_waits() {
    let delay = r#", "action": {"delay": {"max": "40s"}}"#;
    let waits = each_client(r#""limit": 2, "window": "1m", "burst": 1"#, delay);
    let refuses = each_client(r#""limit": 2, "window": "1m", "burst": 1"#, "");
    let text = log(&[(0, "a"), (0, "a"), (0, "a"), (0, "b")]);
    for (here, there) in [(&waits, &refuses), (&refuses, &waits)] {
        let replay = Replay::new(Arc::clone(here), AssumedValues::default(), Options::default());
        let (found, ()) = run(replay.against(Arc::clone(there)), here, "combined", text.as_bytes());
        let changed = found.against.unwrap().changed_requests;
        assert_eq!(changed, ChangeCounts { both: 2, ..ChangeCounts::default() });
        assert_eq!(found.timeline.bins[0].total, 4);
    }
}

#[test]
fn an_observer_is_told_of_every_counted_request() {
    struct Recorder(Vec<CountedRequest>);
    impl Observer for Recorder {
        fn counted(&mut self, request: CountedRequest) {
            self.0.push(request);
        }
    }
    let charge = r#", "cost": 3, "charge": {"response_status": ["401"]}"#;
    let policy = each_client(r#""limit": 6, "window": "1m""#, charge);
    let replay = Replay::observed(
        Arc::clone(&policy),
        AssumedValues::default(),
        Options::default(),
        Recorder(vec![]),
    );
    let text: String =
        (0..4).map(|i| line(i, "a", "GET /", if i == 0 { 200 } else { 401 })).collect();
    let (found, Recorder(told)) = run(replay, &policy, "combined", text.as_bytes());
    assert_eq!(found.requests.denied, 1);
    let costs: Vec<(u64, bool)> = told.iter().map(|c| (c.cost, c.is_over)).collect();
    assert_eq!(costs, [(0, false), (3, false), (3, false), (3, true)]);
    assert!(told.iter().all(|c| c.key == told[0].key && (c.rule, c.quota_set) == (0, 0)));
    assert_eq!(told.iter().map(|c| c.at).collect::<Vec<_>>(), [0, 1000, 2000, 3000].map(at));
}

#[test]
fn what_cannot_be_parsed_is_counted_and_shown() {
    let text = log(&BUSY[..2]) + "secret-of-somebody\n\n" + &log(&BUSY[2..3]);
    let found = summary(&two_a_minute(), Options::default(), &text);
    assert_eq!((found.log.lines, found.log.unparsable, found.requests.total), (4, 1, 3));
    let sample = &found.log.causes[0].samples[0];
    assert_eq!((sample.line, &*sample.text), (3, "secret-of-somebody"));
}

#[test]
fn nothing_of_a_private_replay_tells_who_it_was() {
    let options = || Options { is_private: true, secret: [7; 16], ..Options::default() };
    let policy = two_a_minute();
    let mut text: String =
        (0..9).map(|_| line(0, "planted.example", "GET /planted", 200)).collect();
    text.push_str("planted line\n");
    let replay = Replay::new(Arc::clone(&policy), AssumedValues::default(), options());
    let other = each_client(r#""limit": 4, "window": "1m""#, "");
    let (found, ()) = run(replay.against(other), &policy, "combined", text.as_bytes());
    assert!(found.requests.denied > 0 && found.log.unparsable == 1);
    assert!(!found.against.as_ref().unwrap().newly_limited.is_empty());
    let shown = format!("{found:?}");
    assert!(!shown.contains("planted"), "{shown}");
    assert!(found.keys.top[0].key.starts_with("key "), "{shown}");
    // The same secret gives the same hashes, another one others.
    let again = summary(&policy, options(), &text);
    assert_eq!(again.keys.top[0].key, found.keys.top[0].key);
    let other = summary(&policy, Options { secret: [8; 16], ..options() }, &text);
    assert_ne!(other.keys.top[0].key, found.keys.top[0].key);
}
