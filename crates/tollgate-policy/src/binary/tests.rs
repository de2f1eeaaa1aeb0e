//! Tests that a written policy is read as the same policy, and that nothing else is accepted.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::binary::plugin::{Fleet, Plugin};
use crate::compiled_for_tests::{compile as compiled, compile_plugin};

/// Everything that a document may contain on one surface or another.
const FULL: &str = r#"{
  "version": 1,
  "client_ip": {"source": "forwarded", "trusted_proxies": ["10.0.0.0/8", "2001:db8::/32", "::ffff:192.0.2.0/120"],
    "ipv4_prefix": 24, "ipv6_prefix": 56},
  "jwt": {"metadata": "m", "header": "X-Token", "repeated": "first", "issuer": "i", "audiences": ["a", "b"],
    "keys": [{"kty": "oct", "alg": "HS256", "kid": "1", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U"}]},
  "tenant": {"jwt_claim": "org"},
  "repeated": "last",
  "response": {"headers": "draft-7", "policy": false, "on_allow": false, "body": "text", "jitter": "2s", "partition_key": true},
  "waiting": {"per_key": 7, "total": 70, "bytes": 65536},
  "on_failure": "deny",
  "escaped_slashes": "literal", "case_insensitive_paths": true,
  "exempt": [{"paths": ["/health"]}, {"client_cidrs": ["198.51.100.0/24"], "methods": ["GET"]}],
  "rules": [
    {"name": "all kinds", "key": ["client_ip", "method", "host", "path", {"header": "X-Key"},
       {"cookie": "c", "repeated": "first"}, {"query": "q"}, {"path_param": "id"}],
     "when": {"methods": ["GET", "POST"], "hosts": ["a.example", "*.example.com", "[::1]"],
       "paths": ["/a/{id}/*/**", "/b/%7eé/{id}"],
       "headers": {"x-b": "*", "X-A": ["1", {"prefix": "2"}]}, "query": {"p": "v"},
       "client_cidrs": ["0.0.0.0/0"], "countries": ["de"], "asns": [0, 4294967295]},
     "unless": {"paths": ["/"]},
     "on_missing": "shared", "on_failure": "allow", "durability": "relaxed", "capacity": 4,
     "cost": {"header": "x-cost", "default": 2, "max": 10, "repeated": "last"},
     "charge": {"response_status": ["401", "5xx"], "reserve": true, "on_abort": "skip"},
     "mode": {"enforce_percent": 10, "salt": "0123456789abcdef"},
     "action": {"deny": {"status": 403, "body": "no"}},
     "quotas": [
       {"name": "g", "limit": 10, "window": "1s", "burst": 3, "strict": true},
       {"name": "t", "limit": 10, "window": "1m", "algorithm": "token-bucket"},
       {"name": "l", "limit": 10, "window": "1m", "algorithm": "leaky-bucket"},
       {"name": "f", "limit": 10, "window": "1h", "algorithm": "fixed-window"},
       {"name": "s", "limit": 10, "window": "1h", "algorithm": "sliding-window"},
       {"name": "b", "limit": 10, "window": "1h", "algorithm": "sliding-buckets", "buckets": 6, "weighted": true},
       {"name": "o", "limit": 10, "window": "1h", "algorithm": "sliding-log"},
       {"name": "w", "limit": 10, "window": "1w", "algorithm": "fixed-window", "align": "calendar",
        "week_start": "sunday", "utc_offset": "+05:30"}]},
    {"name": "tiers", "key": [], "quotas": [{"limit": 1, "window": "1s", "algorithm": "leaky-queue"}],
     "action": {"delay": {"max": "5m"}}, "mode": "shadow",
     "tiers": [
       {"name": "low", "priority": 1, "key_values": ["b", "192.0.2.7", "a"], "quotas": [{"limit": 2, "window": "1s"}]},
       {"name": "high", "priority": 9, "when": {"headers": {"x": "1"}}, "repeated": "join",
        "quotas": [{"name": "s", "limit": 3, "window": "1s"}, {"limit": 3, "window": "1d", "name": "day"}]}]},
    {"name": "bytes", "key": [], "cost": {"content_length_per": 1000}, "action": {"respond": {"status": 200}},
     "quotas": [{"name": "q", "limit": 1000000, "window": "366d"}]},
    {"name": "mark", "key": ["country", "asn"], "action": {"mark": {"header": "X-Over", "value": "yes"}},
     "when": {"hosts": ["*.example.com"]}, "quotas": [{"limit": 1, "window": "1ms"}]},
    {"name": "letters", "key": [{"header": "x", "lower": true}, {"query": "q", "lower": true}, {"cookie": "c", "lower": true},
      {"jwt_claim": "sub", "lower": true}], "quotas": [{"limit": 5, "window": "1m"}]},
    {"name": "first", "key": [{"any_of": [{"header": "x"}, {"jwt_claim": "sub", "lower": true}, {"client_ip": {"ipv4_prefix": 8}}]}, "host"],
      "on_missing": "shared", "quotas": [{"limit": 5, "window": "1m"}]},
    {"name": "network", "key": [{"client_ip": {"ipv6_prefix": 48}}], "quotas": [{"limit": 5, "window": "1m"}]},
    {"name": "hot", "key": ["host"], "shards": 3, "quotas": [{"limit": 5, "window": "1m"}]}
  ]
}"#;

/// Settings that exist only in Envoy.
const ENVOY: &str = r#"{"version": 1, "geo": {"country_header": "X-Country", "asn_header": "x-asn"},
  "client_ip": {"source": {"header": "X-Real"}, "trusted_hops": 2},
  "rules": [{"name": "r", "key": ["route", "country"], "when": {"routes": ["a", ""], "asns": [1]},
    "action": {"delay": {"max": "2s", "priority": [{"headers": {"x-plan": "gold"}}, {"asns": [7]}]}},
    "quotas": [{"name": "q", "limit": 1, "window": "1s"}]}]}"#;

/// Counts of a fleet, and the local counts of a node next to them.
const FLEET: &str = r#"{"version": 1, "rules": [
  {"name": "f", "key": ["client_ip"], "scope": "fleet", "lease": "500ms", "on_failure": {"share": 4},
    "quotas": [{"limit": 100, "window": "1s"}], "tiers": [{"name": "t", "key_values": ["192.0.2.1"],
      "quotas": [{"limit": 400, "window": "1s", "burst": 8}]}]},
  {"name": "s", "key": ["client_ip"], "scope": {"share": 3}, "quotas": [{"limit": 100, "window": "1s"}]},
  {"name": "g", "key": ["client_ip"], "scope": "fleet", "lease": 0, "on_failure": "local",
    "quotas": [{"limit": 100, "window": "1s"}]},
  {"name": "l", "key": [], "quotas": [{"limit": 100, "window": "1s"}]}]}"#;

