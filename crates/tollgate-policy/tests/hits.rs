//! Descriptors with a number of hits, and the one quota that is reported of several.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::support::Request;
use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Entry, Facts, NearestQuota, Plan, Policy, Surface};

/// A descriptor: no method, path, host, header or address.
struct Descriptor(Option<u64>);

impl Facts for Descriptor {
    fn method(&self) -> Cow<'_, [u8]> {
        Cow::default()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        Cow::default()
    }
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn peer(&self) -> Option<IpAddr> {
        None
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        (index == 0).then_some(Entry::new(b"user", b"a"))
    }
    fn hits(&self) -> Option<u64> {
        self.0
    }
}

fn decide(policy: &Policy, stored: &mut Vec<u8>, facts: &impl Facts) -> Plan {
    let mut plan = Plan::new();
    policy.plan(facts, &mut plan);
    plan.each_partition(|partition| partition.load(policy, Some(stored)));
    plan.decide(policy, Timestamp::from_millis(1));
    if let Some(partition) = plan.partition(0).filter(|partition| partition.changed()) {
        *stored = partition.value().to_vec();
    }
    plan
}

#[test]
fn hits_multiply_the_cost_of_every_rule() {
    let document = r#"{"version": 1, "rules": [
        {"name": "one", "key": [{"descriptor": "user"}],
         "quotas": [{"name": "hour", "limit": 100, "window": "1h"}, {"name": "day", "limit": 150, "window": "1d"}]},
        {"name": "three", "key": [{"descriptor": "user"}], "cost": 3, "mode": "shadow",
         "quotas": [{"limit": 1000, "window": "1h"}]}]}"#;
    let policy = tollgate_language::compile(document, Surface::Library).expect("a policy");
    let mut stored = Vec::new();
    // Hits, whether they pass, and the remaining units of the quota of 100.
    for (hits, passes, left) in [
        (None, true, 99),
        (Some(9), true, 90),
        (Some(0), true, 90),
        (Some(91), false, 0),
        // No wait would help, so the remaining units are reported.
        (Some(u64::MAX), false, 90),
        (Some(90), true, 0),
    ] {
        let plan = decide(&policy, &mut stored, &Descriptor(hits));
        let outcome = plan.outcome(&policy);
        assert_eq!(outcome.final_disposition() == Disposition::Allow, passes, "{hits:?}");
        let nearest = outcome.nearest().expect("a quota");
        let expected = ("hour", 100, left);
        assert_eq!((nearest.name, nearest.limit, nearest.remaining), expected, "{hits:?}");
        let costs: Vec<u64> = outcome.decisions().map(|rule| rule.cost).collect();
        let hits = hits.unwrap_or(1);
        assert_eq!(costs, [hits, hits.saturating_mul(3)]);
    }
}

#[test]
fn what_is_told_of_one_quota_is_what_the_fields_say() {
    let document = r#"{"version": 1, "response": {"headers": "x-ratelimit"}, "rules": [
        {"name": "r", "key": ["client_ip"],
         "quotas": [{"name": "hour", "limit": 9, "window": "1h"}, {"name": "day", "limit": 3, "window": "1d"}]}]}"#;
    let policy = tollgate_language::compile(document, Surface::Library).expect("a policy");
    assert!(!policy.response().headers.lists_quotas());
    let request = Request {
        method: "GET",
        target: "/".to_owned(),
        peer: "192.0.2.1".parse().ok(),
        ..Request::default()
    };
    let mut stored = Vec::new();
    for _ in 0..5 {
        let plan = decide(&policy, &mut stored, &request);
        let outcome = plan.outcome(&policy);
        let NearestQuota { name, limit, remaining, reset_seconds, .. } =
            outcome.nearest().expect("a quota");
        let mut told = Vec::new();
        outcome.headers(&mut |name, value| {
            if name.starts_with("x-ratelimit") {
                told.push(value.to_owned());
            }
        });
        assert_eq!(told, [limit, remaining, reset_seconds].map(|number| number.to_string()));
        assert_eq!(name, "day");
    }
}

// Guards: a rule about requests that counts descriptors, which are not requests.
#[test]
fn rules_about_requests_are_for_no_descriptor() {
    let quotas = r#""quotas": [{"limit": 1, "window": "1h"}]"#;
    let mut found = Vec::new();
    let rows = [
        (r#""when": {"paths": ["/**"]}, "key": []"#, true),
        (r#""when": {"paths": ["/"]}, "key": []"#, true),
        (r#""when": {"paths": ["/api/**", "/*"]}, "key": []"#, false),
        (r#""when": {"methods": ["GET"]}, "key": []"#, false),
        (r#""when": {"hosts": ["a.example"]}, "key": []"#, false),
        (r#""when": {"headers": {"x": "*"}}, "key": []"#, false),
        (r#""when": {"client_cidrs": ["0.0.0.0/0", "::/0"]}, "key": []"#, false),
        (r#""key": ["client_ip"]"#, false),
        (r#""key": []"#, true),
        (r#""when": {"descriptor": {"user": "*"}}, "key": []"#, true),
    ];
    for (conditions, _) in rows {
        let document =
            format!(r#"{{"version": 1, "rules": [{{"name": "r", {conditions}, {quotas}}}]}}"#);
        let policy = tollgate_language::compile(&document, Surface::Server)
            .unwrap_or_else(|problems| panic!("{problems}: {document}"));
        let plan = decide(&policy, &mut Vec::new(), &Descriptor(None));
        found.push((conditions, plan.outcome(&policy).decisions().count() == 1));
    }
    assert_eq!(found, rows);
}
