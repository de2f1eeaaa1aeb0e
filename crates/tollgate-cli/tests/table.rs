//! The memory that `check` prints is the memory of the filter's table: its bytes are produced here
//! and counted.

use crate::support;
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;

use serde_json::{Value, json};

use tollgate_policy::spec::MAX_VALUE_LEN;
use tollgate_storage::table::{Bucket, Table, TableSize};

fn check(name: &str, policy: &Value) -> Value {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::write(folder.join(name), policy.to_string()).unwrap();
    let ran = support::tollgate(folder, &["check", name, "--surface", "envoy", "--json"]);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Bytes of a bucket that holds as many values of `len` bytes as it can.
fn full_bucket(len: usize, ways: usize) -> usize {
    let value = vec![0; len];
    let mut bytes = Bucket::empty(0).to_vec();
    for key in 1..=u64::try_from(ways).unwrap() + 1 {
        let mut out = Vec::new();
        let way = (NonZeroU64::new(key).unwrap(), &value[..]);
        let lost = Bucket::parse(&bytes).unwrap().with(way, ways, |_| Some(()), &mut out);
        assert_eq!(lost.is_some(), key > u64::try_from(ways).unwrap());
        bytes = out;
    }
    bytes.len()
}

#[test]
fn the_printed_memory_is_the_tables() {
    for (limit, algorithm, capacity) in [
        (10, "gcra", 4),
        (3, "sliding-log", 65_536),
        (7, "sliding-buckets", 9),
        (900, "sliding-log", 1000),
    ] {
        let policy = json!({"version": 1, "rules": [{"name": "r", "key": [], "capacity": capacity,
            "quotas": [{"limit": limit, "window": "1m", "algorithm": algorithm}]}]});
        let memory = check("sizes.json", &policy)["rules"][0]["memory"].clone();
        let len = usize::try_from(memory["value_bytes"].as_u64().unwrap()).unwrap();
        let size = TableSize::new(capacity, len);
        let table = Table::new(b"", 0, size);
        let buckets = 1_usize << table.extent().level;
        let full = full_bucket(len, size.ways());
        let expected = buckets * (table.name(0).len() + full);
        assert_eq!(memory["envoy"]["table_bytes"], json!(expected), "{algorithm}");
        let per_key = memory["envoy"]["bytes_per_key"].as_u64().unwrap();
        let ways = full - Bucket::empty(0).len();
        assert_eq!(usize::try_from(per_key).unwrap() * size.ways(), ways, "{algorithm}");
    }
}

#[test]
fn a_value_too_long_for_the_table_is_a_problem() {
    let logs = |rules: usize, last: u64| -> Value {
        let quota = |i: usize, limit: u64| json!({"name": i.to_string(), "limit": limit, "window": "1m", "algorithm": "sliding-log"});
        let rules: Vec<Value> = (0..rules)
            .map(|r| {
                let quotas: Vec<_> =
                    (0..16).map(|i| quota(i, if i == 15 { last } else { 1024 })).collect();
                json!({"name": r.to_string(), "key": [], "quotas": quotas})
            })
            .collect();
        check("long.json", &json!({"version": 1, "rules": rules}))
    };
    // Four rules of 16 logs: 4 x (8 + 15 x 8200 + 8 + 8 x last).
    let at_most = (MAX_VALUE_LEN / 4 - 16 - 15 * 8200) / 8;
    let last = u64::try_from(at_most).unwrap();
    assert_eq!(logs(4, last)["ok"], true);
    let longer = logs(4, last + 1);
    assert_eq!(longer["ok"], false);
    let message = longer["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains(&format!("more than {MAX_VALUE_LEN}; use another")), "{message}");
}
