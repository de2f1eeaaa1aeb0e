//! Laws of runs, on random policies, traffic and servers: numbers add up, the same seed gives the
//! same table with any size of steps, the exact twin agrees with exact algorithms, and no key gets
//! more than its algorithm's bound.

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_core::Timestamp;
use tollgate_lab::simulator::{Fate, Run, Table, Traffic};
use tollgate_policy::Surface;

/// A quota, of this algorithm or of any.
fn quota(name: usize, algorithm: Option<&'static str>) -> impl Strategy<Value = String> {
    let any = prop::sample::select(vec![
        r#""algorithm": "gcra""#,
        r#""algorithm": "gcra", "burst": 3"#,
        r#""algorithm": "gcra", "burst": 1, "strict": true"#,
        r#""algorithm": "token-bucket""#,
        r#""algorithm": "leaky-bucket""#,
        r#""algorithm": "leaky-queue""#,
        r#""algorithm": "fixed-window""#,
        r#""algorithm": "sliding-window""#,
        r#""algorithm": "sliding-window", "strict": true"#,
        r#""algorithm": "sliding-buckets""#,
        r#""algorithm": "sliding-buckets", "buckets": 3, "weighted": true"#,
        r#""algorithm": "sliding-log""#,
    ]);
    (1..20_u32, 1..9_u32, any).prop_map(move |(limit, seconds, any)| {
        let algorithm = algorithm.unwrap_or(any);
        let (limit, name) = (limit.max(3), format!("q{name}"));
        format!(r#"{{"name": "{name}", "limit": {limit}, "window": "{seconds}s", {algorithm}}}"#)
    })
}

fn rule(name: usize, algorithm: Option<&'static str>) -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![r#""client_ip""#, r#""path""#, ""]);
    let quotas = (quota(0, algorithm), prop::option::of(quota(1, algorithm)));
    let more = prop::sample::select(vec![
        "",
        r#", "cost": 2"#,
        r#", "action": {"delay": {"max": "2s"}}"#,
        r#", "mode": "shadow""#,
        r#", "charge": {"response_status": ["404"]}"#,
        r#", "charge": {"response_status": ["404"], "reserve": true}"#,
    ]);
    // A rule in the exact laws neither delays nor charges afterwards.
    (key, quotas, more).prop_map(move |(key, (first, second), more)| {
        let more = if algorithm.is_some() && more.contains("action") { "" } else { more };
        let is_queue = [Some(&first), second.as_ref()]
            .into_iter()
            .flatten()
            .any(|it| it.contains("leaky-queue"));
        // A queue holds no units until the response.
        let more = if is_queue && more.contains("reserve") { "" } else { more };
        let quotas = second.map_or_else(|| first.clone(), |second| format!("{first}, {second}"));
        format!(
            r#"{{"name": "r{name}", "key": [{key}], "capacity": 16, "quotas": [{quotas}]{more}}}"#
        )
    })
}

fn policy(algorithm: Option<&'static str>) -> impl Strategy<Value = String> {
    (rule(0, algorithm), prop::option::of(rule(1, algorithm))).prop_map(|(first, second)| {
        let rules = second.map_or_else(|| first.clone(), |second| format!("{first}, {second}"));
        format!(r#"{{"version": 1, "rules": [{rules}]}}"#)
    })
}

fn source() -> impl Strategy<Value = String> {
    let arrivals = prop::sample::select(vec![
        r#"{"steady": {"rate": "7/2s"}}"#,
        r#"{"poisson": {"rate": "8/s"}}"#,
        r#"{"on_off": {"rate": "9/s", "on": "3s", "off": "2s"}}"#,
        r#"{"bursts": {"size": 13, "every": "3s"}}"#,
        r#"{"ramp": {"from": "12/s", "to": "1/s"}}"#,
        r#"{"edge": {"window": "4s", "size": 9, "gap": "20ms"}}"#,
        r#"{"counts": {"bin": "700ms", "counts": [9, 0, 3, 3, 0, 0, 20, 1]}}"#,
        r#"{"spaced": {"size": 60, "wait": "90ms", "jitter": "200ms"}}"#,
    ]);
    let clients = prop::sample::select(vec![
        r#""clients": {"count": 1}"#,
        r#""clients": {"count": 5}"#,
        r#""clients": {"count": 9, "zipf": 1.3}"#,
        r#""clients": {"fresh": true}"#,
        r#""clients": {"count": 3}, "paced": true"#,
    ]);
    let manners = prop::sample::select(vec![
        "",
        r#", "status": 404"#,
        r#", "request": {"path": "/{client}"}"#,
        r#", "retry": {"attempts": 3, "wait": "retry_after", "jitter": "300ms"}"#,
        r#", "retry": {"attempts": 5, "wait": {"fixed": "50ms"}}"#,
    ]);
    (arrivals, clients, manners).prop_map(|(arrivals, clients, manners)| {
        format!(r#"{{"arrivals": {arrivals}, {clients}{manners}}}"#)
    })
}

const RIGHT: &str = "{}";

fn servers() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        RIGHT,
        r#"{"count": 3, "spread": "random"}"#,
        r#"{"count": 2, "spread": "client", "store": "envoy"}"#,
        r#"{"workers": 3, "work": "2ms"}"#,
        r#"{"store": "envoy", "workers": 5, "work": "1ms", "clocks": [[{"oscillates": {"by": "3s", "every": "1s"}}]]}"#,
        r#"{"clocks": [[{"back": {"at": "4s", "by": "3s"}}, {"forward": {"at": "8s", "by": "1m"}}]]}"#,
        r#"{"count": 2, "clocks": [[{"freezes": {"at": "3s", "length": "4s"}}], [{"slow": {"ppm": 400000}}]]}"#,
        r#"{"clocks": [[{"fast": {"ppm": 500000}}]]}"#,
    ])
}

