//! A plugin's configuration: a policy alone, or a policy and the servers that the plugin uses.

use tollgate_core::Span;
use tollgate_policy::plugin::PolicyFrom;
use tollgate_policy::{Plugin, Policy, Surface, fleet_secret, plugin_hash_key};

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "a", "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]}"#;

fn problems(document: &str) -> Vec<String> {
    let Err(problems) = tollgate_language::compile_plugin(document, Surface::Envoy) else {
        panic!("{document}")
    };
    problems.to_string().lines().map(Into::into).collect()
}

#[test]
fn a_policy_is_a_configuration_as_before() {
    let plugin = tollgate_language::compile_plugin(POLICY, Surface::Envoy).unwrap();
    let policy = tollgate_language::compile(POLICY, Surface::Envoy).unwrap();
    assert!(plugin.fleet.is_none());
    assert_eq!(plugin.policy.fingerprint(), policy.fingerprint());
    for bad in ["", "[]", "7", "{", "{}", r#"{"version": 1, "fleet": {}, "rules": []}"#] {
        let said = tollgate_language::compile(bad, Surface::Envoy).unwrap_err().to_string();
        assert_eq!(problems(bad), said.lines().collect::<Vec<_>>(), "{bad}");
    }
}

#[test]
fn the_authority_is_compiled_with_the_policy() {
    let secret = "0123456789abcdef";
    let least = format!(
        r#"{{"policy": {POLICY}, "fleet": {{"cluster": "tollgate", "secret": "{secret}"}}}}"#
    );
    let fleet = tollgate_language::compile_plugin(&least, Surface::Envoy).unwrap().fleet.unwrap();
    assert_eq!(
        (&*fleet.cluster, &*fleet.authority, &*fleet.path),
        ("tollgate", "tollgate", "/lease")
    );
    assert_eq!((fleet.token, fleet.timeout), (None, Span::from_millis(250)));
    assert_eq!(fleet.secret, fleet_secret(secret));
    let all = format!(
        r#"{{"fleet": {{"cluster": "c", "authority": "a.example", "path": "/t/lease", "token": "t",
            "secret": "{secret}", "timeout": "1s"}}, "policy": {POLICY}}}"#
    );
    let fleet = tollgate_language::compile_plugin(&all, Surface::Envoy).unwrap().fleet.unwrap();
    assert_eq!((&*fleet.authority, &*fleet.path), ("a.example", "/t/lease"));
    assert_eq!((fleet.token.as_deref(), fleet.timeout), (Some("t"), Span::from_secs(1)));
    let alone =
        tollgate_language::compile_plugin(&format!(r#"{{"policy": {POLICY}}}"#), Surface::Envoy)
            .unwrap();
    assert!(alone.fleet.is_none());
}

#[test]
fn every_mistake_of_both_is_reported_at_once_and_no_secret_is_repeated() {
    let document = r#"{"fleet": {"clustr": "x", "cluster": "", "path": "a b", "token": 7,
            "secret": "hidden", "timeout": "11s"},
        "polcy": {}, "policy": {"version": 2, "rules": [{"name": "", "key": [], "quotas": []}]}}"#;
    assert_eq!(
        problems(document),
        [
            r#"unknown field "polcy"; did you mean "policy"?"#,
            r#"fleet: unknown field "clustr"; did you mean "cluster"?"#,
            "fleet.cluster: must be 1 to 256 visible ASCII characters",
            "fleet.path: must be 1 to 1024 visible ASCII characters",
            "fleet.token: must be 1 to 4096 visible ASCII characters",
            "fleet.secret: must be 16 to 256 visible ASCII characters",
            r#"fleet.timeout: "11s" is not a timeout; use 1ms to 10s, such as "250ms""#,
            "policy.version: 2 is not a known version; use 1",
            r#"policy.rules[0].name: "" must have 1 to 64 characters"#,
        ]
    );
    assert_eq!(
        problems(&format!(r#"{{"policy": {POLICY}, "fleet": {{}}}}"#)),
        ["fleet.cluster: is missing", "fleet.secret: is missing"]
    );
    assert_eq!(problems(r#"{"policy": 7, "fleet": null}"#).len(), 2);
}

fn from(policy_from: &str) -> PolicyFrom {
    let document = format!(r#"{{"policy": {POLICY}, "policy_from": {policy_from}}}"#);
    tollgate_language::compile_plugin(&document, Surface::Envoy).unwrap().policy_from.unwrap()
}

#[test]
fn the_server_of_later_policies_is_compiled_with_the_first_one() {
    let least = from(r#"{"cluster": "tollgate"}"#);
    assert_eq!((&*least.cluster, &*least.authority), ("tollgate", "tollgate"));
    assert_eq!((&*least.path, least.token), ("/.well-known/tollgate/admin/policy", None));
    assert_eq!((least.every, least.timeout), (Span::from_secs(5), Span::from_secs(5)));
    let all = from(
        r#"{"cluster": "c", "authority": "a.example:8443", "path": "/p?x=1", "token": "t0ken",
            "every": "1m", "timeout": "100ms"}"#,
    );
    assert_eq!((&*all.authority, &*all.path), ("a.example:8443", "/p?x=1"));
    assert_eq!(all.token.as_deref(), Some("t0ken"));
    assert_eq!((all.every, all.timeout), (Span::from_secs(60), Span::from_millis(100)));
}

// Guards: a text that ends a line of the request, and a token in a log.
#[test]
fn mistakes_of_the_server_are_said_without_the_token() {
    let document =
        |policy_from: &str| format!(r#"{{"policy_from": {policy_from}, "policy": {POLICY}}}"#);
    assert_eq!(
        problems(&document(
            r#"{"cluster": "a b", "path": "/a\r\nx: y", "token": "sec ret", "every": "10ms", "timeout": "1h", "x": 1}"#
        )),
        [
            r#"policy_from: unknown field "x"; use "cluster", "authority", "path", "token", "every" or "timeout""#,
            "policy_from.cluster: must be 1 to 256 visible ASCII characters",
            "policy_from.path: must be 1 to 1024 visible ASCII characters",
            "policy_from.token: must be 1 to 4096 visible ASCII characters",
            r#"policy_from.every: "10ms" is not an interval; use 1s to 1h, such as "5s""#,
            r#"policy_from.timeout: "1h" is not a timeout; use 1ms to 10s, such as "250ms""#,
        ]
    );
    assert_eq!(problems(&document("{}")), ["policy_from.cluster: is missing"]);
    // A plugin that follows a server needs a policy to begin with.
    assert_eq!(problems(r#"{"policy_from": {"cluster": "c"}}"#).len(), 3);
}

// Guards: a surface that would take a masked key for one that verifies.
#[test]
fn masked_keys_are_for_surfaces_that_verify_nothing() {
    let masked = |keys: &str| {
        format!(
            r#"{{"version": 1, "jwt": {{"metadata": "payload", "keys": {keys}}}, "rules": [{{"name": "r",
                "key": [{{"jwt_claim": "sub"}}], "quotas": [{{"limit": 1, "window": "1s"}}]}}]}}"#
        )
    };
    let good = masked(r#"[{"kid": "a", "masked": true}, {"index": 1, "masked": true}]"#);
    assert!(tollgate_language::compile(&good, Surface::Envoy).is_ok());
    assert!(tollgate_language::compile(&good, Surface::Worker).is_err());
    for bad in [
        r#"[{"kid": "a", "masked": false}]"#,
        r#"[{"masked": true}]"#,
        r#"[{"kid": "a", "masked": true, "k": "x"}]"#,
        r#"[{"kid": "a", "index": 1}]"#,
        "[{}]",
        "[]",
    ] {
        assert!(tollgate_language::compile(&masked(bad), Surface::Envoy).is_err(), "{bad}");
    }
}

// Guards: a route's policy that is not compiled as a policy is, or a mistake in it that is not
// reported.
#[test]
fn policies_for_some_routes_are_compiled_with_the_policy() {
    let document = format!(
        r#"{{"policy": {POLICY}, "policies": {{"partners": {POLICY}, "b-2_C": {POLICY}}}}}"#
    );
    let plugin = tollgate_language::compile_plugin(&document, Surface::Envoy).unwrap();
    let names: Vec<&str> = plugin.named.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["partners", "b-2_C"]);
    let alone = tollgate_language::compile(POLICY, Surface::Envoy).unwrap();
    let quotas = |policy: &Policy| policy.public_fingerprint();
    assert!(plugin.named.iter().all(|it| quotas(&it.policy) == quotas(&alone)));
    let bad = POLICY.replace("\"1m\"", "\"0s\"");
    assert_eq!(
        problems(&format!(
            r#"{{"policies": {{"a b": {POLICY}, "c": {POLICY}, "c": {bad}}},
                "fleet": {{"cluster": "c", "secret": "0123456789abcdef"}}}}"#
        )),
        [
            r#"policies: cannot be combined with "fleet" and "policy_from": they are for one policy; leave them out, or give each policy its own filter"#,
            r#"policies."a b": is not a valid name; use 1 to 64 of a-z, A-Z, 0-9, "-" and "_""#,
            r#"policies.c: is given twice; give it once"#,
            r#"policies.c.rules[0].quotas[0].window: "0s" is too short; use 1ms to 366d"#,
            r#"policy: is missing; it applies to the routes that name none of "policies""#,
        ]
    );
    for (policies, why) in [
        ("{}", "policies: has 0 policies; give 1 to 32"),
        ("[]", "policies: a list is not an object of names and their policies"),
    ] {
        assert_eq!(problems(&format!(r#"{{"policy": {POLICY}, "policies": {policies}}}"#)), [why]);
    }
}

// Guards: hashes of keys that are other ones after each start, so that no log can be searched.
#[test]
fn a_hash_key_is_that_of_all_policies_and_is_compiled_with_them() {
    let secret = "0123456789abcdef";
    for more in [
        String::new(),
        format!(r#", "policies": {{"p": {POLICY}}}"#),
        format!(r#", "fleet": {{"cluster": "c", "secret": "{secret}"}}"#),
    ] {
        let document = format!(r#"{{"policy": {POLICY}, "hash_key": "{secret}"{more}}}"#);
        let plugin = tollgate_language::compile_plugin(&document, Surface::Envoy).unwrap();
        let read = Plugin::read_compiled(plugin.to_compiled_text().as_bytes(), Surface::Envoy);
        for plugin in [plugin, read.unwrap()] {
            let named = plugin.named.iter().map(|named| &named.policy);
            for policy in named.chain([&plugin.policy]) {
                assert_eq!(policy.hash_key(), Some(plugin_hash_key(secret)), "{document}");
            }
        }
    }
    assert_ne!(plugin_hash_key(secret), fleet_secret(secret));
    let alone = tollgate_language::compile_plugin(POLICY, Surface::Envoy).unwrap();
    assert_eq!(alone.policy.hash_key(), None);
    let short = format!(r#"{{"policy": {POLICY}, "hash_key": "short-and-hidden"}}"#);
    let short = short.replace("-and", "");
    assert_eq!(problems(&short), ["hash_key: must be 16 to 256 visible ASCII characters"]);
}
