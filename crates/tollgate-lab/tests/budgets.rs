//! Runs with penalties, limits from requests, costs that responses show, and requests in flight.

use tollgate_lab::simulator::{Run, Table, Traffic};
use tollgate_policy::Surface;

fn run(rules: &str, traffic: &str) -> Table {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    let policy = tollgate_language::compile(&document, Surface::Library).expect(&document);
    let traffic = Traffic::parse(traffic).expect(traffic);
    Run::new(std::sync::Arc::new(policy), &traffic, 1).finish()
}

/// One client that sends four requests per second for ten seconds.
const STEADY: &str =
    r#"{"length": "10s", "sources": [{"arrivals": {"steady": {"rate": "4/1s"}}}]}"#;

/// Two are allowed in each second. With a penalty these two, and after 5.5 s two more.
#[test]
fn a_penalty_denies_for_its_time() {
    let with = |penalty: &str| {
        let quota = r#""limit": 2, "window": "1s", "algorithm": "sliding-log""#;
        let rules = format!(
            r#"{{"name": "each", "key": ["client_ip"], "quotas": [{{{quota}{penalty}}}]}}"#
        );
        let table = run(&rules, STEADY);
        assert_eq!(table.offered, 40);
        (table.admitted, table.denied)
    };
    assert_eq!(with(""), (20, 20));
    assert_eq!(with(r#", "penalty": "5s""#), (4, 36));
    assert_eq!(with(r#", "penalty": ["1s", "1h"]"#), (4, 36));
    assert_eq!(with(r#", "penalty": "1h""#), (2, 38));
}

/// Each request brings the limit of its plan; a limit above the highest is the highest.
#[test]
fn a_request_brings_its_limit() {
    let rules = r#"{"name": "each", "key": [{"header": "x-user"}], "quotas": [{"limit": 2, "window": "1m",
        "algorithm": "sliding-window", "limit_from": {"header": "x-limit", "max": 10}}]}"#;
    let source = |user: &str, limit: &str| {
        format!(
            r#"{{"name": "{user}", "arrivals": {{"steady": {{"rate": "2/1s"}}}},
                "request": {{"headers": {{"x-user": "{user}"{limit}}}}}}}"#
        )
    };
    let sources = [
        source("none", ""),
        source("five", r#", "x-limit": "5""#),
        source("many", r#", "x-limit": "1000""#),
        source("zero", r#", "x-limit": "0""#),
        source("text", r#", "x-limit": "all""#),
    ];
    let traffic = format!(r#"{{"length": "10s", "sources": [{}]}}"#, sources.join(", "));
    let table = run(rules, &traffic);
    assert_eq!((table.offered, table.admitted), (100, 2 + 5 + 10 + 2));
}

/// A response that shows less gives back the rest of the estimate; one that shows more is charged
/// the difference.
#[test]
fn responses_settle_the_costs() {
    let rules = r#"{"name": "tokens", "key": ["host"], "quotas": [{"limit": 60, "window": "1h"}],
        "cost": {"estimate": 4, "max": 100, "actual": {"header": "x-tokens"}, "forgive_excess": true}}"#;
    let with = |actual: &str| {
        let traffic = format!(
            r#"{{"length": "10s", "sources": [{{"arrivals": {{"steady": {{"rate": "4/1s"}}}}{actual}}}]}}"#
        );
        run(rules, &traffic).admitted
    };
    assert_eq!(with(""), 15, "without one the estimate stays");
    assert_eq!(with(r#", "actual": {"always": 0}"#), 40);
    assert_eq!(with(r#", "actual": {"always": 2}"#), 29, "58 are used, and 4 no longer fit");
    assert_eq!(with(r#", "actual": {"always": 20}"#), 3);
}

/// A place is taken for the duration of a request. At four per second, each of three places is free
/// again after 2 s.
#[test]
fn requests_in_flight_take_their_time() {
    let rules = r#"{"name": "each", "key": ["client_ip"], "concurrency": {"limit": 3}}"#;
    let with = |duration: &str| {
        let traffic = format!(
            r#"{{"length": "10s", "sources": [{{"arrivals": {{"steady": {{"rate": "4/1s"}}}},
                "duration": {{"always": {duration}}}}}]}}"#
        );
        run(rules, &traffic).admitted
    };
    assert_eq!(with("100"), 40);
    assert_eq!(with("1900"), 15);
}