fn traffic(servers: impl Strategy<Value = &'static str>) -> impl Strategy<Value = String> {
    (prop::collection::vec(source(), 1..4), servers).prop_map(|(sources, servers)| {
        let sources = sources.join(", ");
        format!(r#"{{"length": "12s", "sources": [{sources}], "servers": {servers}}}"#)
    })
}

fn run(policy: &str, traffic: &str, seed: u64) -> Run {
    let compiled = tollgate_language::compile(policy, Surface::Library);
    let compiled = compiled.unwrap_or_else(|problems| panic!("{problems}\n{policy}"));
    let traffic = Traffic::parse(traffic).unwrap_or_else(|error| panic!("{error}\n{traffic}"));
    Run::new(Arc::new(compiled), &traffic, seed)
}

/// Every number of the table that is a sum of others is.
fn adds_up(table: &Table) {
    assert_eq!(table.offered, table.admitted + table.delayed + table.denied);
    let sum = |of: fn(&tollgate_lab::simulator::SourceRow) -> u64| {
        table.sources.iter().map(of).sum::<u64>()
    };
    assert_eq!(table.offered, sum(|source| source.offered));
    assert_eq!(table.admitted, sum(|source| source.admitted));
    assert_eq!(table.delayed, sum(|source| source.delayed));
    assert_eq!(table.denied, sum(|source| source.denied));
    for rule in &table.rules {
        let decided = rule.allowed + rule.denied + rule.delayed + rule.shadowed;
        assert_eq!(decided + rule.marked + rule.failed + rule.malformed, table.offered);
    }
    assert!(table.false_allow <= table.admitted + table.delayed);
    assert!(table.false_deny <= table.denied);
    assert!(table.waits.p50_us <= table.waits.p99_us && table.waits.p99_us <= table.waits.max_us);
    assert_eq!(table.waits.max_us > 0, table.delayed > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn numbers_add_up_and_time_never_goes_back(
        policy in policy(None), traffic in traffic(servers()), seed in 0..9_u64,
    ) {
        let mut run = run(&policy, &traffic, seed);
        let (mut last, mut ends) = (Timestamp::ZERO, 0);
        while !run.step(100, &mut |seen| {
            assert!(seen.at >= last, "{:?} after {last:?}", seen.at);
            last = seen.at;
            ends += u64::from(seen.decided.fate() != Fate::Waiting);
        }).is_done {}
        let table = run.table();
        prop_assert_eq!(ends, table.offered);
        adds_up(&table);
    }

    #[test]
    fn the_same_seed_gives_the_same_table(
        policy in policy(None), traffic in traffic(servers()), seed in 0..9_u64, budget in 1..50_u64,
    ) {
        let whole = run(&policy, &traffic, seed).finish();
        let mut stepped = run(&policy, &traffic, seed);
        while !stepped.step(budget, &mut |_| {}).is_done {}
        prop_assert_eq!(stepped.table(), whole);
    }

    /// Compares two independent programs: the log of the core, and the twin's.
    #[test]
    fn the_log_is_never_wrong_by_the_right_time(
        policy in policy(Some(r#""algorithm": "sliding-log""#)), traffic in traffic(Just(RIGHT)), seed in 0..9_u64,
    ) {
        let table = run(&policy, &traffic, seed).finish();
        prop_assert_eq!((table.false_allow, table.false_deny), (0, 0));
        for quota in &table.quotas {
            prop_assert!(quota.most_admitted <= quota.limit);
        }
    }

    /// An algorithm allows at most the documented maximum in any window: on one node, with a right
    /// clock, for any client. Excluded: one quota lets a request wait and another one counts it,
    /// because requests that it allowed at different times may be sent on together.
    #[test]
    fn no_key_gets_through_more_than_the_bound(
        policy in policy(None), traffic in traffic(Just(RIGHT)), seed in 0..9_u64,
    ) {
        let mut run = run(&policy, &traffic, seed);
        while !run.step(1_000, &mut |_| {}).is_done {}
        let table = run.table();
        prop_assume!(table.delayed == 0 || table.quotas.len() == 1);
        let bounds: Vec<u64> = run.policy().quota_sets().iter()
            .flat_map(|set| set.quotas().iter().map(|quota| quota.limiter().max_in_window()))
            .collect();
        for (quota, bound) in table.quotas.iter().zip(bounds) {
            prop_assert!(quota.most_admitted <= bound, "{quota:?}");
        }
    }
}
