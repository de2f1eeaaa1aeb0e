//! Hostile documents, requests and stored bytes: an answer, never a panic, never seconds of work.
//!
//! Invariant: whatever is compiled ends within a second with a policy or with problems; whatever a client
//! sends is decided; whatever lies in the store admits no more than one full quota.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

mod support;

use std::fmt::Write;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tollgate_core::Timestamp;
use tollgate_policy::{Answer, Plan, Policy, Surface};

use support::{Surfaced, get};

/// Compiles a document for both surfaces; true when it is a policy. Never more than a second, also without
/// optimisation and on a busy machine.
fn compile(document: &str) -> bool {
    let begun = Instant::now();
    let compiled = Policy::compile(document, Surface::Envoy);
    let took = begun.elapsed();
    let start: String = document.chars().take(60).collect();
    assert!(took < Duration::from_secs(1), "{took:?}: {start}");
    let worker = Policy::compile(document, Surface::Worker);
    if let Err(problems) = &compiled {
        assert!(!problems.0.is_empty(), "{start}");
        assert!(problems.0.iter().all(|p| p.message.len() < 500), "{start}");
    }
    compiled.is_ok() && worker.is_ok()
}

/// A document whose one rule has this field more.
fn rule(field: &str) -> String {
    format!(
        r#"{{"version": 1, "rules": [{{"name": "a", "key": [], "quotas": [{{"limit": 1, "window": "1s"}}]{field}}}]}}"#
    )
}

/// `n` items, separated by commas.
fn list(n: usize, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(",")
}

