//! Runs: the tables for known traffic, and that their numbers add up.

use std::sync::Arc;

use tollgate_lab::simulator::{Fate, Run, Table, Traffic};
use tollgate_policy::{Policy, Surface};

fn policy(rules: &str) -> Arc<Policy> {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    Arc::new(tollgate_language::compile(&document, Surface::Library).expect(&document))
}

/// One rule per client, by `algorithm`, with these fields of its quota and its own.
fn each(quota: &str, rule: &str) -> Arc<Policy> {
    policy(&format!(r#"{{"name": "each", "key": ["client_ip"], "quotas": [{{{quota}}}] {rule}}}"#))
}

fn run(policy: &Arc<Policy>, traffic: &str) -> Table {
    let traffic = Traffic::parse(traffic).expect(traffic);
    Run::new(Arc::clone(policy), &traffic, 1).finish()
}

/// Ten just before the edge of a minute and ten on it, twice.
const EDGE: &str =
    r#"{"length": "150s", "sources": [{"arrivals": {"edge": {"window": "1m", "size": 10}}}]}"#;

#[test]
fn a_fixed_window_admits_twice_its_limit_round_an_edge() {
    let of = |algorithm: &str| {
        let quota = format!(r#""limit": 10, "window": "1m", "algorithm": "{algorithm}""#);
        let table = run(&each(&quota, ""), EDGE);
        assert_eq!((table.offered, table.delayed), (40, 0));
        (table.admitted, table.false_allow, table.false_deny, table.most_admitted, table.burst)
    };
    // The ten before the second edge find the window used up by the ten on the first one.
    assert_eq!(of("fixed-window"), (30, 20, 10, 20, 10));
    assert_eq!(of("sliding-log"), (20, 0, 0, 10, 1));
    let (admitted, false_allow, _, most, _) = of("gcra");
    assert_eq!((admitted, false_allow, most), (20, 0, 10));
}

/// The exact twin has the same deny rules, so such a denial is never a false one.
#[test]
fn a_rule_that_denies_without_counting_is_a_row_and_no_error() {
    let traffic = r#"{"length": "10s", "sources": [
        {"name": "good", "arrivals": {"steady": {"rate": "1/1s"}}, "request": {"path": "/"}},
        {"name": "bad", "arrivals": {"steady": {"rate": "2/1s"}}, "request": {"path": "/x"}}]}"#;
    let rules = r#"{"name": "blocked", "deny": true, "when": {"paths": ["/x"]}},
        {"name": "each", "key": [], "quotas": [{"limit": 10, "window": "1m", "algorithm": "sliding-log"}]}"#;
    let table = run(&policy(rules), traffic);
    assert_eq!((table.offered, table.admitted, table.denied), (30, 10, 20));
    assert_eq!((table.false_allow, table.false_deny), (0, 0));
    let rows: Vec<_> = table.rules.iter().map(|it| (&*it.name, it.allowed, it.denied)).collect();
    assert_eq!(rows, [("each", 10, 0), ("blocked", 0, 20)]);
}

#[test]
fn what_a_leaky_queue_delays_counts_when_it_goes() {
    let quota = r#""limit": 2, "window": "1s", "burst": 4, "algorithm": "leaky-queue""#;
    let action = r#", "action": {"delay": {"max": "1s"}}"#;
    let burst =
        r#"{"length": "10s", "sources": [{"arrivals": {"bursts": {"size": 5, "every": "10s"}}}]}"#;
    let table = run(&each(quota, action), burst);
    assert_eq!((table.admitted, table.delayed, table.denied), (1, 2, 2));
    // At 0, 0.5 and 1 s: never more than two in a second.
    assert_eq!((table.most_admitted, table.burst), (2, 1));
    assert_eq!((table.waits.p50_us, table.waits.max_us), (500_000, 1_000_000));
    // At 0 s the twin allows a second one, which the policy denies, and so none at 0.5 s.
    assert_eq!((table.false_allow, table.false_deny), (1, 1));
}

#[test]
fn those_who_wait_in_a_line_go_in_time_and_are_counted_once() {
    let quota = r#""limit": 2, "window": "1s", "burst": 1"#;
    let action = r#", "action": {"delay": {"max": "2s"}}"#;
    let steady = r#"{"length": "10s", "sources": [{"arrivals": {"steady": {"rate": "4/1s"}}}]}"#;
    let policy = each(quota, action);
    let traffic = Traffic::parse(steady).unwrap();
    let mut run = Run::new(policy, &traffic, 1);
    let (mut last, mut waiting, mut ends) = (None, 0, 0);
    while !run
        .step(1, &mut |seen| {
            assert!(last <= Some(seen.at));
            last = Some(seen.at);
            match seen.decided.fate() {
                Fate::Waiting => waiting += 1,
                _ => ends += 1,
            }
        })
        .is_done
    {}
    let table = run.table();
    assert_eq!((table.offered, ends), (40, 40));
    assert_eq!(table.admitted + table.delayed + table.denied, 40);
    // Two per second for ten seconds, and those still in the queue for two seconds more.
    assert_eq!((table.admitted + table.delayed, waiting >= table.delayed), (24, true));
    assert_eq!(table.waits.max_us, 2_000_000);
    assert_eq!((table.false_allow, table.most_admitted), (0, 2));
}

#[test]
fn clients_that_do_as_they_are_told_are_refused_less() {
    let policy = each(r#""limit": 10, "window": "10s""#, "");
    let with = |retry: &str| {
        let traffic = format!(
            r#"{{"length": "60s", "sources": [{{"arrivals": {{"bursts": {{"size": 20, "every": "60s"}}}},
                "retry": {{"attempts": 100, "wait": {retry}, "jitter": "100ms"}}}}]}}"#
        );
        run(&policy, &traffic)
    };
    let (obedient, rash) = (with("\"retry_after\""), with(r#"{"fixed": "100ms"}"#));
    for table in [&obedient, &rash] {
        assert_eq!(table.admitted, 20, "in the end everybody gets through");
        assert_eq!(table.sources[0].retries, table.offered - 20);
    }
    assert!(obedient.denied * 2 < rash.denied, "{} and {}", obedient.denied, rash.denied);
}

#[test]
fn paced_clients_are_hardly_refused_at_all() {
    let policy = each(r#""limit": 10, "window": "10s""#, "");
    let with = |paced: bool| {
        let traffic = format!(
            r#"{{"length": "60s", "sources": [{{"arrivals": {{"steady": {{"rate": "2/s"}}}}, "paced": {paced}}}]}}"#
        );
        run(&policy, &traffic).denied
    };
    assert!(with(false) >= 40 && with(true) <= 5, "{} and {}", with(false), with(true));
}

#[test]
fn several_rules_are_one_twin() {
    let policy = policy(
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 3, "window": "1s", "algorithm": "sliding-log"}]},
           {"name": "all", "key": ["host"], "quotas": [{"limit": 4, "window": "1s", "algorithm": "sliding-log"}]},
           {"name": "seen", "key": ["client_ip"], "mode": "shadow", "quotas": [{"limit": 1, "window": "1s"}]}"#,
    );
    let table = run(
        &policy,
        r#"{"length": "10s", "sources": [
        {"arrivals": {"poisson": {"rate": "20/s"}}, "clients": {"count": 3, "zipf": 1}}]}"#,
    );
    assert_eq!((table.false_allow, table.false_deny), (0, 0));
    assert_eq!(
        table.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(),
        ["each", "all", "seen"]
    );
    assert!(table.rules[0].denied > 0 && table.rules[1].denied > 0 && table.rules[2].shadowed > 0);
    assert_eq!(table.rules[0].allowed + table.rules[0].denied, table.offered);
    assert_eq!(table.quotas.iter().map(|quota| quota.most_admitted).collect::<Vec<_>>(), [3, 4, 0]);
    assert_eq!((table.most_admitted, table.limit), (3, 3));
}

