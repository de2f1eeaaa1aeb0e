//! Any texts as traffic documents, which a link to the playground may contain.
//!
//! A corpus file is a document. Invariant checked: a mistake is reported in one line that a
//! terminal can show; a document that can be read is written so that it is read again as the same;
//! its requests come in order within its length; and for any servers, no request is lost or counted
//! twice, and the same seed gives the same table.

use std::sync::Arc;

use tollgate_lab::simulator::{Fate, Requests, Run, START, Table, Traffic};
use tollgate_policy::{Facts, Surface};

/// Requests of each traffic that are checked.
const REQUESTS: u64 = 200;

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "each", "key": ["client_ip"], "capacity": 4, "quotas": [{"limit": 3, "window": "1s"}]},
    {"name": "all", "key": ["path"], "capacity": 4, "action": {"delay": {"max": "1s"}},
     "quotas": [{"limit": 5, "window": "1s", "algorithm": "sliding-log"}]}]}"#;

pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let traffic = match Traffic::parse(&text) {
        Ok(traffic) => traffic,
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && told.len() < 8_000 && !told.contains(char::is_control));
            return;
        }
    };
    let json = traffic.to_json();
    let again = Traffic::parse(&json).expect("what was written is read");
    assert_eq!(again.to_json(), json);
    orderly(&traffic);
    assert_eq!(run(&traffic), run(&again));
}

/// The requests come in order, and every fact of them can be read.
fn orderly(traffic: &Traffic) {
    let mut requests = Requests::new(traffic, 1);
    let (mut last, end) = (START, START.saturating_add(traffic.length()));
    for _ in 0..REQUESTS {
        let Some(request) = requests.next_request() else { break };
        assert!(last <= request.at && request.at < end);
        last = request.at;
        let facts = requests.facts(request).expect("of one of its sources");
        let _ = (facts.method(), facts.target(), facts.host(), facts.header("x"), facts.peer());
    }
}

/// The table of the first requests.
fn run(traffic: &Traffic) -> Table {
    let policy = tollgate_language::compile(POLICY, Surface::Library).expect("a policy");
    let mut run = Run::new(Arc::new(policy), traffic, 1);
    let (mut last, mut ends) = (START, 0_u64);
    run.step(REQUESTS, &mut |seen| {
        assert!(last <= seen.at);
        last = seen.at;
        ends += u64::from(seen.decided.fate() != Fate::Waiting);
    });
    let table = run.table();
    assert_eq!(ends, table.admitted + table.delayed + table.denied);
    assert!(ends <= table.offered);
    table
}
