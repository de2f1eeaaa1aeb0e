//! Descriptors: the input of a rate limit service, as conditions and as keys.

use crate::support::{Descriptor, Request, Surfaced};
use tollgate_policy::{Disposition, GivenKey, Surface};

const DENIED: Disposition = Disposition::Deny { status: 429 };

/// A list of a condition, the entries of a descriptor, and whether these are those.
type Row = (&'static str, &'static [(&'static str, &'static str)], bool);

/// The input of a service: a domain, a descriptor, and the others of the same call.
fn asked(entries: &[(&'static str, &'static str)], beside: &[Descriptor]) -> Request {
    Request {
        domain: Some("d"),
        entries: entries.to_vec(),
        beside: beside.to_vec(),
        method: "POST",
        target: "/".into(),
        ..Request::default()
    }
}

/// A policy of one rule, 1 per minute, with these fields.
fn rule(fields: &str) -> String {
    format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "quotas": [{{"limit": 1, "window": "1m"}}], {fields}}}]}}"#
    )
}

/// True when the condition holds for the request, as `when`, as `unless` and as `exempt` alike.
#[track_caller]
fn holds(condition: &str, request: &Request) -> bool {
    let applies = |document: &str| {
        !Surfaced::on(document, Surface::Server).check(request, 0).headers.is_empty()
    };
    let when = applies(&rule(&format!(r#""key": [], "when": {condition}"#)));
    let unless = applies(&rule(&format!(r#""key": [], "unless": {condition}"#)));
    assert_ne!(when, unless, "{condition}: {request:?}");
    let exempt =
        rule(r#""key": []"#).replace(r#""rules""#, &format!(r#""exempt": [{condition}], "rules""#));
    assert_ne!(when, applies(&exempt), "{condition}: {request:?}");
    when
}

#[test]
fn the_domain_is_compared_byte_by_byte() {
    let request = asked(&[], &[]);
    for (domain, expected) in
        [(r#""d""#, true), (r#""D""#, false), (r#"["c", "d"]"#, true), (r#""""#, false)]
    {
        assert_eq!(holds(&format!(r#"{{"domain": {domain}}}"#), &request), expected, "{domain}");
    }
    // An HTTP request has no domain, not an empty one.
    let plain = Request { domain: None, ..request };
    assert!(!holds(r#"{"domain": ["d", ""]}"#, &plain));
}

#[test]
fn the_whole_descriptor_is_its_entries_in_their_order() {
    let rows: &[Row] = &[
        (r#"[{"a": "1"}]"#, &[("a", "1")], true),
        (r#"[{"a": "1"}]"#, &[("a", "2")], false),
        (r#"[{"a": "1"}]"#, &[("A", "1")], false),
        (r#"[{"a": "1"}]"#, &[], false),
        (r#"[{"a": "1"}]"#, &[("a", "1"), ("b", "1")], false),
        (r#"[{"a": "1"}]"#, &[("b", "1"), ("a", "1")], false),
        (r#"[{"a": "*"}, {"b": "*"}]"#, &[("a", "1"), ("b", "")], true),
        (r#"[{"a": "*"}, {"b": "*"}]"#, &[("b", "1"), ("a", "1")], false),
        (r#"[{"a": "*"}, {"b": "*"}]"#, &[("a", "1")], false),
        (r#"[{"k": "1"}, {"k": "2"}]"#, &[("k", "1"), ("k", "2")], true),
        (r#"[{"k": "1"}, {"k": "2"}]"#, &[("k", "2"), ("k", "1")], false),
        (r#"[{"a": ["1", {"prefix": "x"}]}]"#, &[("a", "1")], true),
        (r#"[{"a": ["1", {"prefix": "x"}]}]"#, &[("a", "xy")], true),
        (r#"[{"a": ["1", {"prefix": "x"}]}]"#, &[("a", "y")], false),
        (r#"[{"a": {"not": "1"}}]"#, &[("a", "2")], true),
        (r#"[{"a": {"not": "1"}}]"#, &[("a", "1")], false),
        (r#"[{"a": {"not": ["1", {"like": "x*y"}]}}]"#, &[("a", "x-y")], false),
        (r#"[{"a": {"prefix": "x", "not": ["xy"]}}]"#, &[("a", "xy")], false),
        (r#"[{"a": {"prefix": "x", "not": ["xy"]}}]"#, &[("a", "xyz")], true),
        (r#"[{"a": ""}]"#, &[("a", "")], true),
        // Two entries are never one, however they read when put together.
        (r#"[{"a": "b_c"}]"#, &[("a_b", "c")], false),
    ];
    for (wanted, entries, expected) in rows {
        let condition = format!(r#"{{"entries": [{wanted}]}}"#);
        assert_eq!(holds(&condition, &asked(entries, &[])), *expected, "{wanted}: {entries:?}");
        // Of several alternatives one is enough.
        let condition = format!(r#"{{"entries": [[{{"z": "*"}}], {wanted}]}}"#);
        assert_eq!(holds(&condition, &asked(entries, &[])), *expected, "{wanted}: {entries:?}");
        // The other descriptors of the call do not include the descriptor itself.
        let condition = format!(r#"{{"beside": [{wanted}]}}"#);
        let others = [vec![("z", "0")], entries.to_vec()];
        assert_eq!(holds(&condition, &asked(&[], &others)), *expected, "{wanted}: {entries:?}");
        assert!(!holds(&condition, &asked(entries, &[])), "{wanted}: {entries:?}");
    }
}

#[test]
fn stars_stand_for_anything_and_for_nothing() {
    for (pattern, value, expected) in [
        ("/api/*/action", "/api/1/action", true),
        ("/api/*/action", "/api//action", true),
        ("/api/*/action", "/api/action", false), // no slash is both
        ("/api/*/action", "/api/1/other", false),
        ("/api/*/resource/*/action", "/api/v1/resource/7/action", true),
        ("/api/*/resource/*/action", "/api/v1/7/action", false),
        ("a*", "a", true),
        ("a*", "b", false),
        ("*a", "ba", true),
        ("*a", "ab", false),
        ("*", "", true),
        ("**", "x", true),
        ("a*a", "a", false), // one letter is not two
        ("a*a", "aa", true),
        ("*ab*ab*", "aab-ab", true),
        ("*ab*ab*", "aab", false),
        ("a*b*c", "abbc", true),
    ] {
        let condition = format!(r#"{{"entries": [[{{"k": {{"like": "{pattern}"}}}}]]}}"#);
        assert_eq!(holds(&condition, &asked(&[("k", value)], &[])), expected, "{pattern}: {value}");
    }
}

#[test]
fn an_entry_by_its_key_stands_anywhere() {
    let wanted = r#"{"descriptor": {"plan": ["gold", {"prefix": "si"}]}}"#;
    for (entries, expected) in [
        (&[("plan", "gold")][..], true),
        (&[("user", "7"), ("plan", "silver"), ("x", "")], true),
        (&[("plan", "free")], false),
        (&[("user", "gold")], false),
        (&[], false),
    ] {
        assert_eq!(holds(wanted, &asked(entries, &[])), expected, "{entries:?}");
    }
    let both = r#"{"descriptor": {"plan": "*", "user": {"not": "7"}}}"#;
    assert!(holds(both, &asked(&[("user", "8"), ("plan", "")], &[])));
    assert!(!holds(both, &asked(&[("user", "7"), ("plan", "")], &[])));
    // Of several values one is enough to count a request, and all are needed to exempt it.
    let two = asked(&[("plan", "gold"), ("plan", "free")], &[]);
    let applies = |fields: &str| {
        !Surfaced::on(&rule(fields), Surface::Server).check(&two, 0).headers.is_empty()
    };
    assert!(applies(r#""key": [], "when": {"descriptor": {"plan": "gold"}}"#));
    assert!(applies(r#""key": [], "unless": {"descriptor": {"plan": "gold"}}"#));
    assert!(!applies(r#""key": [], "unless": {"descriptor": {"plan": ["gold", "free"]}}"#));
}

#[test]
fn a_key_part_is_the_value_of_the_entry() {
    let by = |key: &str| Surfaced::on(&rule(&format!(r#""key": [{key}]"#)), Surface::Server);
    let mut users = by(r#"{"descriptor": "user"}"#);
    let mut admits = |entries: &[(&'static str, &'static str)]| {
        users.check(&asked(entries, &[]), 0).answer == Disposition::Allow
    };
    assert!(admits(&[("user", "7")]));
    assert!(!admits(&[("user", "7")]));
    assert!(!admits(&[("plan", "gold"), ("user", "7")]), "wherever it stands");
    assert!(admits(&[("user", "8")]));
    assert!(admits(&[("user", "")]), "an empty value is a value");
    assert!(!admits(&[("user", "")]));
    // Several values are distinguished from every single one, and from others that read alike.
    assert!(admits(&[("user", "1"), ("user", "2")]));
    assert!(!admits(&[("user", "1"), ("plan", "x"), ("user", "2")]));
    for others in [
        &[("user", "2"), ("user", "1")][..],
        &[("user", "12")],
        &[("user", "1\0\x002")],
        &[("user", "1\0"), ("user", "2")],
        &[("user", "1"), ("user", "\x002")],
        &[("user", "1"), ("user", ""), ("user", "2")],
    ] {
        assert!(admits(others), "{others:?}");
        assert!(!admits(others), "{others:?}");
    }
    // Without the entry the rule does not apply, unless it specifies that it does.
    let none = asked(&[("plan", "gold")], &[]);
    assert!(by(r#"{"descriptor": "user"}"#).check(&none, 0).headers.is_empty());
    let mut wanted = Surfaced::on(
        &rule(r#""key": [{"descriptor": "user"}], "on_missing": "deny""#),
        Surface::Server,
    );
    assert_eq!(wanted.check(&none, 0).answer, DENIED);
}

#[test]
fn tiers_and_named_keys_know_descriptors() {
    let document = rule(
        r#""key": [{"descriptor": "user"}], "tiers": [
        {"name": "vip", "key_values": ["7"], "quotas": [{"limit": 2, "window": "1m"}]},
        {"name": "gold", "when": {"descriptor": {"plan": "gold"}}, "quotas": [{"limit": 3, "window": "1m"}]}]"#,
    );
    let admitted = |entries: &[(&'static str, &'static str)]| {
        let mut users = Surfaced::on(&document, Surface::Server);
        (0..5).filter(|_| users.check(&asked(entries, &[]), 0).answer == Disposition::Allow).count()
    };
    assert_eq!(admitted(&[("user", "7")]), 2);
    assert_eq!(admitted(&[("user", "8"), ("plan", "gold")]), 3);
    assert_eq!(admitted(&[("user", "8")]), 1);
    // An operator that names a key by its value means the key of a request with that value.
    let mut users = Surfaced::on(&document, Surface::Server);
    users.check(&asked(&[("user", "8")], &[]), 0);
    let given = GivenKey::new(&users.policy, "r", &["8".into()]).unwrap();
    assert_eq!(given.bytes(), users.plan.partition(0).unwrap().key());
}

#[test]
fn surfaces_without_descriptors_refuse_them_by_name() {
    let document = rule(
        r#""key": [{"descriptor": "user"}], "when": {"domain": "d"}, "unless": {"entries": [[{"a": "*"}]], "beside": [[{"a": "*"}]]},
        "tiers": [{"name": "t", "when": {"descriptor": {"plan": "gold"}}, "quotas": [{"limit": 2, "window": "1m"}]}]"#,
    );
    for surface in [Surface::Server, Surface::Library] {
        let policy = tollgate_language::compile(&document, surface).unwrap();
        assert!(policy.warnings().0.is_empty());
    }
    for surface in [Surface::Envoy, Surface::Worker] {
        let problems = tollgate_language::compile(&document, surface).unwrap_err();
        let places: Vec<&str> = problems.0.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            places,
            [
                "rules[0].key[0]",
                "rules[0].when.domain",
                "rules[0].unless.entries",
                "rules[0].unless.beside",
                "rules[0].tiers[0].when.descriptor"
            ]
        );
        for problem in &problems.0 {
            assert!(problem.message.contains("rate limit service"), "{problem}");
        }
    }
}

#[test]
fn a_rule_that_is_let_off_all_that_it_is_for_is_refused() {
    for field in [r#""domain": "d""#, r#""entries": [[{"a": "*"}]]"#, r#""descriptor": {"a": "1"}"#]
    {
        let document = rule(&format!(r#""key": [], "when": {{{field}}}, "unless": {{{field}}}"#));
        let problems = tollgate_language::compile(&document, Surface::Server).unwrap_err();
        assert_eq!(problems.0[0].path, "rules[0].unless", "{field}");
    }
    let apart = rule(
        r#""key": [], "when": {"entries": [[{"a": "*"}]]}, "unless": {"entries": [[{"a": "1"}]]}"#,
    );
    assert!(tollgate_language::compile(&apart, Surface::Server).is_ok());
    let beside = rule(
        r#""key": [], "when": {"entries": [[{"a": "*"}]]}, "unless": {"beside": [[{"a": "*"}]]}"#,
    );
    assert!(
        tollgate_language::compile(&beside, Surface::Server).is_ok(),
        "another descriptor is another"
    );
}