#[test]
fn a_key_that_is_missing_refuses_in_the_twin_too() {
    let missing = r#"{"name": "token", "key": [{"header": "x-token"}], "on_missing": "deny", "quotas": [{"limit": 9, "window": "1s"}]}"#;
    let table = run(&policy(missing), EDGE);
    assert_eq!((table.denied, table.false_allow, table.false_deny), (40, 0, 0));
    let some = run(&policy(""), EDGE);
    assert_eq!((some.admitted, some.false_allow, some.false_deny, some.limit), (40, 0, 0, 0));
}

#[test]
fn a_table_has_stable_names() {
    let table = run(&each(r#""limit": 10, "window": "1m""#, ""), EDGE);
    let json = serde_json::to_string(&table).unwrap();
    assert_eq!(
        json,
        r#"{"offered":40,"admitted":20,"delayed":0,"denied":20,"false_allow":0,"false_deny":0,"#
            .to_owned()
            + r#""most_admitted":10,"limit":10,"burst":1,"waits":{"p50_us":0,"p99_us":0,"max_us":0},"#
            + r#""state_bytes":16,"keys":1,"evictions":0,"evictions_half_used":0,"lost_races":0,"seconds":120,"given_up":0,"#
            + r#""is_cut_short":false,"rules":[{"name":"each","allowed":20,"denied":20,"delayed":0,"marked":0,"#
            + r#""shadowed":0,"failed":0,"malformed":0}],"quotas":[{"rule":"each","tier":null,"name":"each","#
            + r#""algorithm":"gcra","limit":10,"window_us":60000000,"most_admitted":10,"burst":1,"state_len":8}],"#
            + r#""sources":[{"name":"source 1","offered":40,"admitted":20,"delayed":0,"denied":20,"retries":0}]}"#
    );
}

/// New keys of a flood evict each other, never a key that has used up a quota.
#[test]
fn envoys_table_loses_keys_of_a_spray_and_counts_them() {
    let rule = r#", "capacity": 64"#;
    let policy = each(r#""limit": 5, "window": "1h""#, rule);
    let with = |store: &str| {
        let traffic = format!(
            r#"{{"length": "100s", "servers": {{"store": "{store}"}}, "sources": [
                {{"name": "user", "arrivals": {{"steady": {{"rate": "1/1s"}}}}}},
                {{"name": "spray", "arrivals": {{"steady": {{"rate": "20/1s"}}}}, "clients": {{"fresh": true}}}}]}}"#
        );
        run(&policy, &traffic)
    };
    let (exact, envoy) = (with("exact"), with("envoy"));
    assert_eq!((exact.evictions, exact.keys, exact.false_allow), (0, 2_001, 0));
    assert_eq!(exact.sources[0].admitted, 5);
    assert_eq!(envoy.keys + envoy.evictions, 2_001);
    assert_eq!((envoy.keys, envoy.evictions_half_used, envoy.false_allow), (128, 0, 0));
    assert_eq!(envoy.sources[0].admitted, 5);
}

