//! Explanations agree with what is planned and decided.

use tollgate_core::Timestamp;
use tollgate_policy::explain::Applicability;
use tollgate_policy::{Plan, RuleResult, Surface};

use crate::support::{Request, get};

const DOCUMENT: &str = r#"{"version": 1, "jwt": {"metadata": "m"}, "geo": {"country_header": "x-c", "asn_header": "x-a"},
    "exempt": [{"headers": {"x-free": "*"}}],
    "rules": [
    {"name": "0", "key": [], "quotas": [{"limit": 1, "window": "1m"}]},
    {"name": "1", "when": {"methods": ["GET"], "paths": ["/a/{x}"]}, "key": [{"path_param": "x"}], "quotas": [{"limit": 1, "window": "1m"}]},
    {"name": "2", "when": {"hosts": ["*.example.com"], "client_cidrs": ["192.0.2.0/24"]}, "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m"}]},
    {"name": "3", "when": {"headers": {"x-p": ["gold", {"prefix": "pre"}], "x-q": "*"}, "query": {"q": "1"}}, "unless": {"methods": ["PUT"], "routes": ["r"]}, "key": [{"header": "x-k"}], "quotas": [{"limit": 1, "window": "1m"}]},
    {"name": "4", "when": {"countries": ["DE"], "asns": [1, 2]}, "key": [{"cookie": "sid"}, "method"], "on_missing": "deny", "quotas": [{"limit": 1, "window": "1m"}]}]}"#;

/// Every request out of a few values of everything that the document reads.
fn requests() -> Vec<Request> {
    let mut requests = vec![];
    for bits in 0..1_u32 << 11 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let target = if on(0) { "/a/1?q=1" } else { "/c" };
        let mut request = get(target, if on(1) { "192.0.2.9" } else { "203.0.113.9" });
        request.method = if on(2) { "PUT" } else { "GET" };
        request.host = if on(3) { "x.example.com" } else { "example.com" };
        request.route = on(4).then_some("r");
        let headers = [
            ("x-free", "1"),
            ("x-p", "premium"),
            ("x-q", ""),
            ("x-k", "k"),
            ("x-c", "de"),
            ("x-a", "2"),
        ];
        for (bit, (name, value)) in (5..).zip(headers) {
            if on(bit) {
                request = request.header(name, value);
            }
        }
        requests.push(request);
    }
    requests
}

#[test]
fn a_rule_stands_as_it_is_planned() {
    let policy = tollgate_language::compile(DOCUMENT, Surface::Envoy).unwrap();
    let mut plan = Plan::new();
    let mut applied = [0_u32; 5];
    for request in requests() {
        policy.plan(&request, &mut plan);
        (0..plan.len()).for_each(|i| plan.partition_mut(i).unwrap().load(&policy, None));
        plan.decide(&policy, Timestamp::from_millis(1));
        let verdicts = plan.outcome(&policy).verdicts();
        let planned: Vec<usize> = verdicts.iter().map(|verdict| verdict.rule).collect();
        let applicability = policy.explain().applicability(&request);
        for (i, of_rule) in applicability.iter().enumerate() {
            let applies = *of_rule == Applicability::Applies;
            // A request that lacks the key of a rule that requires it is denied before another rule
            // is checked.
            let is_refused = verdicts.iter().any(|verdict| verdict.partition.is_none());
            let is_asked = !is_refused || i == 4;
            assert_eq!(
                applies && is_asked,
                planned.contains(&i),
                "rule {i}: {of_rule:?}: {request:?}"
            );
            applied[i] = applied[i].saturating_add(u32::from(applies));
        }
        let results: Vec<_> = plan.outcome(&policy).rules().collect();
        let told: Vec<_> = verdicts.iter().map(|v| (v.rule, v.result)).collect();
        assert_eq!(told, results);
    }
    assert!(
        applied.iter().all(|count| *count > 10),
        "a rule that never applies proves nothing: {applied:?}"
    );
}

#[test]
fn the_first_condition_that_fails_is_named() {
    let policy = tollgate_language::compile(DOCUMENT, Surface::Envoy).unwrap();
    let of_rule =
        |request: &Request, rule: usize| policy.explain().applicability(request).remove(rule);
    let fails = |words: &str| Applicability::WhenFails(words.to_string());
    let request = get("/c", "203.0.113.9");
    assert_eq!(of_rule(&request, 1), fails("path /a/{x}"));
    assert_eq!(of_rule(&request.clone().method("POST"), 1), fails("method GET"));
    assert_eq!(of_rule(&request, 2), fails("host *.example.com"));
    assert_eq!(of_rule(&request, 3), fails("header x-p \"gold\" or \"pre...\""));
    let given = request.clone().header("x-p", "gold");
    assert_eq!(of_rule(&given, 3), fails("header x-q"));
    assert_eq!(of_rule(&given.header("x-q", ""), 3), fails("query parameter q \"1\""));
    assert_eq!(of_rule(&request, 4), fails("country DE"));
    assert_eq!(of_rule(&request.header("x-free", "1"), 0), Applicability::Exempt(0));
    let routed = Request { route: Some("r"), ..get("/?q=1", "192.0.2.1").method("PUT") };
    let routed = routed.header("x-p", "gold").header("x-q", "");
    assert_eq!(
        of_rule(&routed, 3),
        Applicability::UnlessHolds("method PUT and route \"r\"".to_string())
    );
    let keyless = routed.method("GET");
    assert_eq!(of_rule(&keyless, 3), Applicability::KeyMissing("header x-k".to_string()));
}

