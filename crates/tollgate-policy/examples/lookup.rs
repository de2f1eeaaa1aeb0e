//! The cost of a decision (plan, load, decide) under a policy of many rules, of which one applies.
//!
//! `lookup KIND RULES DECISIONS` prints nanoseconds per decision. KIND is the condition that finds
//! the rules: `paths`, `prefixes` or `hosts`. `cargo xtask bench policy` runs it with one rule and
//! with a thousand, and counts instructions. It stores nothing and asserts nothing about time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::float_arithmetic
)]

use std::borrow::Cow;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tollgate_policy::{Facts, Plan, Policy, Surface, Timestamp};

/// Target and host.
struct Request(String, String);

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

/// `count` rules, each with one condition that contains its number.
fn policy(count: u32, condition: Condition) -> Policy {
    let rules: Vec<String> = (0..count)
        .map(|i| {
            // Keys differ, so the rules do not share one stored value of a thousand records.
            format!(
                r#"{{"name": "r{i}", "when": {}, "key": ["client_ip", {{"query": "q{i}"}}], "on_missing": "shared",
                 "quotas": [{{"limit": 1000000, "window": "1s"}}]}}"#,
                condition(i)
            )
        })
        .collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    tollgate_language::compile(&document, Surface::Envoy).unwrap()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, rules, decisions] = &words[..] else { panic!("lookup KIND RULES DECISIONS") };
    let condition: Condition = match kind.as_str() {
        "paths" => |i| format!(r#"{{"paths": ["/v1/users/{i}"]}}"#),
        "prefixes" => |i| format!(r#"{{"paths": ["/v1/users/{i}/**"]}}"#),
        "hosts" => |i| format!(r#"{{"hosts": ["h{i}.example.com"]}}"#),
        other => panic!("{other} is not paths, prefixes or hosts"),
    };
    let (rules, decisions): (u32, u32) = (rules.parse().unwrap(), decisions.parse().unwrap());
    let policy = policy(rules, condition);
    let last = rules - 1;
    let request = Request(format!("/v1/users/{last}"), format!("h{last}.example.com"));
    let mut plan = Plan::new();
    #[expect(clippy::disallowed_methods, reason = "what is measured is the time")]
    let began = Instant::now();
    for i in 0..decisions {
        policy.plan(black_box(&request), &mut plan);
        plan.each_partition(|partition| partition.load(&policy, None));
        plan.decide(&policy, Timestamp::from_millis(u64::from(i)));
        assert_eq!(black_box(&plan).len(), 1);
    }
    println!("{:.1}", began.elapsed().as_nanos() as f64 / f64::from(decisions));
}