/// Settings that exist only in a server.
const SERVER: &str = r#"{"version": 1, "rules": [{"name": "d", "key": [{"descriptor": "user"}],
  "when": {"domain": ["a", "b"], "descriptor": {"plan": [{"prefix": "x", "not": ["xy", {"like": "x*z"}]}, "*"]},
    "entries": [[{"user": "*"}, {"to": ["1", {"like": "*2*"}]}]], "beside": [[{"k": "v"}]]},
  "quotas": [{"limit": 1, "window": "1s"}]}]}"#;

fn written(policy: &Policy) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.write_compiled(&mut bytes);
    bytes
}

/// Everything in a policy as text, except the tables, which have no fixed order.
fn all(policy: &Policy) -> String {
    let Policy { index: _, .. } = policy;
    let without = Policy { index: crate::policy::index::Index::new(), ..policy.clone() };
    format!("{without:#?}")
}

fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

#[test]
fn what_is_read_is_what_was_written() {
    for (document, surface) in [
        (FULL, Surface::Worker),
        (ENVOY, Surface::Envoy),
        (ENVOY, Surface::Library),
        (FLEET, Surface::Envoy),
        (FLEET, Surface::Server),
        (SERVER, Surface::Server),
    ] {
        let policy = compiled(document, surface);
        let bytes = written(&policy);
        let read = Policy::read_compiled(&bytes, surface).unwrap();
        assert_eq!(all(&read), all(&policy));
        assert_eq!(written(&read), bytes);
        assert_eq!(read.surface, surface);
        let document_bytes = Policy::read_compiled(document.as_bytes(), surface).err();
        assert_eq!(document_bytes, Some(NotCompiled::Other));
        assert!(bytes.len() < 2 * document.len(), "{} of {}", bytes.len(), document.len());
    }
}

#[test]
fn its_text_is_base64() {
    let policy = compiled(FULL, Surface::Worker);
    let text = compiled_text(|out| policy.write_compiled(out));
    assert!(text.starts_with("AHRvbGxnYXRl"), "{text}");
    let mut bytes = vec![0; text.len()];
    assert_eq!(Base64::decode(&text, &mut bytes).unwrap(), written(&policy));
}

#[test]
fn the_secret_and_the_version_of_a_surface_are_not_written() {
    let policy = compiled(FULL, Surface::Worker);
    let mut with_secret = policy.clone();
    with_secret.set_hash_key([7; 16]);
    with_secret.key_public_fingerprint([7; 16]);
    with_secret.set_version(9);
    assert_eq!(written(&with_secret), written(&policy));
}

