//! What finding a request's rules costs, with one rule and with a thousand.
//!
//! Prints nanoseconds per decision (plan, load, decide), the best of interleaved rounds, and their ratio:
//! `cargo run --release -p tollgate-policy --example lookup`. It stores nothing and asserts nothing.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::float_arithmetic
)]

use std::borrow::Cow;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tollgate_core::Timestamp;
use tollgate_policy::{Facts, Plan, Policy, Surface};

const DECISIONS: u32 = 200_000;
const ROUNDS: usize = 9;

struct Request(String, &'static str);

impl Facts for Request {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.0.as_bytes().into()
    }
    fn host(&self) -> Cow<'_, [u8]> {
        self.1.as_bytes().into()
    }
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }
}

/// The conditions of the rule with this number, as JSON.
type Condition = fn(u32) -> String;

/// `count` rules, each for one condition that holds its number.
fn policy(count: u32, condition: Condition) -> Policy {
    let rules: Vec<String> = (0..count)
        .map(|i| {
            // Keys differ, so that the rules do not share one stored value of a thousand records.
            format!(
                r#"{{"name": "r{i}", "when": {}, "key": ["client_ip", {{"query": "q{i}"}}], "on_missing": "shared",
                 "quotas": [{{"limit": 1000000, "window": "1s"}}]}}"#,
                condition(i)
            )
        })
        .collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    Policy::compile(&document, Surface::Envoy).unwrap()
}

fn nanos(policy: &Policy, request: &Request) -> f64 {
    let mut plan = Plan::new();
    let began = Instant::now();
    for i in 0..DECISIONS {
        policy.plan(black_box(request), &mut plan);
        plan.load(policy, 0, None);
        plan.decide(policy, Timestamp::from_millis(u64::from(i)));
        assert_eq!(black_box(&plan).len(), 1);
    }
    began.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
}

fn main() {
    let kinds: [(&str, Condition); 3] = [
        ("exact paths", |i| format!(r#"{{"paths": ["/v1/users/{i}"]}}"#)),
        ("path prefixes", |i| format!(r#"{{"paths": ["/v1/users/{i}/**"]}}"#)),
        ("hosts", |i| format!(r#"{{"hosts": ["h{i}.example.com"]}}"#)),
    ];
    for (name, condition) in kinds {
        let (one, many) = (policy(1, condition), policy(1000, condition));
        let first = Request("/v1/users/0".into(), "h0.example.com");
        let last = Request("/v1/users/999".into(), "h999.example.com");
        let mut best = [f64::MAX; 2];
        for _ in 0..ROUNDS {
            best[0] = best[0].min(nanos(&one, &first));
            best[1] = best[1].min(nanos(&many, &last));
        }
        let [one, many] = best;
        println!(
            "{name:14} 1 rule {one:6.0} ns   1000 rules {many:6.0} ns   ratio {:.2}",
            many / one
        );
    }
}
