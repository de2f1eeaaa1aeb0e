//! The golden tables: every algorithm on every model of traffic, with right clocks and wrong ones,
//! racing workers, Envoy's table and several nodes. The same natively, optimised, and as wasm.
//!
//! Guards: an unintended change of the limiter, the pipeline or the simulator. After an intended
//! one: `TOLLGATE_BLESS=1 cargo test -p tollgate-lab --test tables`, and review the difference.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing
)]

use std::fmt::Write as _;
use std::sync::Arc;

use tollgate_lab::simulator::{Run, Table, Traffic};
use tollgate_policy::{Policy, Surface};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SEED: u64 = 7;

/// Ten per ten seconds for each client, with every algorithm.
const QUOTAS: [(&str, &str, &str); 13] = [
    ("gcra", r#""algorithm": "gcra""#, ""),
    ("gcra burst 3", r#""algorithm": "gcra", "burst": 3"#, ""),
    ("gcra strict", r#""algorithm": "gcra", "burst": 5, "strict": true"#, ""),
    ("token-bucket", r#""algorithm": "token-bucket""#, ""),
    ("leaky-bucket", r#""algorithm": "leaky-bucket""#, ""),
    ("leaky-queue", r#""algorithm": "leaky-queue""#, r#", "action": {"delay": {"max": "5s"}}"#),
    ("fixed-window", r#""algorithm": "fixed-window""#, ""),
    ("sliding-window", r#""algorithm": "sliding-window""#, ""),
    ("sliding-window strict", r#""algorithm": "sliding-window", "strict": true"#, ""),
    ("sliding-buckets", r#""algorithm": "sliding-buckets", "buckets": 10"#, ""),
    (
        "sliding-buckets weighted",
        r#""algorithm": "sliding-buckets", "buckets": 10, "weighted": true"#,
        "",
    ),
    ("sliding-log", r#""algorithm": "sliding-log""#, ""),
    (
        "gcra in turn",
        r#""algorithm": "gcra", "burst": 1"#,
        r#", "action": {"delay": {"max": "5s"}}"#,
    ),
];

const MODELS: [(&str, &str); 13] = [
    ("steady", r#"{"arrivals": {"steady": {"rate": "3/2s"}}}"#),
    ("poisson", r#"{"arrivals": {"poisson": {"rate": "5/s"}}, "clients": {"count": 4}}"#),
    ("on and off", r#"{"arrivals": {"on_off": {"rate": "4/s", "on": "7s", "off": "8s"}}}"#),
    ("bursts", r#"{"arrivals": {"bursts": {"size": 14, "every": "7s"}}}"#),
    ("ramp", r#"{"arrivals": {"ramp": {"from": "0/s", "to": "5/s"}}}"#),
    ("edges", r#"{"arrivals": {"edge": {"window": "10s", "size": 10, "gap": "50ms"}}}"#),
    (
        "drawn",
        r#"{"arrivals": {"counts": {"bin": "3s", "counts": [1, 9, 0, 30, 2, 0, 0, 12, 12, 1]}}}"#,
    ),
    (
        "spaced",
        r#"{"arrivals": {"spaced": {"size": 20, "wait": "400ms", "jitter": "300ms"}}, "clients": {"count": 3}, "each": true}"#,
    ),
    (
        "zipf",
        r#"{"arrivals": {"poisson": {"rate": "6/s"}}, "clients": {"count": 40, "zipf": 1.2}}"#,
    ),
    (
        "obedient",
        r#"{"arrivals": {"bursts": {"size": 20, "every": "20s"}}, "retry": {"attempts": 4, "wait": "retry_after", "jitter": "1s"}}"#,
    ),
    (
        "rash",
        r#"{"arrivals": {"bursts": {"size": 20, "every": "20s"}}, "retry": {"attempts": 6, "wait": {"backoff": {"first": "100ms", "most": "1s"}}}}"#,
    ),
    (
        "paced",
        r#"{"arrivals": {"steady": {"rate": "3/s"}}, "clients": {"count": 2}, "paced": true}"#,
    ),
    (
        "attack",
        r#"{"name": "user", "arrivals": {"steady": {"rate": "2/s"}}}, {"name": "spray", "arrivals": {"steady": {"rate": "3/s"}}, "clients": {"fresh": true}},
           {"name": "scan", "arrivals": {"steady": {"rate": "1/3s"}}, "request": {"path": "/{n}"}, "status": 404}"#,
    ),
];

const SERVERS: [(&str, &str); 9] = [
    ("one node", "{}"),
    ("a fast clock", r#"{"clocks": [[{"fast": {"ppm": 50000}}]]}"#),
    ("a slow clock", r#"{"clocks": [[{"slow": {"ppm": 50000}}]]}"#),
    ("a clock set forward", r#"{"clocks": [[{"forward": {"at": "20s", "by": "6s"}}]]}"#),
    (
        "a clock set back",
        r#"{"clocks": [[{"back": {"at": "20s", "by": "6s"}}, {"back": {"at": "40s", "by": "1h"}}]]}"#,
    ),
    ("a clock that swings", r#"{"clocks": [[{"oscillates": {"by": "4s", "every": "3s"}}]]}"#),
    ("a clock that freezes", r#"{"clocks": [[{"freezes": {"at": "15s", "length": "20s"}}]]}"#),
    ("Envoy's table, workers", r#"{"store": "envoy", "workers": 4, "work": "30us"}"#),
    (
        "three nodes",
        r#"{"count": 3, "spread": "random", "clocks": [[], [{"fast": {"ppm": 9000}}]]}"#,
    ),
];

fn policy(quota: &str, rule: &str) -> Arc<Policy> {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "each", "key": ["client_ip"], "capacity": 16,
            "quotas": [{{"limit": 10, "window": "10s", {quota}}}] {rule}}}]}}"#
    );
    Arc::new(tollgate_language::compile(&document, Surface::Library).expect(&document))
}

const HEADING: &str = "                          offer admit delay  deny allow- deny- most burst   p50 us   p99 us   max us state keys evict  half races";

fn row(name: &str, table: &Table) -> String {
    let Table { offered, admitted, delayed, denied, false_allow, false_deny, .. } = table;
    let Table { most_admitted, burst, waits, state_bytes, keys, .. } = table;
    let Table { evictions, evictions_half_used, lost_races, .. } = table;
    format!(
        "{name:<25} {offered:>5} {admitted:>5} {delayed:>5} {denied:>5} {false_allow:>6} {false_deny:>5} \
         {most_admitted:>4} {burst:>5} {:>8} {:>8} {:>8} {state_bytes:>5} {keys:>4} {evictions:>5} \
         {evictions_half_used:>5} {lost_races:>5}",
        waits.p50_us, waits.p99_us, waits.max_us
    )
}

/// All tables for one set of servers.
fn tables(about: &str, servers: &str) -> String {
    let mut out = format!("# {about}\n");
    for (model, sources) in MODELS {
        writeln!(out, "\n## {model}, {about}\n{HEADING}").unwrap();
        let document =
            format!(r#"{{"length": "60s", "sources": [{sources}], "servers": {servers}}}"#);
        let traffic =
            Traffic::parse(&document).unwrap_or_else(|error| panic!("{error}\n{document}"));
        for (name, quota, rule) in QUOTAS {
            let table = Run::new(policy(quota, rule), &traffic, SEED).finish();
            assert_eq!(
                table.offered,
                table.admitted + table.delayed + table.denied,
                "{name}, {model}, {about}"
            );
            writeln!(out, "{}", row(name, &table)).unwrap();
        }
    }
    out
}

/// Compares the tables of servers `number` with the file.
fn compare(number: usize) {
    const FILES: [&str; SERVERS.len()] = [
        include_str!("tables/0.txt"),
        include_str!("tables/1.txt"),
        include_str!("tables/2.txt"),
        include_str!("tables/3.txt"),
        include_str!("tables/4.txt"),
        include_str!("tables/5.txt"),
        include_str!("tables/6.txt"),
        include_str!("tables/7.txt"),
        include_str!("tables/8.txt"),
    ];
    let (about, servers) = SERVERS[number];
    let made = tables(about, servers);
    #[cfg(not(target_arch = "wasm32"))]
    if tollgate_test_support::golden::is_blessing() {
        let file = format!("{}/tests/tables/{number}.txt", env!("CARGO_MANIFEST_DIR"));
        return std::fs::write(file, made).unwrap();
    }
    let mut heading = "";
    for (made, golden) in made.lines().zip(FILES[number].lines()) {
        if made.starts_with('#') {
            heading = made;
        }
        assert_eq!(
            made, golden,
            "\n{heading}\n{HEADING}\n{made}\n{golden} (golden)\nif this is meant: TOLLGATE_BLESS=1 cargo test -p tollgate-lab --test tables"
        );
    }
    assert_eq!(made.len(), FILES[number].len(), "the file has other rows");
}

macro_rules! servers {
    ($($name:ident $number:literal,)*) => { $(#[test] fn $name() { compare($number); })* };
}

servers! {
    one_node 0,
    a_fast_clock 1,
    a_slow_clock 2,
    a_clock_set_forward 3,
    a_clock_set_back 4,
    a_clock_that_swings 5,
    a_clock_that_freezes 6,
    envoys_table_and_workers 7,
    three_nodes 8,
}
