//! Rules by path against clients that spell paths differently: which requests count, which are
//! exempt, and how keys are built.
//!
//! Invariant: a rule counts every request that some server takes to its path; an exemption exempts
//! only requests that every server takes to its path.

use tollgate_policy::{Disposition, GivenKey, Plan, Policy, Surface};

use crate::support::{Surfaced, get};

/// A document with these fields, and with these of its only rule.
fn document(fields: &str, rule: &str) -> String {
    format!(
        r#"{{"version": 1, {fields} "rules": [
            {{"name": "r", "quotas": [{{"limit": 1, "window": "1m"}}], {rule}}}]}}"#
    )
}

fn policy(fields: &str, rule: &str) -> Policy {
    tollgate_language::compile(&document(fields, rule), Surface::Envoy)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn plan(policy: &Policy, target: &str) -> Plan {
    let mut plan = Plan::new();
    policy.plan(&get(target, "192.0.2.1"), &mut plan);
    plan
}

/// Every one of these reaches `/login` at nginx, or at another server whose readings are covered.
const TO_LOGIN: [&str; 14] = [
    "/login",
    "/x/..%2flogin",
    "/%2Flogin",
    "/%2flogin?a=b",
    "/x%2F%2e%2e%2Flogin",
    "/x/%2e%2e%2flogin",
    "/x/..%5clogin",
    "/x\\..\\login",
    "/a\\b/..%2flogin",
    "/a\\b/../login",
    "/a%2fb/../x/..%2flogin",
    "//x/login",
    "/login/.",
    "/login%2F",
];

#[test]
fn a_rule_counts_whatever_reaches_its_path() {
    let login = policy("", r#""when": {"paths": ["/login"]}, "key": ["client_ip"]"#);
    for target in TO_LOGIN {
        assert_eq!(plan(&login, target).len(), 1, "{target} goes round the rule");
    }
    for target in ["/", "/x", "/login2", "/login%2Fx", "/x%2flogin", "/Login", "/%256cogin"] {
        assert_eq!(plan(&login, target).len(), 0, "{target} is not /login");
    }
    let admin = policy("", r#""when": {"paths": ["/admin/**"]}, "key": ["client_ip"]"#);
    for target in ["/health/..%2fadmin/x", "/%2fadmin%2fx", "/admin//../x", "/admin%5Cx"] {
        assert_eq!(plan(&admin, target).len(), 1, "{target} goes round the rule");
    }
}

#[test]
fn an_exemption_lets_off_only_what_cannot_be_something_else() {
    let exempt = r#""exempt": [{"paths": ["/health/**"]}],"#;
    let unless = r#""unless": {"paths": ["/health/**"]}, "key": ["client_ip"]"#;
    for policy in [policy(exempt, r#""key": ["client_ip"]"#), policy("", unless)] {
        for target in ["/health", "/health/a%2fb", "/x/../health/", "/health/a/../b%5c"] {
            assert_eq!(plan(&policy, target).len(), 0, "{target} is let off");
        }
        for target in
            ["/health/..%2fadmin/x", "/x/..%2fhealth", "/admin/..\\health", "/x//../health"]
        {
            assert_eq!(plan(&policy, target).len(), 1, "{target} is let off");
        }
    }
}

#[test]
fn keys_are_made_of_the_reading_with_slashes() {
    let by_path = policy("", r#""key": ["path"]"#);
    let key = |target| plan(&by_path, target).partition(0).unwrap().key().to_vec();
    for target in ["/login", "/x/..%2flogin", "/x/..%5clogin", "/%2flogin"] {
        assert!(key(target).ends_with(b"/login"), "{target}");
        assert_eq!(key(target), key("/login"), "{target}");
    }
    assert_eq!(key("/a%2Fb"), key("/a/b"));
    let captured = policy("", r#""when": {"paths": ["/p/{id}"]}, "key": [{"path_param": "id"}]"#);
    let key = |target| plan(&captured, target).partition(0).unwrap().key().to_vec();
    assert!(key("/p/a%2Fb").ends_with(b"\x03\0\0\0a/b"), "{:?}", key("/p/a%2Fb"));
    for target in ["/p/a%2fb", "/p/a%5Cb", "/p/a%2F%2fb", "/p/a%2f.%2Fb"] {
        assert_eq!(key(target), key("/p/a%2Fb"), "{target}");
    }
    assert_eq!(key("/x/..%2fp/7"), key("/p/7"));
    assert_ne!(key("/p/7"), key("/p/8"));
}

/// A path that one server takes for one resource and another for two has no key: it is denied, not
/// guessed.
#[test]
fn what_servers_dispute_is_no_key() {
    let refused = |fields: &str, rule: &str, target: &str| {
        let seen = Surfaced::new(&document(fields, rule)).check(&get(target, "192.0.2.1"), 0);
        assert!(
            matches!(seen.answer, Disposition::Allow | Disposition::Deny { status: 400 }),
            "{target}"
        );
        seen.answer != Disposition::Allow
    };
    let by_path = r#""key": ["path"]"#;
    for target in ["/a\\b/..%2flogin", "/a%2fb/../login", "/a//../login", "/login/.", "/login%2f"] {
        assert!(refused("", by_path, target), "{target} has a count of its own");
        assert!(!refused("", r#""key": ["client_ip"]"#, target), "{target} needs no key");
    }
    for target in ["/a%2fb", "/a\\b", "/x/..%2flogin", "/a/../login", "//login", "/login/../a/"] {
        assert!(!refused("", by_path, target), "{target} has one meaning");
    }
    let literal = r#""escaped_slashes": "literal","#;
    assert!(!refused(literal, by_path, "/a%2fb/../login"));
    assert!(refused(literal, by_path, "/a\\b"));
    let tiers = r#""key": ["client_ip"], "tiers": [{"name": "large", "when": {"paths": ["/x/**"]},
        "quotas": [{"limit": 1000, "window": "1m"}]}]"#;
    assert!(refused("", tiers, "/a//../x"));
    let captured = r#""when": {"paths": ["/p/{id}/**"]}, "key": [{"path_param": "id"}]"#;
    for target in ["/p/a%2fb/c", "/p/7/x%2f../", "/p/7/x//../a", "/p/7%2f"] {
        assert!(!refused("", captured, target), "{target} is one p");
    }
    for target in ["/p/7//../8", "/p/7%2f8/../9", "/p/7\\..\\..%2f8/../9"] {
        assert!(refused("", captured, target), "{target} is two");
    }
}

#[test]
fn a_literal_slash_is_a_letter() {
    let literal = r#""escaped_slashes": "literal","#;
    let one = policy(literal, r#""when": {"paths": ["/p/{id}"]}, "key": [{"path_param": "id"}]"#);
    assert!(plan(&one, "/p/a%2fb").partition(0).unwrap().key().ends_with(b"\x05\0\0\0a%2Fb"));
    assert_eq!(plan(&one, "/p%2fa").len(), 0);
    assert_eq!(plan(&one, "/x/..%2fp/a").len(), 0);
    let by_path = policy(literal, r#""key": ["path"]"#);
    let key = |target| plan(&by_path, target).partition(0).unwrap().key().to_vec();
    assert_ne!(key("/a%2Fb"), key("/a/b"));
    assert_ne!(key("/a%2Fb"), key("/a%5Cb"));
    // No URL contains a backslash, so servers differ: it counts under both readings.
    let exact = policy(literal, r#""when": {"paths": ["/a/b"]}, "key": ["client_ip"]"#);
    assert_eq!(plan(&exact, "/a\\b").len(), 1);
    assert_eq!(plan(&exact, "/x\\y/../../a/b").len(), 1);
    assert_eq!(plan(&exact, "/x\\y/../a/b").len(), 1);
}

/// A tier only chooses between quotas; it uses the reading that keys use, or a spelling would
/// choose the tier.
#[test]
fn a_spelling_does_not_choose_the_tier() {
    let tiers = r#""key": ["client_ip"], "tiers": [{"name": "large", "when": {"paths": ["/x/**"]},
        "quotas": [{"limit": 1000, "window": "1m"}]}]"#;
    let document = document("", tiers);
    let tier = |target| {
        let seen = Surfaced::new(&document).check(&get(target, "192.0.2.1"), 0);
        seen.header("ratelimit-policy").map(str::to_owned)
    };
    assert_ne!(tier("/x/a"), tier("/login"));
    assert_eq!(tier("/x/..%2flogin"), tier("/login"));
}

// Guards: a client that writes a path in another case, passes a rule, or has a count of its own.
#[test]
fn the_case_of_a_path_makes_no_difference_where_the_document_says_so() {
    let ignoring = r#""case_insensitive_paths": true,"#;
    let rule = r#""when": {"paths": ["/Login/{Who}"]}, "unless": {"paths": ["/login/Root"]},
        "key": [{"path_param": "Who"}, "path"]"#;
    let (ignores, keeping) = (policy(ignoring, rule), policy("", rule));
    let key = |target| plan(&ignores, target).partition(0).map(|it| it.key().to_vec());
    let first = key("/login/a%c3%84").expect("the rule applies");
    for same in ["/LOGIN/A%C3%84", "/lO%67in/A%c3%84", "/x/../lOGIN/%41%C3%84?A=B"] {
        assert_eq!(key(same).as_ref(), Some(&first), "{same}");
        assert_eq!(plan(&keeping, same).len(), 0, "{same}");
    }
    assert_ne!(key("/login/a%C3%A4"), Some(first), "only ASCII");
    assert_eq!(key("/LOGIN/ROOT"), None);
    let escape = r#""escaped_slashes": "literal", "case_insensitive_paths": true,"#;
    let escape = policy(escape, r#""when": {"paths": ["/A%2FB"]}, "key": ["path"]"#);
    for same in ["/a%2fb", "/A%2FB"] {
        assert!(plan(&escape, same).partition(0).unwrap().key().ends_with(b"/a%2Fb"), "{same}");
    }
    let values = ["A%C3%84", "/LOGIN/A%c3%84"].map(str::to_owned);
    let named = GivenKey::new(&ignores, "r", &values).expect("a key");
    assert_eq!(Some(named.bytes()), key("/login/a%c3%84").as_deref(), "as an operator writes it");
}
