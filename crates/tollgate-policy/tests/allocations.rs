//! The allow path allocates nothing in the policy layer, counted by the allocator itself.
//!
//! Invariant: once the buffers of a plan have grown, planning, loading, deciding, the response, its
//! fields and marks come from them. The facts are borrowed, as from a surface that owns its
//! headers; the copies of a surface's host calls belong to the surface.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;
use std::hash::Hasher;
use std::hint::black_box;
use std::net::IpAddr;

use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Ending, Entry, Facts, Plan, Policy, Surface};

/// The system's allocator, counting the requests of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// Counts one request of the allocator for `more` bytes in place of `less`.
fn count(more: usize, less: usize) {
    // A thread that is ending has no count any more, and runs no test.
    let _ = COUNT.try_with(|count| count.set(count.get() + u64::from(more > 0)));
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(more).wrapping_sub(less));
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is passed to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A request whose every fact is borrowed.
struct Borrowed(&'static [(&'static str, &'static str)]);

impl Borrowed {
    fn find(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes().into())
    }
}

impl Facts for Borrowed {
    fn method(&self) -> Cow<'_, [u8]> {
        self.find(":method").unwrap_or_default()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.find(":path").unwrap_or_default()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.find(name)
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 7]))
    }
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        self.find("route")
    }
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.find(name)
    }
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        self.find(path.last()?)
    }
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        Some(b"edge".into())
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (key, value) = self.0.get(index)?;
        Some(Entry::new(key.as_bytes(), value.as_bytes()))
    }
    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        (other < 3).then(|| self.entry(index.checked_add(other)?)).flatten()
    }
}

const REQUEST: Borrowed = Borrowed(&[
    (":method", "POST"),
    (":path", "//tenants/./a%62c/items?page=2&q=a+b%20c"),
    ("host", "API.Example.com:8443"),
    ("x-api-key", "k-123"),
    ("x-plan", "gold"),
    ("x-cost", "3"),
    ("content-length", "5000"),
    ("cookie", "theme=dark; session=0123456789abcdef"),
    ("x-forwarded-for", "203.0.113.9, 198.51.100.4:1234, [2001:db8::7], 10.0.0.9"),
    ("forwarded", "for=203.0.113.9, for=\"[2001:db8::7]:4711\";proto=https, for=10.0.0.9"),
    ("route", "items"),
    ("sub", "user-1"),
    ("x-country", "de"),
    ("x-asn", "64500"),
]);

/// Counts allocations of requests that pass, after some to warm up.
fn check(document: &str, partitions: usize) {
    check_on(Surface::Envoy, document, partitions);
}

fn check_on(surface: Surface, document: &str, partitions: usize) {
    let policy = tollgate_language::compile(document, surface).unwrap_or_else(|e| panic!("{e}"));
    let mut plan = Plan::new();
    let mut stored = vec![vec![]; partitions];
    let mut bytes = 0;
    let mut before = 0;
    for i in 0..40 {
        if i == 8 {
            before = COUNT.get();
        }
        policy.plan(&REQUEST, &mut plan);
        assert_eq!(plan.len(), partitions, "{document}");
        for (i, stored) in stored.iter().enumerate() {
            black_box(plan.partition(i).unwrap().key());
            plan.partition_mut(i).unwrap().load(&policy, (!stored.is_empty()).then_some(stored));
        }
        plan.decide(&policy, Timestamp::from_millis(i * 10_000));
        let outcome = plan.outcome(&policy);
        let answer = outcome.disposition();
        assert!(
            matches!(answer, Disposition::Allow | Disposition::Delay(_)),
            "{answer:?}: {document}"
        );
        outcome.headers(&mut |name, value| bytes += name.len() + value.len());
        outcome.marks(&mut |name, value| bytes += name.len() + value.len());
        bytes += outcome.rules().count();
        for (i, stored) in
            stored.iter_mut().enumerate().filter(|(i, _)| plan.partition(*i).unwrap().changed())
        {
            black_box(plan.partition(i).unwrap().idle_at(&policy));
            stored.clear();
            stored.extend_from_slice(plan.partition(i).unwrap().value());
        }
        let is_deferred = plan.settlement(&policy).is_deferred();
        if is_deferred && plan.settle(&policy, Ending::Response(401), &()) {
            for (i, stored) in stored.iter().enumerate() {
                plan.partition_mut(i)
                    .unwrap()
                    .load(&policy, (!stored.is_empty()).then_some(stored));
            }
            plan.decide(&policy, Timestamp::from_millis(i * 10_000 + 5));
        }
    }
    let allocated = COUNT.get() - before;
    assert!(bytes > 0, "{document}");
    assert_eq!(allocated, 0, "allocations in 32 requests by {document}");
}

