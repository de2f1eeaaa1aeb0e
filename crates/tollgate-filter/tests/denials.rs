//! A worker's memory of denials, next to another worker of the same host.
//!
//! Invariant: a result from memory is the result of the shared tables.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;

use serde_json::{Value, json};
use tollgate_core::{Span, Timestamp};
use tollgate_filter::config::Config;
use tollgate_filter::counts::enforce::Enforcement;
use tollgate_filter::counts::scratch::Scratch;
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_policy::{Facts, Plan};
use tollgate_test_support::Random;

use crate::support::host_map::HostMap;
use crate::support::{Shared as Host, Worker};

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

/// A request of one client with this cost.
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
    let mut enforcement = Enforcement {
        shared,
        seed: &[7; 16],
        config,
        plan: &mut plan,
        scratch: worker,
        now: now.into(),
    };
    enforcement.run();
    plan.outcome(&config.policy).retry_after().map(Span::as_secs_ceil)
}

// A worker that remembers a costly request's denial would give a cheaper one the earlier wait,
// although other requests of its cost were allowed elsewhere meanwhile.
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

// With one cost the memory is exact, and is used: the shared tables are not read again.
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

/// Some rules, and whether a flood that they deny is denied from memory.
fn documents() -> Vec<(&'static str, bool, Value)> {
    let limited = |limit: u32, algorithm: &str| json!([{"limit": limit, "window": "1m", "algorithm": algorithm}]);
    let rule = |name: &str, limit: u32, more: Value| {
        let mut rule =
            json!({"name": name, "key": [{"header": "x-key"}], "quotas": limited(limit, "gcra")});
        for (name, value) in more.as_object().unwrap() {
            rule[name] = value.clone();
        }
        rule
    };
    let login = json!({"when": {"paths": ["/login"]}});
    let both = json!({"when": {"paths": ["/login", "/"]}});
    let by_path = json!({"key": ["path"]});
    let shadow = json!({"mode": "shadow", "when": {"paths": ["/login"]}});
    let by_response = json!({"charge": {"response_status": ["4xx"]}});
    vec![
        ("for all, and more", true, json!([rule("a", 3, json!({})), rule("b", 9, login.clone())])),
        (
            "one path each",
            true,
            json!([rule("a", 3, login.clone()), rule("b", 4, json!({"when": {"paths": ["/"]}}))]),
        ),
        ("less next to all", false, json!([rule("a", 90, json!({})), rule("b", 3, login.clone())])),
        ("less next to a part", false, json!([rule("a", 90, both), rule("b", 3, login.clone())])),
        (
            "another key by path",
            true,
            json!([
                rule("a", 3, json!({"when": {"paths": ["/"]}})),
                rule("b", 4, json!({"key": ["path"], "when": {"paths": ["/login"]}}))
            ]),
        ),
        ("several keys", false, json!([rule("a", 3, json!({})), rule("b", 400, by_path)])),
        ("a shadow rule next to it", true, json!([rule("a", 3, json!({})), rule("b", 1, shadow)])),
        (
            "charged by the response, next to it",
            false,
            json!([rule("a", 3, json!({})), rule("b", 9, by_response)]),
        ),
        (
            "windows",
            true,
            json!([
                rule("a", 3, json!({"quotas": limited(3, "sliding-window")})),
                rule("b", 9, json!({"quotas": limited(5, "fixed-window")}))
            ]),
        ),
    ]
}

// Guards: a remembered denial that differs from the tables, whatever the rules are and whichever
// worker allows other requests; one that outlives its time; and a memory that is never used.
#[test]
fn what_is_said_from_memory_is_what_the_tables_say() {
    const SECOND: u64 = 1_000_000_000;
    for (what, is_remembered, rules) in documents() {
        let policy = json!({"version": 1, "rules": rules});
        let shared = Host::default();
        let mut workers = [0; 3].map(|_| Worker::new(&policy, &shared));
        let mut reader = Worker::new(&policy, &shared);
        let (mut now, mut random, mut remembered) = (5_000 * SECOND, Random::new(7), 0);
        for request in 0..4_000 {
            now += random.below(3) * SECOND / 2;
            let asked = (["/", "/login"][random.index(2)], &b"abcdef"[..][random.index(2)..][..1]);
            reader.forget();
            let (told, _) = reader.told(&shared.copy(), asked, now);
            let worker = &mut workers[random.index(3)];
            let (said, is_from_memory) = worker.told(&shared, asked, now);
            assert_eq!(said, told, "{what}: request {request}");
            remembered += usize::from(is_from_memory);
        }
        assert_eq!(remembered > 500, is_remembered, "{what}: {remembered}");
        assert!(is_remembered || remembered == 0, "{what}: {remembered}");
    }
}
