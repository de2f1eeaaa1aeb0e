//! The memory that a full table really takes. Alone in its process, because it reads the resident
//! size.
#![allow(missing_docs, clippy::expect_used, clippy::arithmetic_side_effects, reason = "tests")]

use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Surface};
use tollgate_server::clock::Clock;
use tollgate_server::store::table::{Table, TableLimits};
use tollgate_storage::Counts;

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 5000, "window": "1h"}]}
]}"#;

/// The memory limit of the table.
const MOST: usize = 8 << 20;
/// Clients that come, more than there is room for.
const CLIENTS: u64 = 200_000;

/// The resident size of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

// Guards: a limit that counts the bytes of rows and not those that are allocated for them, which
// was twice as much.
#[test]
fn a_full_table_takes_what_it_may() {
    let policy = tollgate_language::compile(POLICY, Surface::Server).expect("a policy");
    let facts = br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
    let facts = DescribedRequest::parse(facts).expect("a request");
    let (mut plan, mut request) = (Plan::new(), Vec::new());
    policy.plan(&facts, &mut plan);
    plan.partition(0).expect("one").request(&policy, &mut request);
    let clock = Clock::start();
    let before = resident_bytes();
    let table = Table::new(TableLimits { keys: 1_000_000, bytes: MOST }, *b"only for tests..");
    for n in 0..CLIENTS {
        let step = |counts: &mut Counts, now| counts.answer(&request, now);
        table
            .step(&table.name_of(&n.to_be_bytes()), || clock.now().into(), step)
            .expect("a request");
    }
    let (grown, held) = (resident_bytes() - before, table.held());
    println!("{grown} bytes for {held:?}");
    assert!(held.evicted > 0 && held.bytes <= MOST, "it is not full: {held:?}");
    let (least, most) = (MOST - MOST / 5, MOST + MOST / 5);
    assert!((least..=most).contains(&grown), "{grown} bytes for {held:?}");
}
