//! The table in memory: exact under concurrency, and bounded.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Timestamp;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Disposition, Plan, Policy, Surface};
use tollgate_server::clock::Clock;
use tollgate_server::store::table::{Table, TableLimits};

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 5000, "window": "1h", "algorithm": "fixed-window"}]}
]}"#;

fn plan(policy: &Policy, n: u64) -> Plan {
    let [.., a, b, c] = n.to_be_bytes();
    let body = format!(r#"{{"method": "GET", "path": "/", "client_ip": "10.{a}.{b}.{c}"}}"#);
    let facts = DescribedRequest::parse(body.as_bytes()).expect("a request");
    let mut plan = Plan::new();
    policy.plan(&facts, &mut plan);
    plan
}

fn is_admitted(policy: &Policy, table: &Table, clock: &Clock, n: u64) -> bool {
    let mut plan = plan(policy, n);
    let partition = plan.partition(0).expect("one");
    let mut request = Vec::new();
    partition.request(policy, &mut request);
    let step = |counts: &mut tollgate_storage::Counts, now| counts.answer(&request, now);
    let reply = table
        .step(&table.name_of(partition.key()), || clock.now().into(), step)
        .expect("a request")
        .expect("a row");
    plan.partition_mut(0).expect("one").accept(policy, &reply).expect("a reply");
    plan.outcome(policy).disposition() == Disposition::Allow
}

fn table(keys: usize, bytes: usize) -> Table {
    Table::new(TableLimits { keys, bytes }, *b"only for tests..")
}

#[test]
fn of_many_threads_exactly_the_limit_is_admitted() {
    let policy = tollgate_language::compile(POLICY, Surface::Server).expect("a policy");
    let (table, clock) = (table(1000, 1 << 20), Clock::start());
    let (admitted, start) = (AtomicU64::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..5_000 {
                    let one = u64::from(is_admitted(&policy, &table, &clock, 7));
                    admitted.fetch_add(one, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 5_000);
    assert_eq!((table.held().keys, table.held().evicted), (1, 0));
}

#[test]
fn a_flood_of_keys_takes_no_more_places_than_there_are_and_never_who_is_used_up() {
    let policy = tollgate_language::compile(POLICY, Surface::Server).expect("a policy");
    // 256 shards with a bucket of sixteen each: the smallest table.
    let (table, clock) = (table(1, usize::MAX), Clock::start());
    for _ in 0..5_000 {
        assert!(is_admitted(&policy, &table, &clock, 0));
    }
    for n in 1..20_000 {
        assert!(is_admitted(&policy, &table, &clock, n));
    }
    assert_eq!(table.held().keys, 256 * 16);
    assert_eq!(table.held().evicted, 20_000 - 256 * 16);
    assert!(!is_admitted(&policy, &table, &clock, 0), "the flood has freed who was used up");
}

#[test]
fn bytes_are_bounded_whatever_the_places_are() {
    let policy = tollgate_language::compile(POLICY, Surface::Server).expect("a policy");
    let (table, clock) = (table(1_000_000, 256 * 1_000), Clock::start());
    for n in 0..20_000 {
        assert!(is_admitted(&policy, &table, &clock, n));
        assert!(n % 1_000 != 0 || table.held().bytes <= 256_000);
    }
    let held = table.held();
    assert!(held.bytes <= 256_000 && held.keys > 1_000, "{held:?}");
    assert_eq!(u64::try_from(held.keys).expect("few") + held.evicted, 20_000);
}

#[test]
fn a_sweep_forgets_who_is_idle() {
    let policy = tollgate_language::compile(POLICY, Surface::Server).expect("a policy");
    let (table, clock) = (table(1_000, 1 << 20), Clock::start());
    for n in 0..500 {
        assert!(is_admitted(&policy, &table, &clock, n));
    }
    let sweep = |now: Timestamp| (0..256).for_each(|shard| table.sweep(shard, now));
    sweep(clock.now());
    assert_eq!(table.held().keys, 500);
    sweep(clock.now().saturating_add(tollgate_core::Span::from_secs(2 * 3600 + 60)));
    assert_eq!((table.held().keys, table.held().bytes, table.held().evicted), (0, 0, 0));
}
