//! What a worker remembers of denials, beside another worker of the same host.
//!
//! Invariant: what is told from memory is what the shared tables would say.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

#[path = "support/host_map.rs"]
mod host_map;

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;

use tollgate_core::{Span, Timestamp};
use tollgate_envoy::config::Config;
use tollgate_envoy::enforce::Enforcement;
use tollgate_envoy::scratch::Scratch;
use tollgate_envoy::shared_data::{SharedData, Stored, Written};
use tollgate_policy::{Facts, Plan};

use host_map::HostMap;

/// The host's map.
#[derive(Default)]
struct Shared(RefCell<HostMap>);

impl SharedData for Shared {
    fn get(&self, name: &[u8]) -> Stored {
        self.0.borrow().get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        self.0.borrow_mut().set(name, value, cas)
    }
}

/// A request of one client that costs so much.
struct Costing(&'static str);

impl Facts for Costing {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET".into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        b"/".into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-cost").then(|| self.0.as_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        "192.0.2.1".parse().ok()
    }
}

/// One worker's decision at `now`: its `retry_after` in seconds, `None` when the request passes.
fn decide(
    config: &Config,
    shared: &Shared,
    worker: &mut Scratch,
    now: u64,
    cost: &'static str,
) -> Option<u64> {
    let mut plan = Plan::new();
    config.policy.plan(&Costing(cost), &mut plan);
    let now = Timestamp::ZERO.saturating_add(Span::from_secs(now));
    let mut enforcement =
        Enforcement { shared, seed: &[7; 16], config, plan: &mut plan, scratch: worker, now };
    enforcement.run();
    plan.outcome(&config.policy).retry_after().map(Span::as_secs_ceil)
}

// A worker that remembers a costly request's denial would tell a cheaper one the wait of back then,
// although others of its cost were admitted elsewhere meanwhile.
#[test]
fn a_wait_is_exact_whatever_requests_cost() {
    let document = br#"{"version": 1, "rules": [{"name": "r", "key": ["client_ip"],
        "cost": {"header": "x-cost", "max": 10}, "quotas": [{"limit": 10, "window": "1m"}]}]}"#;
    let config = Config::compile(document, b"scope").unwrap();
    let (shared, mut one, mut other) = (Shared::default(), Scratch::default(), Scratch::default());
    assert_eq!(decide(&config, &shared, &mut one, 1000, "5"), None);
    assert_eq!(decide(&config, &shared, &mut one, 1000, "8"), Some(18), "3 grow back");
    assert_eq!(decide(&config, &shared, &mut other, 1000, "5"), None);
    assert_eq!(decide(&config, &shared, &mut one, 1000, "6"), Some(36), "6 grow back");
}

// With one cost the memory is exact, and is used: the shared tables are not asked again.
#[test]
fn a_denial_of_a_fixed_cost_is_repeated_from_memory() {
    let document = br#"{"version": 1, "rules": [{"name": "r", "key": ["client_ip"],
        "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    let config = Config::compile(document, b"scope").unwrap();
    let (shared, mut worker) = (Shared::default(), Scratch::default());
    assert_eq!(decide(&config, &shared, &mut worker, 1000, ""), None);
    assert_eq!(decide(&config, &shared, &mut worker, 1010, ""), Some(50));
    shared.0.borrow_mut().entries.clear();
    assert_eq!(decide(&config, &shared, &mut worker, 1020, ""), Some(40));
}