#[test]
fn deep_documents_are_refused() {
    for depth in [100, 127, 128, 1000, 500_000] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            if nested.len() < 1 << 20 {
                assert!(!compile(&nested));
                assert!(!compile(&rule(&format!(r#", "when": {nested}"#))));
            }
            assert!(!compile(&open.repeat(depth.min((1 << 20) / open.len()))));
        }
    }
}

#[test]
fn large_documents_end_in_time() {
    const MIB: usize = 1 << 20;
    let fill = |text: &str| text.repeat(MIB / text.len() - 1000);
    assert!(compile(&format!("{}{}", rule(""), " ".repeat(MIB - 200))));
    assert!(!compile(&"x".repeat(MIB)));
    assert!(!compile(&format!("\"{}\"", "x".repeat(MIB - 2))));
    assert!(!compile(&rule(&format!(r#", "name": "{}""#, "n".repeat(MIB - 200)))));
    assert!(!compile(&rule(&format!(r#", "{}": 1"#, "n".repeat(MIB - 200)))));
    assert!(!compile(&format!("[{}0]", fill("0,"))));
    assert!(!compile(&rule(&format!(r#", "when": {{"paths": [{}"/"]}}"#, fill(r#""x","#)))));
    assert!(!compile(&rule(&format!(r#", "key": [{}"host"]"#, fill(r#""host","#)))));
    assert!(!compile(&format!(r#"{{"version": 1, "rules": [{}1]}}"#, fill("1,"))));
    assert!(!compile(&rule(&format!(r#", "tiers": [{}1]"#, fill("{},")))));
}

#[test]
fn many_fields_and_duplicates_end_in_time() {
    let same = |name: &str| list(60_000, |_| format!(r#""{name}": 1"#));
    let different = list(60_000, |i| format!(r#""f{i}": 1"#));
    for fields in [same("a"), same("version"), different] {
        assert!(!compile(&format!("{{{fields}}}")));
        assert!(!compile(&rule(&format!(r#", "when": {{"headers": {{{fields}}}}}"#))));
    }
    let headers = list(30_000, |i| format!(r#""x-{i}": "*""#));
    compile(&rule(&format!(r#", "when": {{"headers": {{{headers}}}}}"#)));
    let query = list(30_000, |_| r#""q": "*""#.to_string());
    assert!(!compile(&rule(&format!(r#", "when": {{"query": {{{query}}}}}"#))));
}

#[test]
fn as_much_as_is_allowed_is_a_policy_in_time() {
    let rules = |n: usize, when: fn(usize) -> String| {
        let quotas = r#""quotas": [{"limit": 1, "window": "1s"}]"#;
        let rule = |i| {
            format!(r#"{{"name": "r{i}", "when": {}, "key": ["client_ip"], {quotas}}}"#, when(i))
        };
        format!(r#"{{"version": 1, "rules": [{}]}}"#, list(n, rule))
    };
    assert!(compile(&rules(1000, |i| format!(r#"{{"paths": ["/a/{i}/**"]}}"#))));
    assert!(compile(&rules(1000, |i| format!(r#"{{"hosts": ["h{i}.example.com"]}}"#))));
    assert!(!compile(&rules(1001, |_| "{}".into())));
    for condition in [
        ("paths", (|i| format!(r#""/p{i}/*""#)) as fn(usize) -> String),
        ("hosts", |i| format!(r#""h{i}""#)),
        ("methods", |i| format!(r#""M{i}""#)),
        ("client_cidrs", |i| format!(r#""2001:db8::{:x}""#, i % 65536)),
    ] {
        let items = list(10_000, condition.1);
        let conditions = format!(r#"{{"{}": [{items}]}}"#, condition.0);
        assert!(compile(&rule(&format!(r#", "when": {conditions}"#))), "{}", condition.0);
        // Whether one list covers another is asked of rules and of exemptions.
        compile(&rule(&format!(r#", "when": {conditions}, "unless": {conditions}"#)));
    }
    let values = list(10_000, |i| format!(r#""k{i}""#));
    let tier = format!(
        r#"{{"name": "t", "key_values": [{values}], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
    );
    assert!(compile(&rule(&format!(r#", "tiers": [{tier}]"#))));
    let tiers = list(5_000, |i| {
        format!(
            r#"{{"name": "t{i}", "key_values": ["{i}"], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
        )
    });
    assert!(compile(&rule(&format!(r#", "tiers": [{tiers}]"#))));
    let tiers = list(80_000, |_| "{}".to_string());
    assert!(!compile(&rule(&format!(r#", "tiers": [{tiers}]"#))));
    let exempt = list(9_000, |i| format!(r#"{{"paths": ["/x{i}"]}}"#));
    let many = rules(1000, |i| format!(r#"{{"paths": ["/a/{i}/**"]}}"#));
    assert!(compile(&many.replace(r#""rules""#, &format!(r#""exempt": [{exempt}], "rules""#))));
}

#[test]
fn odd_numbers_and_text_are_told() {
    for number in [
        "1e999",
        "-1e999",
        "1e-999",
        "18446744073709551616",
        "-0",
        "0.0",
        "1E400000000",
        "00",
        "0x1",
        "NaN",
    ] {
        for field in ["limit", "burst", "buckets"] {
            assert!(!compile(&rule("").replace(
                r#""limit": 1"#,
                &format!(r#""limit": 1, "limit": 1, "{field}": {number}"#)
            )));
        }
        assert!(!compile(&rule(&format!(r#", "cost": {number}"#))));
    }
    let long = "9".repeat(500_000);
    assert!(!compile(&rule(&format!(r#", "cost": {long}"#))));
    for text in [
        "\0",
        "a\0b",
        "\u{feff}",
        "\u{fffd}",
        "\u{202e}",
        "\u{10ffff}",
        "\\u0000",
        "\\ud800",
        "\\udc00\\ud800",
        "\\xff",
        "\u{80}",
    ] {
        assert!(!compile(&rule("").replace(r#""name": "a""#, &format!(r#""name": "{text}""#))));
        compile(&rule(&format!(
            r#", "when": {{"paths": ["/{text}"], "hosts": ["{text}"], "headers": {{"x": "{text}"}}}}"#
        )));
        assert!(!compile(&format!("{text}{}", rule(""))));
        assert!(!compile(&format!("{}{text}", rule(""))));
    }
}

const VALID: &[&str] = &[
    r#"{"version": 1, "client_ip": {"source": "x-forwarded-for", "trusted_proxies": ["10.0.0.0/8"]}, "response": {"headers": "draft-7", "jitter": "2s"},
       "exempt": [{"client_cidrs": ["192.0.2.0/24"]}], "rules": [{"name": "login", "when": {"methods": ["POST"], "paths": ["/u/{id}/**"]},
       "key": ["client_ip", {"path_param": "id"}], "quotas": [{"name": "a", "limit": 10, "window": "1m", "algorithm": "sliding-log"}, {"name": "b", "limit": 1, "window": "2s"}]}]}"#,
    r#"{"version": 1, "on_failure": "deny", "rules": [{"name": "api", "when": {"hosts": ["*.a.b"], "headers": {"x": ["1", {"prefix": "2"}]}, "query": {"q": "*"}},
       "unless": {"methods": ["OPTIONS"]}, "key": [{"header": "x-api-key"}, {"cookie": "s"}], "on_missing": "shared", "cost": {"header": "x-cost", "default": 1, "max": 1000},
       "charge": {"response_status": ["401", "5xx"]}, "mode": {"enforce_percent": 10}, "action": {"delay": {"max": "2s"}}, "capacity": 65536, "durability": "relaxed",
       "quotas": [{"limit": 100, "window": "1m", "burst": 20, "strict": false}], "tiers": [{"name": "gold", "priority": 10, "key_values": ["k"], "quotas": [{"limit": 1000, "window": "1m", "algorithm": "sliding-buckets", "buckets": 6}]}]}]}"#,
];

const PIECES: &[&str] = &[
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "0",
    "-1",
    "1e9",
    "18446744073709551615",
    "\"*\"",
    "\"**\"",
    "\"{x}\"",
    "\"\"",
    "\\",
    "\\u0000",
    "366d",
    "1ms",
    "é",
];

fn char_boundary(text: &str, at: usize) -> usize {
    (at % (text.len() + 1)..).find(|i| text.is_char_boundary(*i)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn a_mutated_document_never_panics(
        which in 0..VALID.len(),
        cuts in prop::collection::vec((any::<usize>(), 0_usize..40, 0..PIECES.len(), any::<bool>()), 1..5),
    ) {
        let mut document = VALID[which].to_string();
        for (at, len, piece, insert) in cuts {
            let start = char_boundary(&document, at);
            let end = char_boundary(&document, (start + len).min(document.len()));
            let piece = if insert { PIECES[piece] } else { "" };
            document.replace_range(start..end, piece);
        }
        for surface in [Surface::Envoy, Surface::Worker] {
            if let Ok(policy) = Policy::compile(&document, surface) {
                let mut plan = Plan::new();
                policy.plan(&get("/u/1/x?q=1", "10.0.0.1"), &mut plan);
                plan.decide(&policy, Timestamp::ZERO);
            }
        }
    }

    #[test]
    fn an_arbitrary_request_never_panics(
        target in prop::collection::vec(any::<u8>(), 0..60),
        names in prop::collection::vec((0_usize..9, prop::collection::vec(any::<u8>(), 0..80)), 0..6),
        source in 0_usize..4,
    ) {
        let source = ["\"x-forwarded-for\"", "\"forwarded\"", "{\"header\": \"x-real-ip\"}", "\"connection\""][source];
        let document = VALID[1].replace(r#""on_failure""#, &format!(
            r#""client_ip": {{"source": {source}, "trusted_hops": 2}}, "on_failure""#
        )).replace(r#"[{"header": "x-api-key"}, {"cookie": "s"}]"#, r#"["client_ip", "host", "path", {"cookie": "s"}, {"query": "q"}]"#)
          .replace(r#""hosts": ["*.a.b"], "headers": {"x": ["1", {"prefix": "2"}]}, "query": {"q": "*"}"#, "");
        let mut surface = Surfaced::new(&document);
        let mut request = get(&String::from_utf8_lossy(&target), "192.0.2.1");
        const NAMES: [&str; 9] = ["host", "cookie", "x-forwarded-for", "forwarded", "x-real-ip", "x-cost", "content-length", "x-api-key", "x"];
        for (name, value) in names {
            request = request.header(NAMES[name], value);
        }
        surface.check(&request, 1_000);
    }

    #[test]
    fn stored_bytes_never_admit_more_than_a_full_quota(
        bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..240),
        algorithm in 0_usize..8,
        keep_header in any::<bool>(),
        now in prop_oneof![Just(0_u64), Just(1_000_000), any::<u32>().prop_map(u64::from)],
    ) {
        let algorithm = ["gcra", "token-bucket", "leaky-bucket", "leaky-queue", "fixed-window", "sliding-window", "sliding-buckets", "sliding-log"][algorithm];
        let mut surface = Surfaced::new(&format!(
            r#"{{"version": 1, "rules": [{{"name": "a", "key": [], "quotas": [{{"limit": 10, "window": "1m", "algorithm": "{algorithm}"}}]}}]}}"#
        ));
        let request = get("/", "192.0.2.1");
        surface.check(&request, now);
        let key = surface.plan.key(0).to_vec();
        let mut stored = bytes;
        if keep_header {
            let record = surface.plan.value(0);
            stored.resize(record.len(), 0);
            stored[..8].copy_from_slice(&record[..8]);
        }
        surface.store.insert(key, stored);
        let passed = |answer| matches!(answer, Answer::Pass | Answer::Delay(_));
        let admitted = (0..40).filter(|_| passed(surface.check(&request, now).answer)).count();
        prop_assert!(admitted <= 10, "{admitted} units at once of a quota of 10 ({algorithm})");
    }
}

#[test]
fn every_length_of_path_host_and_header_is_decided() {
    let mut surface =
        Surfaced::new(&rule(r#", "when": {"paths": ["/**"]}, "unless": {"hosts": ["*.x"]}"#));
    for len in [0, 1, 1000, 100_000, 1_000_000] {
        let mut target = String::from("/");
        for i in 0..len / 4 {
            write!(target, "{}", ["a/", "../", "%2e/", "//"][i % 4]).unwrap();
        }
        let begun = Instant::now();
        let seen = surface.check(&get(&target, "192.0.2.1").header("host", ".a".repeat(len)), 0);
        assert!(begun.elapsed() < Duration::from_secs(1), "{len}: {:?}", begun.elapsed());
        assert!(!seen.headers.is_empty());
    }
}