fn rule(rule: &str, rest: &str) -> String {
    format!(
        r#"{{"version": 1, "client_ip": {{"source": "x-forwarded-for", "trusted_proxies": ["10.0.0.0/8"]}},
        "geo": {{"country_header": "x-country", "asn_header": "x-asn"}}, "jwt": {{"metadata": "jwt"}},
        "rules": [{{"name": "first", {rule}}}{rest}]}}"#
    )
}

const QUOTAS: &str = r#""quotas": [{"limit": 1000, "window": "1m"}]"#;

#[test]
fn the_counter_counts() {
    let before = COUNT.get();
    drop(black_box(vec![0_u8; 100]));
    assert_eq!(COUNT.get(), before + 1);
}

#[test]
fn no_condition_allocates() {
    for when in [
        r#"{}"#,
        r#"{"paths": ["/tenants/{id}/**"]}"#,
        r#"{"hosts": ["*.example.com", "api.example.com"], "methods": ["POST"]}"#,
        r#"{"headers": {"x-plan": ["silver", {"prefix": "go"}], "x-api-key": "*"}, "query": {"q": "a b c", "page": "*"}}"#,
        r#"{"client_cidrs": ["192.0.2.0/24", "2001:db8::/32"], "routes": ["items"], "countries": ["DE"], "asns": [64500]}"#,
    ] {
        let unless = r#""unless": {"paths": ["/health"], "methods": ["OPTIONS"]}"#;
        check(&rule(&format!(r#""when": {when}, {unless}, "key": [], {QUOTAS}"#), ""), 1);
    }
}

#[test]
fn no_descriptor_allocates() {
    let when = r#"{"domain": ["edge"], "descriptor": {"x-plan": {"prefix": "go", "not": "gone"}}}"#;
    let unless = r#"{"entries": [[{":method": {"like": "P*S*T"}}, {":path": "*"}]]}"#;
    let key = r#"[{"descriptor": "x-api-key"}, {"descriptor": "x-plan"}]"#;
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "when": {when}, "unless": {unless}, "key": {key}, {QUOTAS}}},
        {{"name": "beside", "unless": {{"beside": [[{{"a": "*"}}]]}}, "key": {key}, {QUOTAS}}}]}}"#
    );
    check_on(Surface::Server, &document, 1);
}

