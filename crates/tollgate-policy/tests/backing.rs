//! Rules that a client avoids by making up a value, and the rules that back them.

use tollgate_policy::Surface;

/// The rules without backing of a policy with a rule `token` by this key and these others.
fn unbacked(token: &str, others: &[&str]) -> Vec<String> {
    let quotas = r#""quotas": [{"limit": 1, "window": "1m"}]"#;
    let rules: Vec<String> = [token]
        .iter()
        .chain(others)
        .enumerate()
        .map(|(i, rule)| format!(r#"{{"name": "r{i}", {rule}, {quotas}}}"#))
        .collect();
    let jwt = r#""jwt": {"keys": [{"kty": "oct", "alg": "HS256", "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;
    let document = format!(r#"{{"version": 1, {jwt}, "rules": [{}]}}"#, rules.join(", "));
    let policy = tollgate_language::compile(&document, Surface::Library)
        .unwrap_or_else(|e| panic!("{document}: {e}"));
    let names = policy.explain().unbacked_rules().into_iter();
    names.filter_map(|index| Some(policy.rules().get(index)?.name().to_owned())).collect()
}

const TOKEN: &str = r#""key": [{"header": "x-token"}], "when": {"paths": ["/api/**"]}"#;

#[test]
fn a_key_that_clients_write_is_named_unless_a_rule_stands_behind_it() {
    for key in [r#"{"header": "authorization"}"#, r#"{"cookie": "sid"}"#, r#"{"query": "q"}"#] {
        assert_eq!(unbacked(&format!(r#""key": [{key}]"#), &[]), ["r0"], "{key}");
        assert_eq!(unbacked(&format!(r#""key": ["client_ip", {key}]"#), &[]), ["r0"], "{key}");
    }
    // A client that may write one of several parts is counted by that part.
    for other in [r#""client_ip""#, r#"{"jwt_claim": "sub"}"#] {
        for parts in
            [format!(r#"{{"header": "x"}}, {other}"#), format!(r#"{other}, {{"cookie": "x"}}"#)]
        {
            let key = format!(r#""key": [{{"any_of": [{parts}]}}]"#);
            assert_eq!(unbacked(&key, &[]), ["r0"], "{parts}");
        }
    }
    // These filters copy what a client sends.
    let metadata =
        |filter| format!(r#""key": [{{"metadata": ["envoy.filters.http.{filter}", "id"]}}]"#);
    for filter in ["header_to_metadata", "json_to_metadata"] {
        assert_eq!(unbacked(&metadata(filter), &[]), ["r0"], "{filter}");
    }
    assert_eq!(unbacked(&metadata("ext_authz"), &[]), [""; 0]);
    let verified = r#""key": [{"any_of": [{"jwt_claim": "sub"}, "client_ip"]}]"#;
    assert_eq!(unbacked(verified, &[]), [""; 0]);
    for key in [r#""client_ip""#, r#""path""#, r#"{"jwt_claim": "sub"}"#, ""] {
        assert_eq!(unbacked(&format!(r#""key": [{key}]"#), &[]), [""; 0], "{key}");
    }
    let marks = r#""key": [{"cookie": "c"}], "action": {"mark": {"header": "x", "value": "1"}}"#;
    assert_eq!(unbacked(marks, &[]), [""; 0], "a mark limits no client");
}

#[test]
fn a_rule_backs_another_when_it_limits_at_least_the_same_requests() {
    for backing in [
        r#""key": ["client_ip"]"#,
        r#""key": []"#,
        r#""key": ["client_ip"], "when": {"paths": ["/api/**"]}"#,
        r#""key": [{"client_ip": {"ipv6_prefix": 48}}]"#,
        r#""key": ["client_ip"], "when": {"paths": ["/**"]}"#,
        r#""key": [{"jwt_claim": "sub"}], "on_missing": "shared""#,
        r#""key": ["country"], "on_missing": "deny""#,
        r#""key": [{"any_of": [{"jwt_claim": "sub"}, "client_ip"]}]"#,
        r#""key": [{"any_of": ["country", {"jwt_claim": "sub"}]}], "on_missing": "shared""#,
    ] {
        assert_eq!(unbacked(TOKEN, &[backing]), [""; 0], "{backing}");
    }
    for other in [
        r#""key": ["client_ip"], "when": {"paths": ["/login"]}"#,
        r#""key": ["client_ip"], "when": {"methods": ["POST"]}"#,
        r#""key": ["client_ip"], "unless": {"methods": ["GET"]}"#,
        r#""key": ["client_ip"], "mode": "shadow""#,
        r#""key": ["client_ip"], "mode": {"enforce_percent": 50}"#,
        r#""key": ["client_ip"], "action": {"mark": {"header": "x", "value": "1"}}"#,
        r#""key": [{"jwt_claim": "sub"}]"#,
        r#""key": ["client_ip", "path"]"#,
        r#""key": [{"any_of": ["country", {"jwt_claim": "sub"}]}]"#,
    ] {
        assert_eq!(unbacked(TOKEN, &[other]), ["r0"], "{other}");
    }
    let chosen = r#""key": [{"any_of": [{"header": "x-id"}, "client_ip"]}]"#;
    assert_eq!(unbacked(TOKEN, &[chosen]), ["r0", "r1"]);
    // A client that makes up both values is stopped by neither.
    assert_eq!(unbacked(TOKEN, &[r#""key": [{"cookie": "sid"}]"#]), ["r0", "r1"]);
    let unless = r#""unless": {"methods": ["GET"]}"#;
    let both = format!(r#""key": [{{"header": "x-token"}}], {unless}"#);
    assert_eq!(unbacked(&both, &[&format!(r#""key": ["client_ip"], {unless}"#)]), [""; 0]);
}
