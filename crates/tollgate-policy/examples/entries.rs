//! The cost of a decision (plan, load, decide) under a policy with many entries of one type.
//!
//! `entries KIND COUNT DECISIONS` prints nanoseconds per decision. KIND names the entries of which
//! there are COUNT: see `policy` below. `cargo xtask bench policy` runs it with one and with a
//! thousand, and counts instructions. It stores nothing and asserts nothing about time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::float_arithmetic
)]

use std::borrow::Cow;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tollgate_policy::{Directory, Facts, Plan, Policy, Surface, Timestamp};

struct Request {
    target: String,
    host: String,
    /// The value of the header `x-plan`.
    plan: String,
    client: IpAddr,
}

impl Request {
    /// To which the entry with this number applies, if one does.
    fn of(i: u32) -> Self {
        Self {
            target: format!("/v1/users/{i}"),
            host: format!("h{i}.example.com"),
            plan: format!("v{i}"),
            client: Ipv4Addr::new(10, (i / 256) as u8, (i % 256) as u8, 1).into(),
        }
    }
}

impl Facts for Request {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }
    fn host(&self) -> Cow<'_, [u8]> {
        self.host.as_bytes().into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-plan").then(|| self.plan.as_bytes().into())
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(self.client)
    }
}

/// The text for each number below `count`, separated by commas.
fn each(count: u32, text: impl Fn(u32) -> String) -> String {
    (0..count).map(text).collect::<Vec<_>>().join(",")
}