#[test]
fn every_byte_that_is_missing_added_or_changed_is_noticed() {
    let bytes = written(&compiled(FULL, Surface::Worker));
    for len in 0..bytes.len() {
        assert!(Policy::read_compiled(&bytes[..len], Surface::Worker).is_err(), "{len}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(Policy::read_compiled(&longer, Surface::Worker).err(), Some(NotCompiled::Damaged));
    for i in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut changed = bytes.clone();
            changed[i] ^= bit;
            let why = Policy::read_compiled(&changed, Surface::Worker).expect_err("it was changed");
            let expected = match i {
                0..9 => NotCompiled::Other,
                9..18 => NotCompiled::OtherVersion,
                _ => NotCompiled::Damaged,
            };
            assert_eq!(why, expected, "byte {i}");
        }
    }
}

/// With a valid checksum, changed bytes are a policy that some document could contain, or an error.
#[test]
fn a_byte_that_is_changed_with_its_checksum_gives_none_or_one_that_is_written_so() {
    let mut accepted = 0;
    for (document, surface) in
        [(FULL, Surface::Worker), (FLEET, Surface::Envoy), (SERVER, Surface::Server)]
    {
        let bytes = written(&compiled(document, surface));
        let body = &bytes[..bytes.len() - 8];
        for i in MAGIC.len() + 9..body.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff, body[i].wrapping_add(1), body[i] ^ 0x20] {
                let mut changed = body.to_vec();
                changed[i] = value;
                let changed = resealed(changed);
                for surface in Surface::ALL {
                    if let Ok(policy) = Policy::read_compiled(&changed, surface) {
                        assert_eq!(written(&policy), changed, "byte {i}");
                        assert!(policy.is_whole());
                        accepted += 1;
                    }
                }
            }
        }
    }
    assert!(accepted > 500, "{accepted}");
}

#[test]
fn whatever_is_cut_out_of_the_middle_gives_none_or_one_that_is_written_so() {
    let bytes = written(&compiled(FULL, Surface::Worker));
    let body = &bytes[..bytes.len() - 8];
    for i in 18..body.len() {
        for len in [1, 2, 9] {
            let mut cut = body.to_vec();
            cut.drain(i..(i + len).min(body.len()));
            let cut = resealed(cut);
            if let Ok(policy) = Policy::read_compiled(&cut, Surface::Worker) {
                assert_eq!(written(&policy), cut);
            }
        }
    }
}

/// Guards: keys that no document can have.
#[test]
fn a_choice_of_parts_is_bounded() {
    use crate::spec::key::KeySource::{self, Asn, ClientIp, Country, Host, Method, Path, Route};
    use crate::spec::key_item::{KeyPart, is_key, items};
    let key = |choices: &[&[KeySource]]| {
        let of_choice = |sources: &&[KeySource]| {
            let mut parts: Vec<_> = sources.iter().cloned().map(KeyPart::as_sent).collect();
            let others = parts.len().saturating_sub(1);
            parts.iter_mut().take(others).for_each(|part| part.has_alternative = true);
            parts
        };
        choices.iter().flat_map(of_choice).collect::<Vec<_>>()
    };
    let all = [Host, Asn, Country, Route, Method];
    for choices in [&[][..], &[&all[3..], &all[..1]], &[&[Host, Path]], &[&all[..4], &[ClientIp]]] {
        assert!(is_key(&key(choices)), "{choices:?}");
        assert!(
            items(&key(choices)).map(|item| item.parts.len()).eq(choices.iter().map(|it| it.len()))
        );
    }
    for choices in [&[&all[..]][..], &[&[Asn, ClientIp], &[ClientIp]], &[&all[..1]; 9]] {
        assert!(!is_key(&key(choices)), "{choices:?}");
    }
    let mut open = key(&[&[Host]]);
    open[0].has_alternative = true;
    assert!(!is_key(&open), "nothing replaces the last part");
}