#[test]
fn no_key_part_allocates() {
    for key in [
        r#"["client_ip"]"#,
        r#"["method", "host", "path", "country", "asn"]"#,
        r#"[{"header": "x-api-key"}, {"cookie": "session"}, {"query": "q"}, {"path_param": "id"}, {"jwt_claim": "sub"}, {"metadata": ["f", "route"]}]"#,
    ] {
        let when = r#""when": {"paths": ["/tenants/{id}/items"]}"#;
        check(&rule(&format!(r#"{when}, "key": {key}, {QUOTAS}"#), ""), 1);
    }
    let shared = r#""key": [{"header": "x-none"}], "on_missing": "shared""#;
    check(&rule(&format!("{shared}, {QUOTAS}"), ""), 1);
    let forwarded = rule(&format!(r#""key": ["client_ip"], {QUOTAS}"#), "");
    check(&forwarded.replace("\"x-forwarded-for\"", "\"forwarded\""), 1);
}

#[test]
fn no_algorithm_and_no_header_generation_allocates() {
    for algorithm in tollgate_core::Algorithm::ALL.map(tollgate_core::Algorithm::name) {
        for headers in ["draft-11", "draft-7", "draft-6", "x-ratelimit", "off"] {
            let quotas = format!(
                r#""quotas": [{{"name": "a", "limit": 100, "window": "1m", "algorithm": "{algorithm}"}},
                {{"name": "b", "limit": 1000, "window": "1d"}}]"#
            );
            let document = rule(&format!(r#""key": ["client_ip"], {quotas}"#), "").replace(
                r#""rules""#,
                &format!(r#""response": {{"headers": "{headers}", "partition_key": true, "jitter": "2s"}}, "rules""#),
            );
            check(&document, 1);
        }
    }
}

#[test]
fn nothing_that_a_rule_can_do_allocates() {
    for how in [
        r#""tiers": [{"name": "gold", "priority": 1, "when": {"headers": {"x-plan": "gold"}}, "quotas": [{"limit": 500, "window": "1m"}]}]"#,
        r#""tiers": [{"name": "none", "priority": 9, "key_values": ["k-9"], "quotas": [{"limit": 1, "window": "1d"}]},
            {"name": "gold", "key_values": ["k-123", "k-456"], "quotas": [{"limit": 500, "window": "1m"}]}]"#,
        r#""cost": {"header": "x-cost", "max": 10}"#,
        r#""cost": {"content_length_per": 1024}"#,
        r#""charge": {"response_status": ["401"]}"#,
        r#""mode": {"enforce_percent": 50}"#,
        r#""mode": "shadow", "cost": 1001"#,
        r#""action": {"mark": {"header": "x-over", "value": "1"}}, "cost": 1001"#,
        r#""action": {"delay": {"max": "2s"}}"#,
    ] {
        check(&rule(&format!(r#""key": [{{"header": "x-api-key"}}], {how}, {QUOTAS}"#), ""), 1);
    }
}

#[test]
fn two_groups_and_exemptions_do_not_allocate() {
    let second = format!(
        r#", {{"name": "second", "key": [{{"header": "x-api-key"}}], {QUOTAS}}},
        {{"name": "third", "key": ["client_ip"], {QUOTAS}}}"#
    );
    let document = rule(&format!(r#""key": ["client_ip"], {QUOTAS}"#), &second);
    check(&document, 2);
    let exempt = r#""exempt": [{"client_cidrs": ["198.18.0.0/15"]}, {"headers": {"x-health": "*"}}], "rules""#;
    check(&document.replace(r#""rules""#, exempt), 2);
}

#[test]
fn a_plan_that_is_kept_holds_no_long_request() {
    let long: &'static str = "a".repeat(60_000).leak();
    let path: &'static str = format!("/{long}").leak();
    let headers = vec![(":path", path), ("host", long), ("x-key", long)];
    let request = Borrowed(headers.leak());
    let document = r#"{"version": 1, "rules": [{"name": "r", "key": ["path", "host", {"header": "x-key"}],
        "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    let policy = tollgate_language::compile(document, Surface::Envoy).unwrap();
    let before = HELD.get();
    let mut plan = Plan::new();
    policy.plan(&request, &mut plan);
    assert_eq!(plan.len(), 1);
    assert!(HELD.get() - before > 300_000, "it is long");
    plan.memory().forget_long();
    assert!(HELD.get() - before < 20_000, "{} bytes are kept", HELD.get() - before);
    policy.plan(&REQUEST, &mut plan);
    let kept = HELD.get();
    plan.memory().forget_long();
    assert_eq!(HELD.get(), kept, "usual buffers are kept");
}

/// Guards: a table for each segment of hostile bytes, which takes many times their memory.
#[test]
fn what_hostile_compiled_bytes_take_grows_with_them() {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "key": [], "when": {{"paths": ["/00000{}"]}}, {QUOTAS}}}]}}"#,
        "/*".repeat(63)
    );
    let policy = tollgate_language::compile(&document, Surface::Worker).unwrap();
    let mut bytes = Vec::new();
    policy.write_compiled(&mut bytes);
    // A pattern: how many segments, each with the number of its variant and its content, and no
    // `**`.
    let pattern =
        |i: usize| [&[64, 0, 5][..], format!("{i:05}").as_bytes(), &[1; 63], &[0]].concat();
    let one = pattern(0);
    let place = bytes.windows(one.len()).position(|window| *window == *one).unwrap();
    assert_eq!(bytes[place - 1], 1, "one pattern");
    // As many as a list may have, no two of which share a position: 640,000 segments.
    let many: Vec<u8> = (0..10_000).flat_map(pattern).collect();
    let end = bytes.len() - 8;
    let parts = [&bytes[..place - 1], &[0x90, 0x4e], &many, &bytes[place + one.len()..end]];
    let mut hostile = parts.concat();
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(0, 2);
    hasher.write(&hostile);
    hostile.extend(hasher.finish().to_le_bytes());

    let before = HELD.get();
    MOST.set(before);
    let read = Policy::read_compiled(&hostile, Surface::Worker);
    assert_eq!(read.err(), Some(tollgate_policy::NotCompiled::Impossible));
    let most = MOST.get() - before;
    assert!(most < 48 * hostile.len(), "{most} bytes for {}", hostile.len());
}