#[test]
fn nodes_that_do_not_share_admit_each_a_limit() {
    let policy = each(r#""limit": 10, "window": "1m""#, "");
    let with = |spread: &str| {
        let traffic = format!(
            r#"{{"length": "60s", "servers": {{"count": 3, "spread": "{spread}"}}, "sources": [
                {{"arrivals": {{"bursts": {{"size": 300, "every": "1m"}}}}, "clients": {{"count": 4}}}}]}}"#
        );
        let table = run(&policy, &traffic);
        (table.admitted, table.false_allow, table.most_admitted)
    };
    assert_eq!(with("round_robin"), (120, 80, 30));
    assert_eq!(with("random"), (120, 80, 30));
    assert_eq!(with("client"), (40, 0, 10));
}

#[test]
fn a_clock_that_is_set_forward_lets_a_window_through_twice() {
    let policy = each(r#""limit": 10, "window": "1m""#, "");
    let with = |fault: &str| {
        let traffic = format!(
            r#"{{"length": "90s", "servers": {{"clocks": [[{fault}]]}}, "sources": [
                {{"arrivals": {{"instants": {{"at": ["0s", "0s", "0s", "0s", "0s", "0s", "0s", "0s", "0s", "0s", "0s",
                    "30s", "30s", "30s", "30s", "30s", "30s", "30s", "30s", "30s", "30s", "30s"]}}}}}}]}}"#
        );
        let table = run(&policy, &traffic);
        (table.admitted, table.false_allow, table.most_admitted)
    };
    // By gcra half of it is back after half a minute, by the exact log nothing.
    assert_eq!(with(""), (15, 5, 15));
    assert_eq!(with(r#"{"forward": {"at": "30s", "by": "30s"}}"#), (20, 10, 20));
    assert_eq!(with(r#"{"back": {"at": "30s", "by": "20s"}}"#), (11, 1, 11));
    assert_eq!(with(r#"{"freezes": {"at": "0s", "length": "60s"}}"#), (10, 0, 10));
    assert_eq!(with(r#"{"oscillates": {"by": "20s", "every": "30s"}}"#), (18, 8, 18));
}

/// Units are held until the response comes. Requests that are not charged use nothing up, however
/// many are under way; only the number under way at one time is limited.
#[test]
fn an_origin_that_takes_its_time_holds_what_is_under_way() {
    let with = |latency: &str, status: u16| {
        let rule = r#"{"name": "guesses", "key": ["host"],
            "charge": {"response_status": ["401"], "reserve": true}, "quotas": [{"limit": 30, "window": "1m"}]}"#;
        let traffic = format!(
            r#"{{"length": "1m", "servers": {{"latency": "{latency}"}}, "sources": [{{"status": {status}, "each": true,
                "arrivals": {{"spaced": {{"size": 119, "wait": "500ms"}}}}, "clients": {{"count": 10}}}}]}}"#
        );
        let table = run(&policy(rule), &traffic);
        (table.admitted, table.denied)
    };
    for latency in ["0s", "20ms", "500ms", "1s"] {
        assert_eq!(with(latency, 200), (1_190, 0), "{latency}");
    }
    // 30 under way for 5 s each, in a minute of arrivals.
    let (admitted, denied) = with("5s", 200);
    assert!((300..=400).contains(&admitted) && admitted + denied == 1_190, "{admitted}");
    for latency in ["0s", "500ms", "5s"] {
        assert_eq!(with(latency, 401).0, 59, "{latency}");
    }
}

/// Compare and swap: workers that decide at the same time together allow what one worker would.
#[test]
fn workers_that_race_admit_what_one_admits() {
    let two = r#"{"name": "each", "key": ["client_ip"], "capacity": 16, "quotas": [{"limit": 10, "window": "1m"}]},
        {"name": "all", "key": ["host"], "capacity": 16, "quotas": [{"limit": 12, "window": "1m"}]}"#;
    for (rules, admitted) in [
        (
            r#"{"name": "each", "key": ["client_ip"], "capacity": 16, "quotas": [{"limit": 10, "window": "1m"}]}"#,
            20,
        ),
        (two, 12),
    ] {
        for store in ["exact", "envoy"] {
            let with = |workers: u32| {
                let traffic = format!(
                    r#"{{"length": "10s", "servers": {{"store": "{store}", "workers": {workers}, "work": "20us"}}, "sources": [
                        {{"arrivals": {{"bursts": {{"size": 40, "every": "10s"}}}}, "clients": {{"count": 2}}}}]}}"#
                );
                run(&policy(rules), &traffic)
            };
            let (one, four) = (with(1), with(4));
            assert_eq!((one.admitted, one.denied, one.lost_races), (admitted, 40 - admitted, 0));
            assert_eq!((four.admitted, four.denied), (admitted, 40 - admitted), "{store}");
            assert!(four.lost_races > 0 && four.delayed == 0);
            assert_eq!((four.most_admitted, four.limit), (one.most_admitted, one.limit));
        }
    }
}

