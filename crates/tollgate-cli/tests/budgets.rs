//! `tollgate replay` of policies with penalties, rules that deny, limits from requests, costs that
//! responses show, and requests in flight.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::support::{scratch, tollgate};

/// The report on a log with these columns after the time, the client and the path.
fn replay(name: &str, rule: &Value, columns: &str, rows: &[(u64, &str)]) -> Value {
    let folder = scratch(&format!("budgets/{name}"));
    let policy = json!({"version": 1, "rules": rule});
    fs::write(folder.join("policy.json"), policy.to_string()).unwrap();
    let mut log = format!("time,client,target{columns}\n");
    for (second, rest) in rows {
        let (minute, second) = (second / 60, second % 60);
        writeln!(log, "2026-01-31T09:{minute:02}:{second:02}Z,192.0.2.1,{rest}").unwrap();
    }
    fs::write(folder.join("access.csv"), log).unwrap();
    let mut arguments = vec!["replay", "policy.json", "access.csv", "--format", "csv", "--json"];
    let map = columns.strip_prefix(',').map(|column| format!("{column}={column}"));
    arguments.extend(map.iter().flat_map(|map| ["--map", map]));
    let ran = tollgate(&folder, &arguments);
    let report = serde_json::from_str(&ran.stdout);
    report.unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn admitted(report: &Value) -> (u64, u64) {
    let count = |name: &str| report["requests"][name].as_u64().expect("a count");
    (count("admitted"), count("denied"))
}

#[test]
fn a_penalty_denies_for_its_time() {
    let rule = |penalty: Value| {
        let mut quota = json!({"limit": 2, "window": "1s", "algorithm": "fixed-window"});
        if !penalty.is_null() {
            quota["penalty"] = penalty;
        }
        json!([{"name": "each", "key": ["client_ip"], "quotas": [quota]}])
    };
    // Three in the first second, and one in each of the next nine.
    let rows: Vec<(u64, &str)> = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|at| (at, "/")).to_vec();
    let of = |name: &str, penalty: Value| admitted(&replay(name, &rule(penalty), "", &rows));
    assert_eq!(of("none", Value::Null), (11, 1));
    assert_eq!(of("penalty", json!("5s")), (6, 6), "the third is at 0.67 s");
    assert_eq!(of("steps", json!(["2s", "1h"])), (9, 3), "the second step never starts");
}

#[test]
fn a_rule_that_denies_is_in_the_report() {
    let rules = json!([
        {"name": "blocked", "deny": true, "when": {"paths": ["/x"]}},
        {"name": "watched", "deny": true, "mode": "shadow", "when": {"paths": ["/y"]}},
    ]);
    let report = replay("deny", &rules, "", &[(0, "/"), (1, "/x"), (2, "/y"), (3, "/x")]);
    assert_eq!(admitted(&report), (2, 2));
    assert_eq!(report["requests"]["shadowed"], 1);
}

#[test]
fn a_logged_header_brings_the_limit() {
    let rules = json!([{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h",
        "algorithm": "fixed-window", "limit_from": {"header": "x-limit", "max": 4}}]}]);
    let rows =
        [(0, "/,"), (1, "/,"), (2, "/,2"), (3, "/,2"), (4, "/,99"), (5, "/,99"), (6, "/,99")];
    let with = replay("limit", &rules, ",header.x-limit", &rows);
    assert_eq!((admitted(&with), &with["notes"]), ((4, 3), &json!([])));
    // Guards: figures of the quota's own limit that look like those of the requests' limits.
    let without = replay("no-limit", &rules, "", &[(0, "/"), (1, "/"), (2, "/")]);
    let note = "rule \"each\": its limit_from reads header.x-limit, which is not in the log; use --map header.x-limit=COLUMN or --assume header.x-limit=VALUE; without it the quota's own limit applies";
    assert_eq!((admitted(&without), &without["notes"]), ((1, 2), &json!([note])));
}

#[test]
fn the_column_actual_settles_a_cost() {
    let rules = json!([{"name": "tokens", "key": ["client_ip"],
        "cost": {"estimate": 4, "max": 50, "actual": {"header": "x-tokens"}, "forgive_excess": true},
        "quotas": [{"limit": 20, "window": "1h", "algorithm": "fixed-window"}]}]);
    let of = |name: &str, actual: &str| {
        let rest = format!("/,{actual}");
        let rows: Vec<(u64, &str)> = (0..20).map(|at| (at, rest.as_str())).collect();
        admitted(&replay(name, &rules, ",actual", &rows)).0
    };
    assert_eq!(of("estimate", "-"), 5);
    assert_eq!(of("text", "many"), 5, "the estimate stays");
    assert_eq!(of("nothing", "0"), 20);
    assert_eq!(of("less", "1"), 17, "17 are used, and 4 no longer fit");
    assert_eq!(of("more", "10"), 2);
}

#[test]
fn the_column_duration_is_the_time_in_flight() {
    let rules = json!([{"name": "each", "key": ["client_ip"], "concurrency": {"limit": 2}}]);
    let of = |name: &str, duration: &str| {
        let rest = format!("/,{duration}");
        let rows: Vec<(u64, &str)> = (0..10).map(|at| (at, rest.as_str())).collect();
        admitted(&replay(name, &rules, ",duration", &rows)).0
    };
    assert_eq!(of("short", "1500"), 10);
    assert_eq!(of("seconds", "1.500"), 10);
    assert_eq!(of("long", "4500"), 4, "two at 0 and 1 s, and two at 5 and 6 s");
}
