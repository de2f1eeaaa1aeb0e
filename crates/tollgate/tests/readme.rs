//! The calls that the repository's README shows.
//!
//! Invariant: the README's Rust code is a part of this file, so it compiles and decides as it says.
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use tollgate::{Disposition, Facts, Partition, Plan, Problems, Timestamp};

struct Request;

impl Facts for Request {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        b"/"[..].into()
    }
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }
}

/// The decision on one request; the store gets the partitions that changed.
fn decide(store: &mut BTreeMap<Vec<u8>, Vec<u8>>, now: Timestamp) -> Result<Disposition, Problems> {
    let document = r#"{"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m"}]}
    ]}"#;
    let (request, mut plan) = (Request, Plan::new());
    let stored = |key: &[u8]| store.get(key).map(Vec::as_slice);
    let policy = tollgate::compile(document)?; // once; then for each request:
    policy.plan(&request, &mut plan); // the rules that apply, and their keys
    plan.each_partition(|it| it.load(&policy, stored(it.key())));
    plan.decide(&policy, now); // then store each partition that changed
    let decision = plan.outcome(&policy).disposition();
    for partition in plan.partitions().filter(Partition::changed) {
        store.insert(partition.key().to_vec(), partition.value().to_vec());
    }
    Ok(decision)
}

#[test]
fn the_second_request_of_a_minute_is_denied() {
    let (mut store, now) = (BTreeMap::new(), Timestamp::from_millis(1));
    assert_eq!(decide(&mut store, now).unwrap(), Disposition::Allow);
    assert_eq!(decide(&mut store, now).unwrap(), Disposition::Deny { status: 429 });
}

#[test]
fn the_readme_shows_these_calls() {
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let readme = include_str!("../../../README.md");
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let shown = lines(shown.unwrap().trim_end());
    assert!(
        shown.contains("compile") && lines(include_str!("readme.rs")).contains(&shown),
        "{shown}"
    );
}