fn quotas(limit: u32) -> String {
    format!(r#""quotas": [{{"limit": {limit}, "window": "1s"}}]"#)
}

fn path(i: u32) -> String {
    format!(r#""paths": ["/v1/users/{i}"]"#)
}

fn header(i: u32) -> String {
    format!(r#""headers": {{"x-plan": "v{i}"}}"#)
}

fn network(i: u32) -> String {
    format!(r#""{}.{}.{}.0/24""#, 10 + i / 65_536, i / 256 % 256, i % 256)
}

/// Rules with these conditions. Their keys differ, so that no two share a stored value.
fn rules(count: u32, when: impl Fn(u32) -> String) -> String {
    let quotas = quotas(1_000_000);
    let rule = |i: u32| {
        format!(
            r#"{{"name": "r{i}", "when": {{{}}}, "key": ["client_ip", {{"query": "q{i}"}}],
             "on_missing": "shared", {quotas}}}"#,
            when(i)
        )
    };
    format!(r#""rules": [{}]"#, each(count, rule))
}

/// Rules of one key, each with this limit.
fn of_one_key(count: u32, limit: u32, when: impl Fn(u32) -> String) -> String {
    let quotas = quotas(limit);
    let rule =
        |i: u32| format!(r#"{{"name": "r{i}", {} "key": ["client_ip"], {quotas}}}"#, when(i));
    format!(r#""rules": [{}]"#, each(count, rule))
}

/// One rule; `more` contains its remaining fields.
fn one(more: &str) -> String {
    of_one_key(1, 1_000_000, |_| more.into())
}

/// One rule that counts, after these rules that deny.
fn after_deny(deny: &str) -> String {
    let quotas = quotas(1_000_000);
    format!(r#""rules": [{deny}, {{"name": "r", "key": ["client_ip"], {quotas}}}]"#)
}

fn deny(name: u32, networks: &str) -> String {
    format!(r#"{{"name": "d{name}", "deny": true, "when": {{"client_cidrs": [{networks}]}}}}"#)
}

fn tiers(count: u32, tier: impl Fn(u32) -> String) -> String {
    let quotas = quotas(1_000_000);
    let tiers = each(count, |i| format!(r#"{{"name": "t{i}", {}, {quotas}}}"#, tier(i)));
    one(&format!(r#""tiers": [{tiers}],"#))
}

/// A document with `count` entries of this type, without its version.
fn policy(kind: &str, count: u32) -> String {
    match kind {
        "paths" => rules(count, path),
        "prefixes" => rules(count, |i| format!(r#""paths": ["/v1/users/{i}/**"]"#)),
        "hosts" => rules(count, |i| format!(r#""hosts": ["h{i}.example.com"]"#)),
        "headers" => rules(count, header),
        "networks" => rules(count, |i| format!(r#""client_cidrs": [{}]"#, network(i))),
        "values" => {
            let values = each(count, |i| format!(r#""v{i}""#));
            one(&format!(r#""when": {{"headers": {{"x-plan": [{values}]}}}},"#))
        }
        "cidrs" => one(&format!(r#""when": {{"client_cidrs": [{}]}},"#, each(count, network))),
        "tiers" => tiers(count, |i| format!(r#""when": {{{}}}"#, header(i))),
        "tier-keys" => {
            tiers(count, |i| format!(r#""key_values": ["10.{}.{}.1"]"#, i / 256, i % 256))
        }
        "exempt" => {
            let exempt = each(count, |i| format!("{{{}}}", header(i + 1_000_000)));
            format!(r#""exempt": [{exempt}], {}"#, one(""))
        }
        // A policy has at most 1,000 rules, and one of them counts.
        "deny" => after_deny(&each(count.min(999), |i| deny(i, &network(i + 100_000)))),
        "denied" => after_deny(&deny(0, &each(count, network))),
        "new" | "together" => of_one_key(count, 1_000_000, |_| String::new()),
        "used" | "unknown" | "carried" => {
            of_one_key(count, 1_000_000, |i| format!(r#""when": {{{}}},"#, path(i)))
        }
        other => panic!("there is no kind {other}"),
    }
}

fn compile(rest: &str) -> Policy {
    // The server has the longest stored values of all surfaces.
    tollgate_language::compile(&format!(r#"{{"version": 1, {rest}}}"#), Surface::Server).unwrap()
}

/// The stored value of a client that `count` rules with one key have counted, and their policy.
fn stored(count: u32, limit: u32, request: &Request) -> (Policy, Vec<u8>) {
    let policy = compile(&of_one_key(count, limit, |_| String::new()));
    let mut plan = Plan::new();
    policy.plan(request, &mut plan);
    plan.each_partition(|partition| partition.load(&policy, None));
    plan.decide(&policy, Timestamp::ZERO);
    let value = plan.partition(0).unwrap().value().to_vec();
    (policy, value)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count, decisions] = &words[..] else { panic!("entries KIND COUNT DECISIONS") };
    let (count, decisions): (u32, u32) = (count.parse().unwrap(), decisions.parse().unwrap());
    let policy = compile(&policy(kind, count));
    let request = Request::of(count - 1);
    let (mut known, mut before) = (Directory::default(), None);
    match kind.as_str() {
        "used" | "together" => before = Some(stored(count, 1_000_000, &request).1),
        "unknown" | "carried" => {
            let (earlier, value) = stored(count, 1_000, &request);
            known.register(&earlier, &earlier.groups()[0]);
            known.register(&policy, &policy.groups()[0]);
            before = Some(value);
        }
        _ => {}
    }
    let (mut plan, partitions) = (Plan::new(), usize::from(kind != "denied"));
    #[expect(clippy::disallowed_methods, reason = "what is measured is the time")]
    let began = Instant::now();
    for i in 0..decisions {
        policy.plan(black_box(&request), &mut plan);
        let now = Timestamp::from_nanos(u64::from(i));
        plan.each_partition(|partition| match (&before, kind.as_str()) {
            (Some(before), "carried") => partition.load_with(&policy, &known, before, now),
            (before, _) => partition.load(&policy, before.as_deref()),
        });
        plan.decide(&policy, now);
        assert_eq!(black_box(&plan).len(), partitions);
    }
    println!("{:.1}", began.elapsed().as_nanos() as f64 / f64::from(decisions));
}
