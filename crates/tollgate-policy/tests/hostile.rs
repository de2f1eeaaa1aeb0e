//! Hostile documents, requests and stored bytes: a result, never a panic.
//!
//! Invariant: every compilation ends with a policy or with problems; every request is decided;
//! whatever bytes are stored allow no more than one full quota. No clock is read, so no test fails
//! because the machine is busy.

use std::fmt::Write;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Plan, Surface};

use crate::support::{Request, Surfaced, get};

/// Compiles a document for both surfaces; true when it is a policy.
fn compile(document: &str) -> bool {
    let start: String = document.chars().take(60).collect();
    let compiled = tollgate_language::compile(document, Surface::Envoy);
    let worker = tollgate_language::compile(document, Surface::Worker);
    if let Err(problems) = &compiled {
        assert!(!problems.0.is_empty(), "{start}");
        assert!(problems.0.iter().all(|p| p.to_string().len() < 1000), "{start}");
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
fn large_documents_are_told_so() {
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
    let name = "n".repeat(MIB / 2);
    let told = tollgate_language::compile(
        &rule(&format!(r#", "when": {{"query": {{"{name}": [{}1]}}}}"#, "1,".repeat(5000))),
        Surface::Envoy,
    );
    assert!(told.unwrap_err().to_string().len() < MIB, "a name is repeated with every mistake");
}

/// The `n`-th entry of a list, as JSON.
type Item = fn(usize) -> String;

/// 1 MiB of the shortest and of different items, for every list that a document may have.
#[test]
fn long_lists_are_told_so() {
    let lists: [(&str, &str, Item, Item); 12] = [
        ("when", "methods", |_| r#""A""#.into(), |i| format!(r#""A{i}""#)),
        ("when", "hosts", |_| r#""a""#.into(), |i| format!(r#""h{i}""#)),
        ("when", "paths", |_| r#""/""#.into(), |i| format!(r#""/{i:x}{}""#, "/a".repeat(60))),
        ("unless", "paths", |_| r#""/""#.into(), |i| format!(r#""/{i:x}{}""#, "/a".repeat(60))),
        ("when", "client_cidrs", |_| r#""::""#.into(), |i| format!(r#""::{:x}""#, i % 65536)),
        ("when", "entries", |_| r#"[{"a":"b"}]"#.into(), |i| format!(r#"[{{"a":"{i}"}}]"#)),
        ("when", "routes", |_| r#""""#.into(), |i| format!(r#""{i}""#)),
        ("when", "countries", |_| r#""DE""#.into(), |_| r#""de""#.into()),
        ("when", "asns", |_| "1".into(), |i| i.to_string()),
        ("charge", "response_status", |_| r#""401""#.into(), |i| format!(r#""{}""#, 100 + i % 500)),
        (
            "client_ip",
            "trusted_proxies",
            |_| r#""::""#.into(),
            |i| format!(r#""::{:x}""#, i % 65536),
        ),
        ("jwt", "audiences", |_| r#""""#.into(), |i| format!(r#""{i}""#)),
    ];
    for (place, field, same, different) in lists {
        for item in [same, different] {
            let value = format!(r#"{{"{field}": [{}]}}"#, mebibyte(item));
            compile(&with(place, &value));
            let value = format!(r#"{{"{field}": [{}]}}"#, list(10_001, item));
            assert!(!compile(&with(place, &value)), "{place}.{field} has no bound");
        }
    }
    for field in ["headers", "query"] {
        for items in
            [mebibyte(|i| format!(r#""x{i}":"""#)), list(10_001, |i| format!(r#""x{i}":"*""#))]
        {
            assert!(!compile(&with("when", &format!(r#"{{"{field}": {{{items}}}}}"#))));
        }
        let values = mebibyte(|_| r#"{"prefix":""}"#.into());
        assert!(!compile(&with("when", &format!(r#"{{"{field}": {{"x": [{values}]}}}}"#))));
    }
}

#[test]
fn long_lists_of_objects_are_told_so() {
    const QUOTAS: &str = r#""quotas":[{"limit":1,"window":"1s"}]"#;
    let items: [(&str, Item); 4] = [
        ("exempt", |_| "{}".into()),
        ("exempt", |i| format!(r#"{{"paths":["/x{i}"]}}"#)),
        ("tiers", |i| format!(r#"{{"name":"{i:x}","when":{{}},{QUOTAS}}}"#)),
        ("rules", |i| format!(r#"{{"name":"{i:x}","key":[],{QUOTAS}}}"#)),
    ];
    for (place, item) in items {
        assert!(!compile(&with(place, &format!("[{}]", mebibyte(item)))), "{place} has no bound");
    }
    let keys = mebibyte(|_| r#"{"kty":"RSA","alg":"RS256","n":"","e":""}"#.into());
    assert!(!compile(&with("jwt", &format!(r#"{{"keys": [{keys}]}}"#))));
    for part in [|_| r#""""#.to_string(), |i| format!(r#""::{:x}""#, i % 65536)] as [Item; 2] {
        let tier = format!(r#"[{{"name": "t", "key_values": [{}], {QUOTAS}}}]"#, mebibyte(part));
        let document = with("tiers", &tier).replace(r#""key": []"#, r#""key": ["client_ip"]"#);
        assert!(!compile(&document));
    }
}

/// As many items as fit into a document.
fn mebibyte(item: Item) -> String {
    const ROOM: usize = (1 << 20) - 300;
    let mut items = item(0);
    for i in 1.. {
        let next = item(i);
        if items.len() + 1 + next.len() > ROOM {
            break;
        }
        items.push(',');
        items.push_str(&next);
    }
    items
}

/// A document with this value in this place.
fn with(place: &str, value: &str) -> String {
    match place {
        "rules" => format!(r#"{{"version": 1, "rules": {value}}}"#),
        "exempt" | "client_ip" | "jwt" => {
            rule("").replace(r#""rules""#, &format!(r#""{place}": {value}, "rules""#))
        }
        _ => rule(&format!(r#", "{place}": {value}"#)),
    }
}

#[test]
fn many_fields_and_duplicates_are_told_so() {
    let same = |name: &str| list(60_000, |_| format!(r#""{name}": 1"#));
    let different = list(60_000, |i| format!(r#""f{i}": 1"#));
    for fields in [same("a"), same("version"), different] {
        assert!(!compile(&format!("{{{fields}}}")));
        assert!(!compile(&rule(&format!(r#", "when": {{"headers": {{{fields}}}}}"#))));
    }
    let headers = list(10_000, |i| format!(r#""x-{i}": "*""#));
    assert!(compile(&rule(&format!(r#", "when": {{"headers": {{{headers}}}}}"#))));
    let query = list(30_000, |_| r#""q": "*""#.to_string());
    assert!(!compile(&rule(&format!(r#", "when": {{"query": {{{query}}}}}"#))));
}

#[test]
fn as_much_as_is_allowed_is_a_policy() {
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
        // Whether one list covers another is checked for rules and for exemptions.
        compile(&rule(&format!(r#", "when": {conditions}, "unless": {conditions}"#)));
    }
    let values = list(10_000, |i| format!(r#""k{i}""#));
    let tier = format!(
        r#"{{"name": "t", "key_values": [{values}], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
    );
    assert!(compile(&rule(&format!(r#", "tiers": [{tier}]"#))));
    let tiers = list(1_000, |i| {
        format!(
            r#"{{"name": "t{i}", "key_values": ["{i}"], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
        )
    });
    assert!(compile(&rule(&format!(r#", "tiers": [{tiers}]"#))));
    let of_all = |i| {
        const QUOTAS: &str = r#""quotas":[{"limit":9,"window":"1s"}]"#;
        let tier = |t| format!(r#"{{"name":"{t}","when":{{"asns":[{t}]}},{QUOTAS}}}"#);
        format!(r#"{{"name":"{i}","key":[],{QUOTAS},"tiers":[{}]}}"#, list(1_000, tier))
    };
    let geo = r#"{"version": 1, "geo": {"asn_header": "x-asn"}, "rules": ["#;
    assert!(compile(&format!("{geo}{}]}}", list(13, of_all))));
    let tiers = list(80_000, |_| "{}".to_string());
    assert!(!compile(&rule(&format!(r#", "tiers": [{tiers}]"#))));
    let exempt = list(1_000, |i| format!(r#"{{"paths": ["/x{i}"]}}"#));
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
        // A byte order mark begins a document as editors write it; it is rejected at any other
        // position.
        assert_eq!(compile(&format!("{text}{}", rule(""))), text == "\u{feff}");
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

/// The number of cases per law; a failing seed is stored next to the test and run first from then
/// on.
fn config(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::with_cases(cases)
    }
}

proptest! {
    #![proptest_config(config(3000))]

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
            if let Ok(policy) = tollgate_language::compile(&document, surface) {
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
        let key = surface.plan.partition(0).unwrap().key().to_vec();
        let mut stored = bytes;
        if keep_header {
            let record = surface.plan.partition(0).unwrap().value();
            stored.resize(record.len(), 0);
            stored[..8].copy_from_slice(&record[..8]);
        }
        surface.store.insert(key, stored);
        let passed = |answer| matches!(answer, Disposition::Allow | Disposition::Delay(_));
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
        let host = ".a".repeat(len).leak();
        let seen = surface.check(&Request { host, ..get(&target, "192.0.2.1") }, 0);
        assert!(!seen.headers.is_empty());
    }
}

#[test]
fn a_host_of_dots_is_looked_up() {
    let when = r#", "when": {"hosts": ["*.example.com", "*.a.longer.name.example.org"]}"#;
    let mut surface = Surfaced::new(&rule(when));
    let long = "a.".repeat(50_000);
    let dots = ".".repeat(100_000);
    for (host, applies) in [
        (format!("{long}test"), false),
        (format!("{long}example.com"), true),
        (format!("{dots}test"), true), // not a host, so its reading is unknown
    ] {
        let seen = surface.check(&Request { host: host.leak(), ..get("/", "192.0.2.1") }, 0);
        assert_eq!(!seen.headers.is_empty(), applies);
    }
}
