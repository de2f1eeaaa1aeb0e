//! Hosts: one grammar, and the handling of a request whose authority does not match it.
//!
//! Invariant: no spelling of a host avoids a rule for it. A host that cannot be read is denied with
//! 400 by every rule that it could concern, and affects no other.

use tollgate_policy::{Disposition, RuleResult};

use crate::support::{Request, Surfaced, get};

const PASS: Disposition = Disposition::Allow;
const DENIED: Disposition = Disposition::Deny { status: 429 };
const BAD: Disposition = Disposition::Deny { status: 400 };

fn to(host: &'static str) -> Request {
    Request { host, ..get("/login", "192.0.2.1") }
}

fn document(head: &str, rule: &str) -> String {
    let quotas = r#""quotas": [{"limit": 1, "window": "1m"}]"#;
    format!(r#"{{"version": 1, {head} "rules": [{{"name": "r", {rule}, {quotas}}}]}}"#)
}

/// Authorities that origins are known to serve as api.example.com, or may serve.
const UNREADABLE: [&str; 14] = [
    "api.example.com:80:80",
    "api.example.com:65536",
    "api.example.com:x",
    "user@api.example.com",
    "api.example.com, other.test",
    "api.example.com, api.example.com",
    "api.example.com..",
    ".api.example.com",
    "%61pi.example.com",
    "api.example.com/",
    "api.example.com\\",
    "api .example.com",
    "api\u{ff0e}example.com",
    "[fe80::1%25eth0]:80",
];

#[test]
fn spellings_of_a_host_are_one_key_and_one_condition() {
    let spellings = [
        "api.example.com",
        "API.EXAMPLE.COM",
        "api.example.com:80",
        "api.example.com:",
        "api.example.com:00443",
        "api.example.com.",
        "api.example.com.:8080",
        "\tapi.example.com ",
    ];
    for rule in [
        r#""key": ["host"]"#,
        r#""key": [], "when": {"hosts": ["Api.Example.com"]}"#,
        r#""key": [], "when": {"hosts": ["*.example.com"]}"#,
    ] {
        let mut surface = Surfaced::new(&document("", rule));
        let answers = spellings.map(|host| surface.check(&to(host), 0).answer);
        let (first, others) = answers.split_first().unwrap();
        assert_eq!(*first, PASS, "{rule}");
        assert!(others.iter().all(|answer| *answer == DENIED), "{rule}: {answers:?}");
    }
    let mut addressed =
        Surfaced::new(&document("", r#""key": [], "when": {"hosts": ["[2001:DB8::5]"]}"#));
    assert_eq!(addressed.check(&to("[2001:db8:0:0::5]:80"), 0).answer, PASS);
    assert_eq!(addressed.check(&to("[2001:db8::0005]"), 0).answer, DENIED);
}

#[test]
fn what_is_no_authority_is_refused_where_hosts_are_read() {
    for host in UNREADABLE {
        for rule in [
            r#""key": ["host"]"#,
            r#""key": [], "when": {"hosts": ["api.example.com"]}"#,
            r#""key": [], "when": {"hosts": ["*.other.test"]}"#,
            r#""key": [], "when": {"hosts": ["api.example.com"], "paths": ["/login"]}"#,
            r#""key": ["client_ip"], "tiers": [{"name": "t", "when": {"hosts": ["a"]}, "quotas": [{"limit": 2, "window": "1m"}]}]"#,
        ] {
            let mut surface = Surfaced::new(&document("", rule));
            let seen = surface.check(&to(host), 0);
            assert_eq!(seen.answer, BAD, "{host}: {rule}");
            assert!(seen.body.unwrap().contains("the host is not a name"), "{host}");
            let results: Vec<_> = surface.plan.outcome(&surface.policy).rules().collect();
            assert_eq!(results, [(0, RuleResult::Malformed)]);
        }
    }
}

#[test]
fn it_lets_nobody_off_and_touches_nothing_else() {
    for host in UNREADABLE {
        for (head, rule) in [
            (r#""exempt": [{"hosts": ["health.example.com"]}],"#, r#""key": []"#),
            ("", r#""key": [], "unless": {"hosts": ["health.example.com"]}"#),
            ("", r#""key": []"#),
        ] {
            let mut surface = Surfaced::new(&document(head, rule));
            assert_eq!(surface.check(&to(host), 0).answer, PASS, "{host}: {head} {rule}");
            assert_eq!(surface.check(&to(host), 0).answer, DENIED, "{host}: {head} {rule}");
        }
        // The rule is for another path, whatever the host is.
        let rule = r#""key": [], "when": {"hosts": ["api.example.com"], "paths": ["/other"]}"#;
        let seen = Surfaced::new(&document("", rule)).check(&to(host), 0);
        assert_eq!((seen.answer, seen.headers.len()), (PASS, 0), "{host}");
        let method = r#""key": [], "when": {"hosts": ["api.example.com"], "methods": ["POST"]}"#;
        assert_eq!(Surfaced::new(&document("", method)).check(&to(host), 0).answer, PASS);
    }
}

#[test]
fn no_host_is_no_wrong_one() {
    let rule = r#""key": [], "when": {"hosts": ["api.example.com"]}"#;
    assert_eq!(Surfaced::new(&document("", rule)).check(&to(""), 0).headers, []);
    let key = document("", r#""key": ["host"], "on_missing": "deny""#);
    assert_eq!(Surfaced::new(&key).check(&to(""), 0).answer, DENIED);
}

#[test]
fn a_shadow_counts_it() {
    let rule = r#""key": ["host"], "mode": "shadow""#;
    let mut surface = Surfaced::new(&document("", rule));
    assert_eq!(surface.check(&to("api.example.com:80:80"), 0).answer, PASS);
    let results: Vec<_> = surface.plan.outcome(&surface.policy).rules().collect();
    assert_eq!(results, [(0, RuleResult::Malformed)]);
}