/// 33 late writes in a row are a failure, which the rule decides.
#[test]
fn who_loses_every_race_is_decided_by_the_rules_failure_mode() {
    let rule = |mode: &str| {
        each(r#""limit": 1000, "window": "1m""#, &format!(r#", "on_failure": "{mode}""#))
    };
    let with = |mode: &str| {
        let burst = r#"{"length": "10s", "servers": {"workers": 64, "work": "20us"}, "sources": [
            {"arrivals": {"bursts": {"size": 64, "every": "10s"}}}]}"#;
        let table = run(&rule(mode), burst);
        (table.admitted, table.denied, table.rules[0].failed)
    };
    // Of 64 at the same time one succeeds at each try.
    assert_eq!(with("deny"), (32, 32, 32));
    assert_eq!(with("allow"), (64, 0, 32));
}

/// A charge to one key is refunded when another key loses its race.
#[test]
fn who_loses_a_race_at_one_key_keeps_nothing_at_another() {
    let rules = r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h"}]},
        {"name": "all", "key": ["host"], "quotas": [{"limit": 1, "window": "1s"}]}"#;
    let table = run(
        &policy(rules),
        r#"{"length": "10s", "servers": {"workers": 2, "work": "20us"}, "sources": [
        {"name": "first", "arrivals": {"instants": {"at": ["0s"]}}},
        {"name": "second", "arrivals": {"instants": {"at": ["0s", "2s"]}}}]}"#,
    );
    let (first, second) = (&table.sources[0], &table.sources[1]);
    assert_eq!((first.admitted, first.denied), (1, 0));
    assert_eq!((second.admitted, second.denied), (1, 1), "it lost, and came again");
    assert_eq!(table.lost_races, 1);
}

/// Workers that can never keep up hold a bounded number of requests, and none is lost.
#[test]
fn a_line_for_workers_is_bounded_and_everybody_is_decided() {
    let policy = each(r#""limit": 10, "window": "1s""#, "");
    let traffic = r#"{"length": "1s", "servers": {"work": "1ms"}, "sources": [
        {"arrivals": {"bursts": {"size": 100002, "every": "1s"}}}]}"#;
    let traffic = Traffic::parse(traffic).unwrap();
    let mut run = Run::new(policy, &traffic, 1);
    // One is taken, 100,000 wait, and the last one does not wait.
    let mut at_once = 0;
    run.step(100_002, &mut |seen| at_once += u64::from(seen.at == seen.request.at));
    assert_eq!(at_once, 1);
    while !run.step(1 << 20, &mut |_| {}).is_done {}
    let table = run.table();
    assert_eq!((table.offered, table.admitted + table.denied), (100_002, 100_002));
}