#[test]
fn it_says_why_not() {
    let bytes = written(&compiled(ENVOY, Surface::Envoy));
    let why = |bytes: &[u8], surface| Policy::read_compiled(bytes, surface).unwrap_err();
    assert_eq!(why(b"{}", Surface::Envoy), NotCompiled::Other);
    let (compiled_for, wanted) = (Surface::Envoy, Surface::Worker);
    assert_eq!(why(&bytes, wanted), NotCompiled::OtherSurface { compiled_for, wanted });
    let mut other = bytes[..bytes.len() - 8].to_vec();
    other[9] += 1;
    assert_eq!(why(&resealed(other), Surface::Envoy), NotCompiled::OtherVersion);
    let mut long = bytes[..bytes.len() - 8].to_vec();
    long.resize(MAX_COMPILED, 0);
    assert_eq!(why(&resealed(long), Surface::Envoy), NotCompiled::Damaged, "too long");
    let mut more = bytes[..bytes.len() - 8].to_vec();
    more.push(0);
    assert_eq!(why(&resealed(more), Surface::Envoy), NotCompiled::Impossible);
    for why in [
        NotCompiled::Other,
        NotCompiled::OtherVersion,
        NotCompiled::Damaged,
        NotCompiled::Impossible,
    ] {
        let said = format!("{why}");
        assert!(
            said.ends_with("\"tollgate compile\"") || said.contains("compile the policy"),
            "{said}"
        );
    }
}

/// The worst document for its length: a megabyte of parts that take more bytes when compiled.
#[test]
fn the_longest_document_has_room() {
    let tier = |i: usize| {
        format!(r#"{{"name":"{i:x}","when":{{}},"quotas":[{{"limit":1,"window":"1s"}}]}}"#)
    };
    let rule = |r: usize| {
        let name = format!("{r:02}{}", "n".repeat(62));
        let tiers: Vec<String> = (0..950).map(tier).collect();
        format!(
            r#"{{"name":"{name}","key":[],"tiers":[{}],"quotas":[{{"limit":1,"window":"1s"}}]}}"#,
            tiers.join(",")
        )
    };
    let rules: Vec<String> = (0..17).map(rule).collect();
    let document = format!(r#"{{"version":1,"rules":[{}]}}"#, rules.join(","));
    assert!(
        (900_000..tollgate_language::MAX_DOCUMENT).contains(&document.len()),
        "{}",
        document.len()
    );
    let policy = compiled(&document, Surface::Worker);
    let bytes = written(&policy);
    assert!(bytes.len() < MAX_COMPILED / 2, "{}", bytes.len());
    let read = Policy::read_compiled(&bytes, Surface::Worker).unwrap();
    assert_eq!(read.quota_sets().len(), policy.quota_sets().len());
    assert_eq!(written(&read), bytes);
}

/// A proxy that asks an authority.
fn asking() -> Plugin {
    let document = format!(
        r#"{{"policy": {FLEET}, "fleet": {{"cluster": "a", "path": "/l", "token": "t",
        "secret": "0123456789abcdef", "timeout": "1s"}}}}"#
    );
    compile_plugin(&document)
}

fn plugin_in_words(Plugin { policy, named, fleet, policy_from }: &Plugin) -> String {
    let named: Vec<_> = named.iter().map(|it| (&it.name, all(&it.policy))).collect();
    format!("{} {named:?} {fleet:#?} {policy_from:#?}", all(policy))
}

#[test]
fn whom_a_proxy_asks_is_read_as_it_was_written() {
    let plugin = asking();
    let mut bytes = Vec::new();
    plugin.write_compiled(&mut bytes);
    let text = plugin.to_compiled_text();
    let (head, tail) = text.split_at(text.len() / 2);
    let folded = format!(" {head}\n\t{tail}\r\n");
    for given in [&bytes[..], text.as_bytes(), folded.as_bytes()] {
        assert!(Plugin::is_compiled(given));
        let read = Plugin::read_compiled(given, Surface::Envoy).unwrap();
        assert_eq!(plugin_in_words(&read), plugin_in_words(&plugin));
        let again = read.to_compiled_text();
        assert_eq!(again, text, "there is one spelling");
    }
    let policy = Plugin { fleet: None, ..plugin };
    let mut alone = Vec::new();
    policy.write_compiled(&mut alone);
    assert_eq!(alone, written(&policy.policy));
    let read = Plugin::read_compiled(policy.to_compiled_text().as_bytes(), Surface::Envoy).unwrap();
    assert!(read.fleet.is_none());
    assert_eq!(all(&read.policy), all(&policy.policy));
}