#[test]
fn descriptors_have_their_words() {
    let conditions = r#"{"domain": ["d", "e"], "descriptor": {"user": {"not": ["7", {"prefix": "x"}]}, "plan": ["gold", "*"]},
        "entries": [[{"a": "1"}, {"b": "*"}], [{"c": [{"prefix": "x", "not": "xy"}, {"like": "/a/*/b"}]}]],
        "beside": [[{"a": "*"}]]}"#;
    let words = "domain \"d\" or \"e\" and descriptor entry user not \"7\" or \"x...\" and descriptor entry plan \
                 and descriptor (a \"1\"), (b) or (c \"x...\" but not \"xy\" or like \"/a/*/b\") \
                 and next to it the descriptor (a)";
    let document = format!(
        r#"{{"version": 1, "exempt": [{conditions}], "rules": [{{"name": "a",
            "key": [{{"descriptor": "user"}}], "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
    );
    let policy = tollgate_language::compile(&document, Surface::Server).unwrap();
    assert_eq!(policy.explain().exempt(), [format!("requests with {words}")]);
    let described = policy.explain().rule(0).unwrap();
    assert_eq!(described.key, "descriptor entry user");
    assert_eq!(described.on_missing, Some("the rule does not apply"));
}

#[test]
fn every_condition_and_every_key_part_has_its_words() {
    let conditions = r#"{"methods": ["GET", "PUT"], "hosts": ["a.test", "*.b.test"], "paths": ["/a/{x}/*/**", "/"],
        "headers": {"x-p": "1", "x-q": ["2", "*"]}, "query": {"q": {"prefix": "3"}},
        "client_cidrs": ["192.0.2.0/24", "::1"], "routes": ["r"], "countries": ["de", "FR"], "asns": [1]}"#;
    let each = "method GET or PUT and host a.test or *.b.test and path /a/{x}/*/** or / and header x-p \"1\" \
                and header x-q and query parameter q \"3...\" and client in 192.0.2.0/24 or ::1/128 and route \"r\" \
                and country DE or FR and AS number 1";
    for (key, words) in [
        (r#""client_ip", "method", "host""#, "client address and method and host"),
        (r#""path", "country", "asn""#, "path and country and AS number"),
        (r#""route""#, "route"),
        (r#"{"header": "x-k"}, {"cookie": "c"}"#, "header x-k and cookie c"),
        (r#"{"query": "q"}, {"jwt_claim": "sub"}"#, "query parameter q and verified claim sub"),
        (r#"{"client_certificate": "uri_san"}"#, "client certificate uri_san"),
        (r#"{"metadata": ["f", "a", "id"]}"#, "metadata f/a/id"),
        (r#"{"path_param": "x"}"#, "path segment {x}"),
        (r#"{"path_param": "x", "lower": true}"#, "path segment {x} in lower case"),
        (
            r#"{"query": "q", "lower": true, "repeated": "last"}"#,
            "query parameter q in lower case (the last of several)",
        ),
        (r#"{"client_ip": {"ipv4_prefix": 24}}"#, "client address (IPv4 /24)"),
        (
            r#"{"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 48}}"#,
            "client address (IPv4 /24, IPv6 /48)",
        ),
        (
            r#"{"any_of": [{"header": "x-k"}, "asn", "client_ip"]}, "host""#,
            "header x-k or else AS number or else client address and host",
        ),
        (r#"{"header": "x-k", "repeated": "first"}"#, "header x-k (the first of several)"),
        (r#"{"cookie": "c", "repeated": "last"}"#, "cookie c (the last of several)"),
        (r#"{"query": "q", "repeated": "join"}"#, "query parameter q (several together)"),
        (r#"{"header": "cookie", "repeated": "refuse"}"#, "header cookie (several are refused)"),
    ] {
        let document = format!(
            r#"{{"version": 1, "exempt": [{conditions}], "rules": [{{"name": "a", "when": {{"paths": ["/{{x}}"]}},
                "key": [{key}], "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
        );
        let policy = tollgate_language::compile(&document, Surface::Library).unwrap();
        assert_eq!(policy.explain().rule(0).unwrap().key, words);
        assert_eq!(policy.explain().exempt(), [format!("requests with {each}")]);
    }
}

#[test]
fn a_missing_key_part_has_no_partition_and_equal_keys_equal_hashes() {
    let policy = tollgate_language::compile(DOCUMENT, Surface::Envoy).unwrap();
    let (mut first, mut second) = (Plan::new(), Plan::new());
    let request = get("/a/1", "192.0.2.1").header("x-k", "k");
    policy.plan(&request, &mut first);
    policy.plan(&request, &mut second);
    assert_eq!(first.partition(1).unwrap().key_hash(), second.partition(1).unwrap().key_hash());
    assert_ne!(first.partition(0).unwrap().key_hash(), first.partition(1).unwrap().key_hash());
    let keyless = get("/a/1", "192.0.2.1").header("x-c", "DE").header("x-a", "1");
    policy.plan(&keyless, &mut first);
    let verdicts = first.outcome(&policy).verdicts();
    let [only] = &*verdicts else { panic!("it alone has a word: {verdicts:?}") };
    assert_eq!((only.rule, only.partition, only.result), (4, None, RuleResult::Denied));
    assert!(first.partition(0).is_none(), "nothing is loaded or asked");
}
