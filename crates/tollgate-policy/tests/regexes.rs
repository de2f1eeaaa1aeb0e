//! Regular expressions in keys and conditions: which requests have one count, and which value, of
//! any bytes and any length, evades a rule or gains an exemption.

use tollgate_policy::spec::{MAX_SEARCHED, Regex};
use tollgate_policy::{Disposition, GivenKey, Plan, Surface};

use crate::support::{Request, Surfaced, get};

const PASS: Disposition = Disposition::Allow;
const DENIED: Disposition = Disposition::Deny { status: 429 };
const BAD: Disposition = Disposition::Deny { status: 400 };

fn at(target: &str) -> Request {
    get(target, "192.0.2.1")
}

fn with(value: impl AsRef<[u8]>) -> Request {
    at("/").header("x-tenant", value)
}

/// One rule, limit 1.
fn document(head: &str, rule: &str) -> String {
    let quotas = r#""quotas": [{"limit": 1, "window": "1m"}]"#;
    format!(
        r#"{{"version": 1, "jwt": {{"metadata": "p"}}, {head} "rules": [{{"name": "r", {rule}, {quotas}}}]}}"#
    )
}

/// A document whose rule counts by this part.
fn counting(part: &str) -> String {
    document("", &format!(r#""key": [{part}]"#))
}

/// The answers to these requests, in turn.
fn answers(document: &str, requests: impl IntoIterator<Item = Request>) -> Vec<Disposition> {
    let mut surface = Surfaced::new(document);
    requests.into_iter().map(|request| surface.check(&request, 0).answer).collect()
}

const ORG: &str = r#"{"header": "x-tenant", "match": "^org-([0-9]+)$"}"#;

#[test]
fn the_group_is_counted_and_a_value_without_a_match_lacks_the_part() {
    let same = [with("org-7"), with(" org-7\t"), with("org-7, org-7"), with("org-8")];
    assert_eq!(answers(&counting(ORG), same), [PASS, DENIED, DENIED, PASS]);
    // Nothing of these is counted.
    let none = ["", "org-", "org-7x", "xorg-7", "ORG-7", "guest"];
    let twice = none.iter().flat_map(|value| [with(value), with(value)]);
    assert!(answers(&counting(ORG), twice).iter().all(|answer| *answer == PASS));
    let refusing = document("", &format!(r#""key": [{ORG}], "on_missing": "deny""#));
    let refused = answers(&refusing, none.map(with));
    assert!(refused.iter().all(|answer| *answer == DENIED), "{refused:?}");
    let shared = document("", &format!(r#""key": [{ORG}], "on_missing": "shared""#));
    assert_eq!(answers(&shared, [with("guest"), with("a"), at("/")]), [PASS, DENIED, DENIED]);
    // Values that differ are not searched: no server uses both.
    assert_eq!(answers(&counting(ORG), [with("org-7, guest")]), [BAD]);
}

#[test]
fn the_next_part_of_any_of_is_for_a_value_without_a_match() {
    let key = format!(
        r#"{{"any_of": [{ORG}, {{"header": "x-tenant", "match": "^user-(.+)$"}}, "client_ip"]}}"#
    );
    let requests = ["org-7", "user-7", "org-7", "user-7", "guest", "other"].map(with);
    assert_eq!(answers(&counting(&key), requests), [PASS, PASS, DENIED, DENIED, PASS, DENIED]);
}

#[test]
fn it_is_searched_before_lower_and_in_every_kind_of_text() {
    let lower = r#"{"header": "x-tenant", "match": "^Org-(.*)$", "lower": true}"#;
    let requests = ["Org-A", "Org-a", "org-a", "org-a"].map(with);
    assert_eq!(answers(&counting(lower), requests), [PASS, DENIED, PASS, PASS]);

    let host = |host| Request { host, ..at("/") };
    let key = counting(r#"{"host": {"match": "^([^.]+)\\.example\\.com$"}}"#);
    let hosts = ["a.example.com", "A.Example.COM:8080", "a.example.com.", "b.example.com"];
    assert_eq!(answers(&key, hosts.map(host)), [PASS, DENIED, DENIED, PASS]);

    let key = counting(r#"{"path": {"match": "^/v[0-9]+/([^/]+)"}}"#);
    let paths = ["/v1/a/x", "/v2//a/./y", "/v3/%61", "/v1/b", "/a", "/a"];
    assert_eq!(answers(&key, paths.map(at)), [PASS, DENIED, DENIED, PASS, PASS, PASS]);

    let key = counting(r#"{"query": "k", "match": "^(.{2})"}"#);
    let queries = ["/?k=ab1", "/?k=%61b2", "/?k=a%0A", "/?k=a%0Ab", "/?k=a"];
    assert_eq!(answers(&key, queries.map(at)), [PASS, DENIED, PASS, DENIED, PASS]);

    let key = counting(r#"{"cookie": "sid", "match": "^([0-9]+)\\."}"#);
    let cookie = |value: &str| at("/").header("cookie", format!("a=b; sid={value}"));
    assert_eq!(answers(&key, ["1.a", "1.b", "\"1.c\""].map(cookie)), [PASS, DENIED, DENIED]);

    let claim = |value| Request { claims: vec![("sub", value)], ..at("/") };
    let key = counting(r#"{"jwt_claim": "sub", "match": "@(.*)$"}"#);
    assert_eq!(answers(&key, ["a@x", "b@x", "b@y"].map(claim)), [PASS, DENIED, PASS]);

    let route = |name| Request { route: Some(name), ..at("/") };
    let key = counting(r#"{"route": {"match": "^[a-z]+"}}"#);
    assert_eq!(answers(&key, ["api-1", "api-2", "web-1"].map(route)), [PASS, DENIED, PASS]);

    let metadata = |value| Request { metadata: vec![("f/org", value)], ..at("/") };
    let key = counting(r#"{"metadata": ["f", "org"], "match": "^o-(.*)$"}"#);
    assert_eq!(answers(&key, ["o-1", "o-1", "o-2"].map(metadata)), [PASS, DENIED, PASS]);
}

// Guards: a client that has the count of another by what it puts around a value.
#[test]
fn a_part_found_in_one_place_is_not_that_of_another() {
    let two = document("", &format!(r#""key": [{ORG}, {{"header": "x-b", "match": "."}}]"#));
    let request = |a: &str, b: &str| with(a).header("x-b", b);
    let requests = [request("org-1", "23"), request("org-12", "3"), request("org-1", "24")];
    assert_eq!(answers(&two, requests), [PASS, PASS, DENIED]);
}

#[test]
fn conditions_search_every_value_that_they_are_compared_with() {
    let when = |wanted: &str| format!(r#"{{"headers": {{"x-tenant": {wanted}}}}}"#);
    let bot = when(r#"{"match": "^[a-z]*bot$"}"#);
    let counts = document("", &format!(r#""key": [], "when": {bot}"#));
    let exempts = document(&format!(r#""exempt": [{bot}],"#), r#""key": []"#);
    for (value, is_counted, is_exempt) in [
        ("googlebot", true, true),
        (" googlebot ", true, true),
        ("a, googlebot", true, false),
        ("googlebot, a", true, false),
        ("googlebot, bot", true, true),
        ("googlebot\u{e9}", false, false),
        ("a", false, false),
        ("", false, false),
    ] {
        let twice = || [with(value), with(value)];
        assert_eq!(answers(&counts, twice())[1] == DENIED, is_counted, "{value}");
        assert_eq!(answers(&exempts, twice())[1] == PASS, is_exempt, "{value}");
    }
    let lines = with("a").header("x-tenant", "googlebot");
    assert_eq!(answers(&counts, [lines.clone(), lines])[1], DENIED);
    // Next to other forms, in a list.
    let any = when(r#"["gold", {"match": "^s.*r$"}, {"prefix": "br"}]"#);
    let counts = document("", &format!(r#""key": [], "when": {any}"#));
    for (value, is_counted) in [("gold", true), ("silver", true), ("bronze", true), ("tin", false)]
    {
        assert_eq!(
            answers(&counts, [with(value), with(value)])[1] == DENIED,
            is_counted,
            "{value}"
        );
    }
    let query = r#"{"query": {"q": {"match": "^a.c$"}}}"#;
    let counts = document("", &format!(r#""key": [], "when": {query}"#));
    for (target, is_counted) in [
        ("/?q=abc", true),
        ("/?q=a%0Ac", true),
        ("/?q=a%FFc", true),
        ("/?q=x&q=%61bc", true),
        ("/?q=ac", false),
        ("/", false),
    ] {
        assert_eq!(answers(&counts, [at(target), at(target)])[1] == DENIED, is_counted, "{target}");
    }
    // A scheme in any case, where the expression says so.
    let scheme = r#"{"headers": {"authorization": {"match": "(?i)^bearer gold"}}}"#;
    let counts = document("", &format!(r#""key": [], "when": {scheme}"#));
    let token = |value: &str| at("/").header("authorization", value);
    assert_eq!(answers(&counts, [token("BEARER gold-1"), token("bearer gold-2")]), [PASS, DENIED]);
}

#[test]
fn descriptors_are_searched() {
    let rule = |when: &str| {
        let rule = format!(r#""key": [], "when": {when}"#);
        Surfaced::on(
            &document("", &rule).replace(r#""jwt": {"metadata": "p"}, "#, ""),
            Surface::Server,
        )
    };
    let entry = |value| Request { entries: vec![("user", value)], ..at("/") };
    for (when, value, is_counted) in [
        (r#"{"descriptor": {"user": {"match": "^u[0-9]+$"}}}"#, "u1", true),
        (r#"{"descriptor": {"user": {"match": "^u[0-9]+$"}}}"#, "u1x", false),
        (r#"{"entries": [[{"user": {"match": "^u[0-9]+$"}}]]}"#, "u1", true),
        (r#"{"descriptor": {"user": {"not": {"match": "^u[0-9]+$"}}}}"#, "u1", false),
        (r#"{"descriptor": {"user": {"not": {"match": "^u[0-9]+$"}}}}"#, "v1", true),
        (r#"{"descriptor": {"user": {"match": "^u", "not": "u2"}}}"#, "u2", false),
    ] {
        let mut surface = rule(when);
        surface.check(&entry(value), 0);
        let answer = surface.check(&entry(value), 0).answer;
        assert_eq!(answer == DENIED, is_counted, "{when}: {value}");
    }
    let long: &'static str = "u".repeat(MAX_SEARCHED + 1).leak();
    for when in [
        r#"{"descriptor": {"user": {"match": "^v"}}}"#,
        r#"{"entries": [[{"user": {"not": {"match": "^v"}}}]]}"#,
    ] {
        assert_eq!(rule(when).check(&entry(long), 0).answer, BAD, "{when}");
    }
}

// Guards: a value too long to be searched, by which a client leaves a rule that would count it, or
// becomes exempt.
#[test]
fn a_value_that_is_too_long_neither_evades_nor_gains() {
    let longest = "a".repeat(MAX_SEARCHED);
    let too_long = "a".repeat(MAX_SEARCHED + 1);
    for (part, request) in [
        (r#"{"header": "x-tenant", "match": "^a+$"}"#, &(|v: &str| with(v)) as &dyn Fn(&str) -> _),
        (r#"{"query": "q", "match": "^a+$"}"#, &|v| at(&format!("/?q={v}"))),
        (r#"{"path": {"match": "^.a*$"}}"#, &|v| at(&format!("/{}", &v[1..]))),
        (r#"{"any_of": [{"header": "x-tenant", "match": "^a+$"}, "client_ip"]}"#, &|v| with(v)),
    ] {
        let key = counting(part);
        assert_eq!(answers(&key, [request(&longest), request(&longest)]), [PASS, DENIED], "{part}");
        assert_eq!(answers(&key, [request(&too_long)]), [BAD], "{part}");
    }
    let parameter = |value: &str| at(&format!("/?q={value}"));
    for (when, request) in [
        (
            r#"{"headers": {"x-tenant": {"match": "^a+$"}}}"#,
            &(|v: &str| with(v)) as &dyn Fn(&str) -> Request,
        ),
        (r#"{"query": {"q": {"match": "^a+$"}}}"#, &parameter),
        (r#"{"query": {"q": {"match": "^a+$"}}}"#, &|v| at(&format!("/?q=b&q={v}"))),
    ] {
        let counts = document("", &format!(r#""key": [], "when": {when}"#));
        assert_eq!(answers(&counts, [request(&too_long)]), [BAD], "{when}");
        let unless = document("", &format!(r#""key": [], "unless": {when}"#));
        assert_eq!(answers(&unless, [request(&too_long), request(&too_long)])[1], DENIED, "{when}");
        let exempts = document(&format!(r#""exempt": [{when}],"#), r#""key": []"#);
        let exempted = answers(&exempts, [request(&too_long), request(&too_long)]);
        assert_eq!(exempted, [PASS, DENIED], "{when}");
        let deny = format!(
            r#"{{"version": 1, "rules": [{{"name": "d", "when": {when}, "deny": true}}]}}"#
        );
        assert_eq!(answers(&deny, [request(&too_long)]), [BAD], "{when}");
    }
    let tiers = r#""tiers": [{"name": "t", "when": {"headers": {"x-tenant": {"match": "^a+$"}}},
        "quotas": [{"limit": 9, "window": "1m"}]}], "key": []"#;
    assert_eq!(answers(&document("", tiers), [with(&too_long)]), [BAD]);
    // Many parameters of one name are one value.
    let many = format!("/?{}", "q=a&".repeat(MAX_SEARCHED + 1));
    let counts = document("", r#""key": [], "when": {"query": {"q": {"match": "^b$"}}}"#);
    assert_eq!(answers(&counts, [at(&many)]), [BAD]);
    // A long value that no expression is compared with is as ever.
    let plain = document("", r#""key": [], "when": {"headers": {"x-tenant": {"prefix": "a"}}}"#);
    assert_eq!(answers(&plain, [with(&too_long), with(&too_long)]), [PASS, DENIED]);
}

// Guards: a program for each occurrence of an expression.
#[test]
fn equal_expressions_are_one() {
    let rule = |i: usize| {
        format!(
            r#"{{"name": "{i}", "key": [{ORG}], "when": {{"headers": {{"x-tenant": {{"match": "^org-([0-9]+)$"}}}}}}, "quotas": [{{"limit": 1, "window": "1m"}}]}}"#
        )
    };
    let rules: Vec<_> = (0..500).map(rule).collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    assert_eq!(answers(&document, [with("org-1"), with("org-1")]), [PASS, DENIED]);
}

#[test]
fn a_compiled_policy_has_the_same_expressions() {
    let document = document(
        r#""exempt": [{"query": {"q": {"match": "^free$"}}}],"#,
        &format!(r#""key": [{ORG}], "when": {{"headers": {{"x-tenant": {{"match": "org"}}}}}}"#),
    );
    let mut surface = Surfaced::new(&document);
    let mut bytes = vec![];
    surface.policy.write_compiled(&mut bytes);
    surface.policy = tollgate_policy::Policy::read_compiled(&bytes, Surface::Envoy).unwrap();
    let mut check = |request: &Request| surface.check(request, 0).answer;
    assert_eq!(check(&with("org-1")), PASS);
    assert_eq!(check(&with("org-1")), DENIED);
    assert_eq!(check(&Request { target: "/?q=free".into(), ..with("org-1") }), PASS);
    let mut again = vec![];
    surface.policy.write_compiled(&mut again);
    assert_eq!(bytes, again);
}

#[test]
fn a_named_key_is_what_the_expression_finds() {
    let policy = tollgate_language::compile(&counting(ORG), Surface::Envoy).unwrap();
    let mut surface = Surfaced::new(&counting(ORG));
    surface.check(&with("org-42"), 0);
    let key = GivenKey::new(&policy, "r", &["42".into()]).unwrap();
    assert_eq!(surface.store.keys().collect::<Vec<_>>(), [key.bytes()]);
    assert_eq!(policy.rules()[0].key_parts(&policy), ["header x-tenant match \"^org-([0-9]+)$\""]);
}

// Guards: two keys that differ in their expressions and share one table.
#[test]
fn another_expression_is_another_key() {
    let identity = |part: &str| {
        let policy = tollgate_language::compile(&counting(part), Surface::Envoy).unwrap();
        policy.groups()[0].identity()
    };
    let parts = [
        r#"{"header": "x-tenant"}"#,
        r#"{"header": "x-tenant", "lower": true}"#,
        ORG,
        r#"{"header": "x-tenant", "match": "^org-([0-9]+)$", "lower": true}"#,
        r#"{"header": "x-tenant", "match": "^org-([0-9])+$"}"#,
    ];
    let mut identities = parts.map(identity).to_vec();
    identities.sort_unstable();
    identities.dedup();
    assert_eq!(identities.len(), parts.len());
}

#[test]
fn the_bound_of_a_value_is_what_clients_are_told() {
    let detail = tollgate_policy::Malformed::Long.detail();
    assert!(detail.contains(&MAX_SEARCHED.to_string()), "{detail}");
    assert!(Regex::new("^a$").is_ok());
}

/// The white space after a scheme does not hide what is searched for.
#[test]
fn credentials_are_searched_in_one_form_too() {
    let when = r#"{"headers": {"authorization": {"match": "(?i)^bearer free-"}}}"#;
    let counts = document("", &format!(r#""key": [], "when": {when}"#));
    let bearer = |value: &str| at("/").header("authorization", value);
    let free = ["Bearer free-1", "Bearer  free-1", "bEARER\tfree-1", "Bearer \t free-2"];
    assert_eq!(answers(&counts, free.map(bearer)), [PASS, DENIED, DENIED, DENIED]);
    assert_eq!(answers(&counts, [bearer("Bearer gold"), bearer("Bearer gold")]), [PASS, PASS]);
    let key = counting(r#"{"header": "authorization", "match": "(?i)^Bearer (.+)$"}"#);
    assert_eq!(answers(&key, free.map(bearer)), [PASS, DENIED, DENIED, PASS]);
}

/// Each value of a parameter is a search, and a target can have thousands of empty ones.
#[test]
fn many_values_are_as_long_as_one() {
    let when = r#"{"query": {"q": {"match": "^a"}}}"#;
    let counts = document("", &format!(r#""key": [], "when": {when}"#));
    let many = |count: usize| at(&format!("/?{}", "q&".repeat(count)));
    assert_eq!(answers(&counts, [many(MAX_SEARCHED + 1)]), [BAD]);
    assert_eq!(answers(&counts, [many(MAX_SEARCHED)]), [PASS]);
}

/// The entry of a tenant is found by the part of the path that names it.
#[test]
fn a_tenant_is_named_by_what_the_expression_finds() {
    let part = r#"{"path": {"match": "^/t/([^/]+)"}}"#;
    let head = format!(r#""tenant": {part},"#);
    let document = document(&head, &format!(r#""key": [{part}]"#));
    let policy = tollgate_language::compile(&document, Surface::Library).unwrap();
    let mut plan = Plan::new();
    policy.plan(&at("/t/acme/x"), &mut plan);
    let id = plan.tenant().unwrap().id().to_vec();
    assert_eq!(policy.tenants().unwrap().id("acme"), Some(id));
}