// Guards: a cut or changed byte that is accepted as a policy, or traps, and a text that is invalid.
#[test]
fn no_changed_plugin_is_read() {
    let mut bytes = Vec::new();
    asking().write_compiled(&mut bytes);
    for len in 0..bytes.len() {
        assert!(Plugin::read_compiled(&bytes[..len], Surface::Envoy).is_err(), "{len}");
    }
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        assert!(Plugin::read_compiled(&bytes, Surface::Envoy).is_err(), "{at}");
        let body = bytes[..bytes.len() - 8].to_vec();
        let _ = Plugin::read_compiled(&resealed(body), Surface::Envoy); // no trap
        bytes[at] ^= 1;
    }
    let refused = |given: &[u8], surface| Plugin::read_compiled(given, surface).unwrap_err();
    assert_eq!(refused(b"AHRvbGxwbHVn!", Surface::Envoy), NotCompiled::Damaged);
    assert_eq!(refused(b"{}", Surface::Envoy), NotCompiled::Other);
    let text = asking().to_compiled_text();
    let other = refused(text.as_bytes(), Surface::Worker);
    let (compiled_for, wanted) = (Surface::Envoy, Surface::Worker);
    assert_eq!(other, NotCompiled::OtherSurface { compiled_for, wanted });
    assert!(!Plugin::is_compiled(b"{\"version\": 1}"));
}

// Guards: a header of a request with a line break in it, because the bytes are trusted.
#[test]
fn what_no_document_can_say_of_an_authority_is_refused() {
    let changed = |change: fn(&mut Fleet)| {
        let mut plugin = asking();
        change(plugin.fleet.as_mut().unwrap());
        let text = plugin.to_compiled_text();
        Plugin::read_compiled(text.as_bytes(), Surface::Envoy).err()
    };
    assert_eq!(changed(|_| {}), None);
    let impossible = Some(NotCompiled::Impossible);
    assert_eq!(changed(|fleet| fleet.cluster = String::new()), impossible);
    assert_eq!(changed(|fleet| fleet.authority.push('\n')), impossible);
    assert_eq!(changed(|fleet| fleet.path = "p".repeat(1025)), impossible);
    assert_eq!(changed(|fleet| fleet.token = Some("a b".into())), impossible);
    assert_eq!(changed(|fleet| fleet.timeout = tollgate_core::Span::from_secs(11)), impossible);
}

/// A proxy with a policy for some routes.
fn choosing() -> Plugin {
    let policy = |name: &str, limit: u32| {
        format!(
            r#"{{"version": 1, "rules": [{{"name": "{name}", "key": ["client_ip"],
            "quotas": [{{"limit": {limit}, "window": "1m"}}]}}]}}"#
        )
    };
    let (all, partners, staff) = (policy("all", 1), policy("all", 20), policy("staff", 300));
    let document =
        format!(r#"{{"policy": {all}, "policies": {{"partners": {partners}, "staff": {staff}}}}}"#);
    compile_plugin(&document)
}

// Guards: a policy for some routes that is lost when it is compiled, or is read under another name.
#[test]
fn policies_of_routes_are_read_as_they_were_written() {
    let plugin = choosing();
    let names: Vec<&str> = plugin.named.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["partners", "staff"]);
    let text = plugin.to_compiled_text();
    assert!(Plugin::is_compiled(text.as_bytes()));
    let read = Plugin::read_compiled(text.as_bytes(), Surface::Envoy).unwrap();
    assert_eq!(plugin_in_words(&read), plugin_in_words(&plugin));
    assert_eq!(read.to_compiled_text(), text, "there is one spelling");
    let mut bytes = Vec::new();
    plugin.write_compiled(&mut bytes);
    assert!(Plugin::is_compiled(&bytes));
    for at in 0..bytes.len() {
        assert!(Plugin::read_compiled(&bytes[..at], Surface::Envoy).is_err(), "{at}");
        bytes[at] ^= 1;
        assert!(Plugin::read_compiled(&bytes, Surface::Envoy).is_err(), "{at}");
        let body = bytes[..bytes.len() - 8].to_vec();
        let _ = Plugin::read_compiled(&resealed(body), Surface::Envoy); // no trap
        bytes[at] ^= 1;
    }
}

// Guards: bytes with which a route gets the policy of another one.
#[test]
fn names_that_no_document_can_give_are_refused() {
    let changed = |change: fn(&mut Plugin)| {
        let mut plugin = choosing();
        change(&mut plugin);
        Plugin::read_compiled(plugin.to_compiled_text().as_bytes(), Surface::Envoy).err()
    };
    assert_eq!(changed(|_| {}), None);
    let impossible = Some(NotCompiled::Impossible);
    assert_eq!(changed(|plugin| plugin.named[0].name = "staff".into()), impossible);
    assert_eq!(changed(|plugin| plugin.named[0].name = String::new()), impossible);
    assert_eq!(changed(|plugin| plugin.named[0].name = "a.b".into()), impossible);
    let more = |plugin: &mut Plugin| {
        for i in 0..31 {
            let mut one = plugin.named[0].clone();
            one.name = format!("p{i}");
            plugin.named.push(one);
        }
    };
    assert_eq!(changed(more), impossible);
}
