//! Every feature of the policy document, as a client sees it.

use tollgate_core::Span;
use tollgate_policy::{Disposition, Failure, RuleResult, Surface};

use crate::support::{Request, Surfaced, get};

const DENIED: Disposition = Disposition::Deny { status: 429 };

/// A policy of one rule, key the client's address, 1 per minute unless `fields` contain another
/// quota.
fn rule(fields: &str) -> String {
    let key = if fields.contains("\"key\"") { "" } else { r#""key": ["client_ip"],"# };
    let quotas = if fields.starts_with("\"quotas\"")
        || fields.contains(", \"quotas\"") && !fields.contains("tiers")
    {
        ""
    } else {
        r#""quotas": [{"limit": 1, "window": "1m"}],"#
    };
    let fields = fields.trim_end_matches(',');
    let fields = if fields.is_empty() { r#""on_failure": "allow""# } else { fields };
    format!(r#"{{"version": 1, "rules": [{{"name": "r", {key} {quotas} {fields}}}]}}"#)
}

/// True when the only rule applies to the request.
fn applies(document: &str, request: &Request) -> bool {
    !Surfaced::new(document).check(request, 0).headers.is_empty()
}

#[track_caller]
fn check_when(when: &str, expected: &[(Request, bool)]) {
    for (request, expected) in expected {
        assert_eq!(
            applies(&rule(&format!(r#""when": {when}"#)), request),
            *expected,
            "when {when}: {request:?}"
        );
        let unless = format!(r#""unless": {when}"#);
        assert_eq!(applies(&rule(&unless), request), !*expected, "unless {when}: {request:?}");
        let exempt = rule("").replace(r#""rules""#, &format!(r#""exempt": [{when}], "rules""#));
        assert_eq!(applies(&exempt, request), !*expected, "exempt {when}: {request:?}");
    }
}

fn at(target: &str) -> Request {
    get(target, "192.0.2.1")
}

fn hosted(host: &'static str) -> Request {
    Request { host, ..at("/") }
}

// HTTP/2 permits `post`, which Werkzeug and Django serve as POST and other servers reject.
#[test]
fn a_method_in_other_letters_is_counted_and_never_let_off() {
    let post = |method| at("/").method(method);
    for method in ["POST", "post", "Post"] {
        assert!(applies(&rule(r#""when": {"methods": ["POST"]}"#), &post(method)), "{method}");
        let unless = rule(r#""unless": {"methods": ["POST"]}"#);
        assert_eq!(applies(&unless, &post(method)), method != "POST", "{method}");
        let exempt =
            rule("").replace(r#""rules""#, r#""exempt": [{"methods": ["POST"]}], "rules""#);
        assert_eq!(applies(&exempt, &post(method)), method != "POST", "{method}");
    }
    assert!(!applies(&rule(r#""when": {"methods": ["POST"]}"#), &post("posts")));
}

#[test]
fn methods_hosts_and_paths() {
    check_when(
        r#"{"methods": ["GET", "PUT"]}"#,
        &[(at("/"), true), (at("/").method("POST"), false)],
    );
    check_when(
        r#"{"hosts": ["api.example.com", "*.example.org", "[::1]"]}"#,
        &[
            (hosted("API.example.com:8080"), true),
            (hosted("api.example.com."), true),
            (hosted("x.api.example.com"), false),
            (hosted("a.b.Example.org"), true),
            (hosted("example.org"), false),
            (hosted("[::1]:443"), true),
            (hosted(""), false),
        ],
    );
    check_when(
        r#"{"paths": ["/a/{id}", "/b/**"], "methods": ["GET"]}"#,
        &[
            (at("/a/1"), true),
            (at("/a"), false),
            (at("/b?x=/a/1"), true),
            (at("/a/1").method("PUT"), false),
        ],
    );
}

#[test]
fn headers_and_query() {
    check_when(
        r#"{"headers": {"X-Plan": ["gold", {"prefix": "pre"}], "x-any": "*"}}"#,
        &[
            (at("/").header("x-plan", "gold").header("x-any", ""), true),
            (at("/").header("x-plan", "premium").header("x-any", "1"), true),
            (at("/").header("x-plan", "gold"), false),
            (at("/").header("x-plan", "Gold").header("x-any", "1"), false),
        ],
    );
    check_when(
        r#"{"query": {"q": "a b", "flag": "*"}}"#,
        &[
            (at("/?q=a+b&flag"), true),
            (at("/?flag=1&q=a+b&q=a%20b"), true),
            (at("/?q=a+b"), false),
            (at("/?%71=a%20b&fl%61g=#"), true),
            (at("/"), false),
        ],
    );
}

#[test]
fn nothing_between_two_ampersands_is_no_parameter() {
    check_when(
        r#"{"query": {"": "*"}}"#,
        &[(at("/"), false), (at("/?"), false), (at("/?a=1&&b=2&"), false), (at("/?=1"), true)],
    );
}

#[test]
fn networks_routes_countries_and_systems() {
    check_when(
        r#"{"client_cidrs": ["192.0.2.0/25", "2001:db8::/32"]}"#,
        &[
            (get("/", "192.0.2.1"), true),
            (get("/", "::ffff:192.0.2.1"), true),
            (get("/", "192.0.2.128"), false),
            (get("/", "2001:db8:9::1"), true),
        ],
    );
    check_when(
        r#"{"routes": ["api"]}"#,
        &[(Request { route: Some("api"), ..at("/") }, true), (at("/"), false)],
    );
    let geo = |fields| {
        format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": [], "when": {fields}, "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
        )
    };
    let mut worker =
        Surfaced::on(&geo(r#"{"countries": ["de"], "asns": [64496]}"#), Surface::Worker);
    let german = Request { country: Some("DE"), asn: Some("64496"), ..at("/") };
    assert!(!worker.check(&german, 0).headers.is_empty());
    assert!(worker.check(&Request { asn: Some("64497"), ..german.clone() }, 0).headers.is_empty());
    assert!(worker.check(&Request { country: None, ..german }, 0).headers.is_empty());
    let named = geo(r#"{"countries": ["DE"]}"#)
        .replace(r#""rules""#, r#""geo": {"country_header": "x-country"}, "rules""#);
    assert!(applies(&named, &at("/").header("x-country", "de")));
    assert!(
        !applies(&named, &Request { country: Some("DE"), ..at("/") }),
        "the header that the policy names"
    );
    let mut worker = Surfaced::on(&named, Surface::Worker);
    assert!(
        worker.check(&at("/").header("x-country", "DE"), 0).headers.is_empty(),
        "a Worker believes its platform, not a header that any client can send"
    );
    assert!(!worker.check(&Request { country: Some("DE"), ..at("/") }, 0).headers.is_empty());
}

#[test]
fn a_library_is_given_every_fact() {
    let document = r#"{"version": 1, "geo": {"country_header": "x-country"}, "rules": [{"name": "r",
        "when": {"routes": ["api"], "countries": ["DE"], "asns": [1]}, "key": ["client_ip", {"jwt_claim": "sub"}],
        "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    let mut library = Surfaced::on(document, Surface::Library);
    let request = Request {
        route: Some("api"),
        country: Some("DE"),
        asn: Some("1"),
        claims: vec![("sub", "a")],
        ..get("/", "192.0.2.1")
    };
    assert_eq!(library.check(&request, 0).answer, Disposition::Allow);
    assert_eq!(library.check(&request, 0).answer, DENIED);
    let other = Request { claims: vec![("sub", "b")], ..request.clone() };
    assert_eq!(library.check(&other, 0).answer, Disposition::Allow, "another claim");
    let elsewhere = Request { country: Some("FR"), ..request }.header("x-country", "DE");
    assert!(library.check(&elsewhere, 0).headers.is_empty(), "it knows the country by itself");
}

#[test]
fn every_key_part_counts_by_its_value() {
    let params = r#""when": {"paths": ["/u/{id}/**"]}, "key": [{"path_param": "id"}]"#;
    let claimed = |sub| Request { claims: vec![("sub", sub)], ..at("/") };
    let jwt = r#""key": [{"jwt_claim": "sub"}]"#;
    let marked = |value| Request { metadata: vec![("f/a/id", value)], ..at("/") };
    let metadata = r#""key": [{"metadata": ["f", "a", "id"]}]"#;
    let presented =
        |value| Request { certificate: vec![("sha256", "0"), ("subject", value)], ..at("/") };
    let certificate = r#""key": [{"client_certificate": "subject"}]"#;
    let routed = |name, path| Request { route: Some(name), ..at(path) };
    let same_and_other: [(&str, Request, Request, Request); 13] = [
        (r#""key": ["method"]"#, at("/1"), at("/2"), at("/1").method("PUT")),
        (r#""key": ["method"]"#, at("/").method("POST"), at("/").method("poST"), at("/")),
        (r#""key": ["host"]"#, hosted("a:1"), hosted("A"), hosted("b")),
        (r#""key": ["path"]"#, at("/a?1"), at("//%61"), at("/b")),
        (
            r#""key": [{"header": "X-K"}]"#,
            at("/").header("x-k", "1"),
            at("/2").header("x-k", "1"),
            at("/").header("x-k", "2"),
        ),
        (
            r#""key": [{"cookie": "sid"}]"#,
            at("/").header("cookie", "a=b; sid=1"),
            at("/").header("cookie", "sid=1;sid=1"),
            at("/").header("cookie", "xsid=1; sid=2"),
        ),
        (r#""key": [{"query": "k"}]"#, at("/?k=1%20"), at("/x?a&k=1+&k=1%20"), at("/?k=2")),
        (params, at("/u/1/a"), at("/u/1"), at("/u/2/a")),
        (r#""key": ["route"]"#, routed("api", "/1"), routed("api", "/2"), routed("API", "/1")),
        (jwt, claimed("alice"), claimed("alice"), claimed("bob")),
        (certificate, presented("CN=a"), presented("CN=a"), presented("CN=A")),
        (metadata, marked("acme"), marked("acme"), marked("ACME")),
        (r#""key": ["client_ip", "method"]"#, at("/"), at("/x"), get("/", "192.0.2.9")),
    ];
    for (key, first, same, other) in same_and_other {
        let document =
            rule(key).replace(r#""rules""#, r#""jwt": {"metadata": "payload"}, "rules""#);
        let mut surface = Surfaced::new(&document);
        assert_eq!(surface.check(&first, 0).answer, Disposition::Allow, "{key}");
        assert_eq!(surface.check(&same, 0).answer, DENIED, "{key}: the same value");
        assert_eq!(surface.check(&other, 0).answer, Disposition::Allow, "{key}: another value");
    }
}

/// Guards: names of a path that are one text with slashes, and a path that is the beginning of
/// another: each is its own key.
#[test]
fn metadata_is_counted_by_its_whole_path() {
    let keys = [
        r#"[{"metadata": ["f", "a/id"]}]"#,
        r#"[{"metadata": ["f/a", "id"]}]"#,
        r#"[{"metadata": ["f", "a", "id"]}]"#,
        r#"[{"metadata": ["f", "a"]}]"#,
        r#"[{"metadata": ["f", "a"]}, {"metadata": ["f", "id"]}]"#,
        r#"[{"any_of": [{"metadata": ["f", "a"]}, {"metadata": ["f", "id"]}]}]"#,
    ];
    let rules: Vec<String> = keys
        .iter()
        .enumerate()
        .map(|(i, key)| {
            let quotas = r#""quotas": [{"limit": 1, "window": "1h"}]"#;
            format!(r#"{{"name": "r{i}", "key": {key}, {quotas}}}"#)
        })
        .collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
    assert_eq!(policy.groups().len(), keys.len());
}

#[test]
fn metadata_that_is_absent_counts_as_any_absent_part() {
    let key = r#""key": ["client_ip", {"metadata": ["f", "id"]}]"#;
    let marked = |value| Request { metadata: vec![("f/id", value)], ..at("/") };
    assert!(Surfaced::new(&rule(key)).check(&at("/"), 0).headers.is_empty(), "skipped");
    let mut deny = Surfaced::new(&rule(&format!(r#"{key}, "on_missing": "deny""#)));
    assert_eq!(deny.check(&at("/"), 0).answer, DENIED);
    assert_eq!(deny.check(&marked(""), 0).answer, Disposition::Allow, "empty is not missing");
    let mut shared = Surfaced::new(&rule(&format!(r#"{key}, "on_missing": "shared""#)));
    assert_eq!(shared.check(&at("/"), 0).answer, Disposition::Allow);
    assert_eq!(shared.check(&get("/", "192.0.2.9"), 0).answer, DENIED);
    assert_eq!(shared.check(&marked("a"), 0).answer, Disposition::Allow);
    let either = r#""key": [{"any_of": [{"metadata": ["f", "id"]}, {"header": "x"}]}]"#;
    let mut either = Surfaced::new(&rule(either));
    assert_eq!(either.check(&marked("a"), 0).answer, Disposition::Allow);
    assert_eq!(either.check(&marked("a").header("x", "b"), 0).answer, DENIED, "the first is there");
    assert_eq!(
        either.check(&at("/").header("x", "a"), 0).answer,
        Disposition::Allow,
        "another part"
    );
}

#[test]
fn a_missing_part_is_skipped_denied_or_shared() {
    let key = r#""key": ["client_ip", {"header": "x-k"}]"#;
    let mut skip = Surfaced::new(&rule(key));
    assert!(skip.check(&at("/"), 0).headers.is_empty());
    let mut deny = Surfaced::new(&rule(&format!(r#"{key}, "on_missing": "deny""#)));
    let denied = deny.check(&at("/"), 0);
    assert_eq!(denied.answer, DENIED);
    assert_eq!(denied.header("retry-after"), None);
    assert!(denied.body.unwrap().contains("the request lacks what its quota is counted by"));
    let mut shared = Surfaced::new(&rule(&format!(r#"{key}, "on_missing": "shared""#)));
    assert_eq!(shared.check(&at("/"), 0).answer, Disposition::Allow);
    assert_eq!(shared.check(&at("/"), 0).answer, DENIED);
    assert_eq!(shared.check(&get("/", "192.0.2.9"), 0).answer, DENIED, "by nothing else either");
    assert_eq!(
        shared.check(&at("/").header("x-k", ""), 0).answer,
        Disposition::Allow,
        "empty is not missing"
    );
    // But a route has no empty name, as Envoy gives it to all routes without a name.
    for nameless in [Request { route: Some(""), ..at("/") }, at("/")] {
        let mut routes = Surfaced::new(&rule(r#""key": ["route"], "on_missing": "deny""#));
        assert_eq!(routes.check(&nameless, 0).header("retry-after"), None, "missing, not used up");
        assert_eq!(routes.check(&nameless, 0).answer, DENIED);
    }
}

// The four bytes of 65.66.67.68 are "ABCD".
#[test]
fn an_address_and_a_text_of_its_bytes_are_not_the_same_tier() {
    let limit = |value: &str, address: &str, header: &str| {
        let tiers = format!(
            r#""key": ["client_ip", {{"header": "x-k"}}], "tiers":
               [{{"name": "t", "key_values": ["{value}"], "quotas": [{{"limit": 7, "window": "1m"}}]}}]"#
        );
        let seen = Surfaced::new(&rule(&tiers)).check(&get("/", address).header("x-k", header), 0);
        seen.header("ratelimit-policy").unwrap().to_string()
    };
    for (value, address, header, is_tier) in [
        ("65.66.67.68", "65.66.67.68", "k", true),
        ("65.66.67.68", "192.0.2.1", "ABCD", false),
        ("ABCD", "192.0.2.1", "ABCD", true),
        ("ABCD", "65.66.67.68", "k", false),
        ("192.0.2.1", "192.0.2.2", "192.0.2.1", true), // a text, too
    ] {
        let expected = if is_tier { "\"r\";q=7;w=60" } else { "\"r\";q=1;w=60" };
        assert_eq!(limit(value, address, header), expected, "{value} {address} {header}");
    }
}

#[test]
fn costs() {
    let left = |cost: &str, request: Request| {
        let document =
            rule(&format!(r#""cost": {cost}, "quotas": [{{"limit": 1000, "window": "1h"}}]"#));
        let seen = Surfaced::new(&document).check(&request, 0);
        let field = seen.header("ratelimit").unwrap().to_string();
        field.split_once("r=").unwrap().1.split_once(';').unwrap().0.parse::<u64>().unwrap()
    };
    assert_eq!(left("7", at("/")), 993);
    let header = r#"{"header": "x-cost", "default": 2, "max": 50}"#;
    assert_eq!(left(header, at("/")), 998);
    assert_eq!(left(header, at("/").header("x-cost", " 12 ")), 988);
    assert_eq!(left(header, at("/").header("x-cost", "900")), 950, "no more than max is believed");
    assert_eq!(left(header, at("/").header("x-cost", "0")), 999, "nothing is free");
    for large in ["18446744073709551615", "18446744073709551616", "9999999999999999999999"] {
        assert_eq!(left(header, at("/").header("x-cost", large)), 950, "{large} is a number, too");
    }
    for nonsense in ["-5", "1e3", "", "1;1", "+3", " "] {
        assert_eq!(left(header, at("/").header("x-cost", nonsense)), 998, "{nonsense}");
    }
    assert_eq!(left(header, at("/").header("x-cost", "1,1")), 999, "one cost, said twice");
    let length = r#"{"content_length_per": 1024}"#;
    assert_eq!(left(length, at("/").header("content-length", "1025")), 998);
    assert_eq!(left(length, at("/").header("content-length", "0")), 999);
    assert_eq!(left(length, at("/")), 999);
}

#[test]
fn a_cost_that_can_never_fit_is_told_so() {
    let mut surface = Surfaced::new(&rule(r#""cost": 2"#));
    let denied = surface.check(&at("/"), 0);
    assert_eq!(denied.answer, DENIED);
    assert_eq!(denied.header("retry-after"), None);
    assert!(denied.body.unwrap().contains("costs more than the quota ever holds"));
}

#[test]
fn failed_logins_only() {
    let mut surface = Surfaced::new(&rule(
        r#""charge": {"response_status": ["401", "5xx"]}, "quotas": [{"limit": 2, "window": "1h"}]"#,
    ));
    for _ in 0..5 {
        assert_eq!(surface.check(&at("/login"), 0).answer, Disposition::Allow);
        assert!(!surface.settle(200, 0), "a success is not charged");
    }
    for status in [401, 503] {
        assert_eq!(surface.check(&at("/login"), 0).answer, Disposition::Allow);
        assert!(surface.settlement().is_deferred());
        assert!(surface.settle(status, 0));
        assert!(!surface.settle(status, 0), "a response is charged once");
    }
    assert_eq!(surface.check(&at("/login"), 0).answer, DENIED);
    assert!(!surface.settle(401, 0), "a denial is not charged");
    assert_eq!(surface.check(&at("/login"), 1_800_000).answer, Disposition::Allow);
}

#[test]
fn tiers_replace_the_quotas() {
    let mut surface = Surfaced::new(&rule(
        r#""key": [{"header": "x-k"}], "tiers": [
            {"name": "silver", "when": {"headers": {"x-plan": "silver"}}, "quotas": [{"limit": 2, "window": "1m"}]},
            {"name": "gold", "priority": 10, "key_values": ["k-1", "k-2"], "quotas": [{"limit": 3, "window": "1m"}]}]"#,
    ));
    let limit = |surface: &mut Surfaced, request: Request| {
        (0..10).filter(|_| surface.check(&request, 0).answer == Disposition::Allow).count()
    };
    assert_eq!(limit(&mut surface, at("/").header("x-k", "other")), 1);
    assert_eq!(limit(&mut surface, at("/").header("x-k", "k-1")), 3);
    assert_eq!(
        limit(&mut surface, at("/").header("x-k", "k-2").header("x-plan", "silver")),
        3,
        "the highest priority"
    );
    assert_eq!(limit(&mut surface, at("/").header("x-k", "s").header("x-plan", "silver")), 2);
}

#[test]
fn a_tier_by_address_means_the_grouped_address() {
    let mut surface = Surfaced::new(&rule(
        r#""tiers": [{"name": "office", "key_values": ["2001:db8::1"], "quotas": [{"limit": 9, "window": "1m"}]}]"#,
    ));
    let seen = surface.check(&get("/", "2001:db8::ffff"), 0);
    assert_eq!(seen.header("ratelimit-policy"), Some(r#""r";q=9;w=60"#));
}

const USER_OR_ADDRESS: &str =
    r#""key": [{"any_of": [{"header": "x-user"}, {"jwt_claim": "sub"}, "client_ip"]}]"#;

#[test]
fn the_first_part_that_is_present_counts_the_request() {
    let document =
        rule(USER_OR_ADDRESS).replace(r#""rules""#, r#""jwt": {"metadata": "payload"}, "rules""#);
    let mut surface = Surfaced::new(&document);
    let claimed = |sub, ip| Request { claims: vec![("sub", sub)], ..get("/", ip) };
    let mut check = |request: &Request| surface.check(request, 0).answer;
    let user = |ip| get("/", ip).header("x-user", "alice");
    assert_eq!(check(&user("192.0.2.1")), Disposition::Allow);
    assert_eq!(check(&user("192.0.2.2")), DENIED, "whatever the parts after it are");
    assert_eq!(check(&claimed("alice", "192.0.2.1")), Disposition::Allow, "another part");
    assert_eq!(check(&claimed("alice", "192.0.2.9")), DENIED);
    assert_eq!(check(&get("/", "192.0.2.1")), Disposition::Allow, "its address was not counted");
    assert_eq!(check(&get("/x", "192.0.2.1")), DENIED);
    let empty = get("/", "192.0.2.1").header("x-user", "");
    assert_eq!(check(&empty), Disposition::Allow, "an empty value is present");
    let twice = get("/", "192.0.2.5").header("x-user", "a").header("x-user", "b");
    assert_eq!(check(&twice), Disposition::Deny { status: 400 }, "and not the next part");
}

/// A client that writes what another client is counted by is counted as itself.
#[test]
fn a_text_in_one_part_is_never_the_same_text_in_another() {
    let texts = |name: &'static str, text: &'static str| get("/", "192.0.2.1").header(name, text);
    let headers = r#""key": [{"any_of": [{"header": "x-a"}, {"header": "x-b"}]}]"#;
    let mut surface = Surfaced::new(&rule(headers));
    assert_eq!(surface.check(&texts("x-a", "1"), 0).answer, Disposition::Allow);
    assert_eq!(surface.check(&texts("x-b", "1"), 0).answer, Disposition::Allow);
    // The bytes of an address, the index of its part before them.
    let address = r#""key": [{"any_of": [{"header": "x-a"}, "client_ip"]}]"#;
    let mut surface = Surfaced::new(&rule(address));
    assert_eq!(surface.check(&get("/", "65.66.67.68"), 0).answer, Disposition::Allow);
    for text in ["ABCD", "\u{1}ABCD", "65.66.67.68"] {
        let seen = surface.check(&texts("x-a", text), 0).answer;
        assert_ne!(seen, DENIED, "{text:?}");
    }
    assert_eq!(surface.check(&get("/", "65.66.67.68"), 0).answer, DENIED);
}

#[test]
fn on_missing_decides_when_no_part_is_present() {
    let key = r#""key": [{"any_of": [{"header": "x-a"}, {"header": "x-b"}]}]"#;
    let mut skip = Surfaced::new(&rule(key));
    assert!(skip.check(&at("/"), 0).headers.is_empty());
    let mut deny = Surfaced::new(&rule(&format!(r#"{key}, "on_missing": "deny""#)));
    assert_eq!(deny.check(&at("/").header("x-b", "1"), 0).answer, Disposition::Allow);
    assert_eq!(deny.check(&at("/"), 0).header("retry-after"), None);
    assert_eq!(deny.check(&at("/"), 0).answer, DENIED);
    let mut shared = Surfaced::new(&rule(&format!(r#"{key}, "on_missing": "shared""#)));
    assert_eq!(shared.check(&at("/"), 0).answer, Disposition::Allow);
    assert_eq!(shared.check(&get("/", "192.0.2.9"), 0).answer, DENIED);
    assert_eq!(shared.check(&at("/").header("x-a", ""), 0).answer, Disposition::Allow);
}

/// The order of the parts, and each of their settings, are the definition of the key.
#[test]
fn another_any_of_is_another_group() {
    let keys = [
        r#"[{"any_of": [{"header": "a"}, {"header": "b"}]}]"#,
        r#"[{"any_of": [{"header": "b"}, {"header": "a"}]}]"#,
        r#"[{"any_of": [{"header": "a"}, {"header": "b", "lower": true}]}]"#,
        r#"[{"any_of": [{"header": "a"}, {"header": "b"}]}, {"header": "c"}]"#,
        r#"[{"any_of": [{"header": "a"}, {"header": "b"}, {"header": "c"}]}]"#,
        r#"[{"header": "a"}, {"header": "b"}]"#,
    ];
    let rule = |(i, key)| {
        format!(r#"{{"name": "r{i}", "key": {key}, "quotas": [{{"limit": 1, "window": "1m"}}]}}"#)
    };
    let rules: Vec<String> = keys.iter().enumerate().map(rule).collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
    assert_eq!(policy.groups().len(), keys.len());
}

#[test]
fn lower_counts_the_letters_of_ascii_in_either_case_as_one() {
    let claimed = |sub| Request { claims: vec![("sub", sub)], ..at("/") };
    let described = |value| Request { entries: vec![("user", value)], ..at("/") };
    let captures =
        r#""when": {"paths": ["/u/{id}/**"]}, "key": [{"path_param": "id", "lower": true}]"#;
    let marked = |value| Request { metadata: vec![("f/id", value)], ..at("/") };
    let rows: [(&str, Request, Request, Request); 7] = [
        (
            r#""key": [{"metadata": ["f", "id"], "lower": true}]"#,
            marked("Acme"),
            marked("aCME"),
            marked("acm\u{c9}"),
        ),
        (
            r#""key": [{"header": "x-user", "lower": true}]"#,
            at("/").header("x-user", "Alice \u{c9}"),
            at("/").header("x-user", "aLICE \u{c9}"),
            at("/").header("x-user", "alice \u{e9}"), // not ASCII: unchanged
        ),
        (
            r#""key": [{"cookie": "sid", "lower": true}]"#,
            at("/").header("cookie", "sid=aB"),
            at("/").header("cookie", "SID=x; sid=AB"),
            at("/").header("cookie", "sid=[b"), // not a letter
        ),
        (
            r#""key": [{"query": "k", "lower": true}]"#,
            at("/?k=A%41"),
            at("/?k=%61a"),
            at("/?k=a%C3%81"),
        ),
        (captures, at("/u/Bob/1"), at("/u/bOB/2"), at("/u/b%C3%96b")),
        (
            r#""key": [{"jwt_claim": "sub", "lower": true}]"#,
            claimed("A@x"),
            claimed("a@X"),
            claimed("a`x"),
        ),
        (
            r#""key": [{"descriptor": "user", "lower": true}]"#,
            described("U"),
            described("u"),
            described("\u{dc}"),
        ),
    ];
    for (key, first, same, other) in rows {
        let is_descriptor = key.contains("descriptor");
        let surface = if is_descriptor { Surface::Server } else { Surface::Envoy };
        let jwt = if is_descriptor { "" } else { r#""jwt": {"metadata": "payload"}, "# };
        let document = rule(key).replace(r#""rules""#, &format!(r#"{jwt}"rules""#));
        let mut surface = Surfaced::on(&document, surface);
        assert_eq!(surface.check(&first, 0).answer, Disposition::Allow, "{key}");
        assert_eq!(surface.check(&same, 0).answer, DENIED, "{key}: in other letters");
        assert_eq!(surface.check(&other, 0).answer, Disposition::Allow, "{key}: another value");
    }
}

/// Origins differ in the value that they use, also where the values differ in their letters only.
#[test]
fn values_are_compared_before_they_are_in_lower_case() {
    let mut surface = Surfaced::new(&rule(r#""key": [{"header": "x-user", "lower": true}]"#));
    let twice = at("/").header("x-user", "A").header("x-user", "a");
    assert_eq!(surface.check(&twice, 0).answer, Disposition::Deny { status: 400 });
}

/// `lower` is a part of the definition of a key.
#[test]
fn lower_is_another_group() {
    let document = r#"{"version": 1, "rules": [
        {"name": "a", "key": [{"header": "x"}], "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "b", "key": [{"header": "x", "lower": true}], "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "c", "key": [{"header": "x", "lower": false}], "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    let policy = tollgate_language::compile(document, Surface::Envoy).unwrap();
    let groups: Vec<usize> = policy.rules().iter().map(tollgate_policy::Rule::group).collect();
    assert_eq!(groups, [0, 1, 0]);
}

#[test]
fn a_key_part_groups_addresses_by_its_own_prefixes() {
    let wide = r#"{"client_ip": {"ipv6_prefix": 48}}"#;
    let quotas = |limit| format!(r#""quotas": [{{"limit": {limit}, "window": "1m"}}]"#);
    let document = format!(
        r#"{{"version": 1, "rules": [
            {{"name": "home", "key": ["client_ip"], {}}},
            {{"name": "site", "key": [{wide}], {}}}]}}"#,
        quotas(2),
        quotas(3)
    );
    let mut surface = Surfaced::new(&document);
    let mut check = |ip: &str| surface.check(&get("/", ip), 0).answer;
    for (ip, expected) in [
        ("2001:db8:0:1::1", Disposition::Allow),
        ("2001:db8:0:1:9::9", Disposition::Allow),
        ("2001:db8:0:1::1", DENIED), // its /64 has 2
        ("2001:db8:0:2::1", Disposition::Allow),
        ("2001:db8:0:3::1", DENIED), // its /48 has 3
        ("2001:db8:1:3::1", Disposition::Allow),
        ("192.0.2.1", Disposition::Allow),
        ("192.0.2.2", Disposition::Allow), // the other family keeps the document's prefix
    ] {
        assert_eq!(check(ip), expected, "{ip}");
    }
}

#[test]
fn a_tier_by_address_means_the_network_of_the_key() {
    let mut surface = Surfaced::new(&rule(
        r#""key": [{"client_ip": {"ipv6_prefix": 48}}], "tiers": [{"name": "office",
            "key_values": ["2001:db8:0:7::1"], "quotas": [{"limit": 9, "window": "1m"}]}]"#,
    ));
    let seen = surface.check(&get("/", "2001:db8:0:8::1"), 0);
    assert_eq!(seen.header("ratelimit-policy"), Some(r#""r";q=9;w=60"#));
}

/// A prefix that the document has, too, is not a setting of its own: moved from one place to the
/// other it keeps every count.
#[test]
fn a_prefix_has_one_identity_wherever_it_is_written() {
    let identities = |head: &str, keys: &[&str]| -> Vec<u64> {
        let rule = |(i, key)| {
            format!(
                r#"{{"name": "r{i}", "key": [{key}], "quotas": [{{"limit": 1, "window": "1m"}}]}}"#
            )
        };
        let rules: Vec<String> = keys.iter().enumerate().map(rule).collect();
        let document = format!(r#"{{"version": 1, {head} "rules": [{}]}}"#, rules.join(","));
        let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
        policy.groups().iter().map(tollgate_policy::Group::identity).collect()
    };
    const PLAIN: &str = r#""client_ip""#;
    const WIDE: &str = r#"{"client_ip": {"ipv6_prefix": 48}}"#;
    const USUAL: &str = r#"{"client_ip": {"ipv4_prefix": 32, "ipv6_prefix": 64}}"#;
    let usual = identities("", &[PLAIN, USUAL, r#"{"client_ip": {"ipv6_prefix": 64}}"#]);
    assert_eq!(usual.len(), 1, "one group");
    let wide = identities("", &[WIDE]);
    assert_ne!(usual, wide);
    let by_document = r#""client_ip": {"ipv6_prefix": 48},"#;
    assert_eq!(identities(by_document, &[PLAIN, WIDE]), wide);
    assert_eq!(identities(by_document, &[USUAL]), usual);
    assert_eq!(identities("", &[PLAIN, WIDE]), [usual, wide].concat());
}

#[test]
fn a_shadow_is_counted_and_never_heard() {
    let mut surface = Surfaced::new(&rule(r#""mode": "shadow""#));
    for _ in 0..3 {
        let seen = surface.check(&at("/"), 0);
        assert_eq!((seen.answer, seen.headers), (Disposition::Allow, vec![]));
    }
    let results: Vec<_> = surface.plan.outcome(&surface.policy).rules().collect();
    assert_eq!(results, [(0, RuleResult::Shadowed)]);
}

/// The clients, of a thousand, for which a rule of this name and mode is enforced with this secret
/// of the surface.
fn enforced(name: &str, mode: &str, secret: Option<[u8; 16]>) -> Vec<u32> {
    let document = rule(&format!(r#""mode": {mode}"#))
        .replace(r#""name": "r""#, &format!(r#""name": "{name}""#));
    let mut surface = Surfaced::new(&document);
    if let Some(secret) = secret {
        surface.policy.set_hash_key(secret);
    }
    let mut is_enforced = |i: &u32| {
        let request = get("/", &format!("10.0.{}.{}", i / 250, i % 250));
        surface.check(&request, 0);
        surface.check(&request, 0).answer == DENIED
    };
    (0..1000).filter(|i| is_enforced(i)).collect()
}

#[test]
fn a_percentage_of_keys_is_enforced_and_always_the_same() {
    let salted = |salt: &str| format!(r#"{{"enforce_percent": 30, "salt": "{salt}"}}"#);
    let (one, other) = (salted("sixteen letters."), salted("another salt, no guess"));
    let first = enforced("a", &one, None);
    assert!((250..350).contains(&first.len()), "{}", first.len());
    assert_eq!(first, enforced("a", &one, None));
    assert_eq!(first, enforced("a", &one, Some([7; 16])), "the salt is the same on every surface");
    // Of 30 % of 30 % there are about 90 in both, whatever their other properties.
    let shared = |theirs: &[u32]| first.iter().filter(|i| theirs.contains(i)).count();
    for theirs in [
        enforced("b", &one, None),
        enforced("a", &other, None),
        enforced("a", UNSALTED, Some([7; 16])),
    ] {
        assert!((250..350).contains(&theirs.len()) && (40..150).contains(&shared(&theirs)));
    }
}

const UNSALTED: &str = r#"{"enforce_percent": 30}"#;

/// Without a salt the surface's secret chooses; where there is none, the rule is enforced for all.
#[test]
fn without_a_salt_the_secret_of_the_surface_chooses() {
    let first = enforced("a", UNSALTED, Some([7; 16]));
    assert_eq!(first, enforced("a", UNSALTED, Some([7; 16])));
    assert_ne!(first, enforced("a", UNSALTED, Some([8; 16])));
    assert_eq!(enforced("a", UNSALTED, None).len(), 1000);
    assert_eq!(enforced("a", r#"{"enforce_percent": 0}"#, None).len(), 0);
    for secret in [None, Some([7; 16])] {
        assert_eq!(enforced("a", r#"{"enforce_percent": 100}"#, secret).len(), 1000);
    }
}

#[test]
fn actions() {
    let after_one = |action: &str| {
        let mut surface = Surfaced::new(&rule(&format!(r#""action": {action}"#)));
        surface.check(&at("/"), 0);
        surface.check(&at("/"), 0)
    };
    assert_eq!(after_one(r#""deny""#).answer, DENIED);
    let own = after_one(r#"{"deny": {"status": 503, "body": "busy"}}"#);
    assert_eq!(own.answer, Disposition::Deny { status: 503 });
    assert_eq!(
        (own.header("content-type"), own.body.as_deref()),
        (Some("text/plain"), Some("busy"))
    );
    assert_eq!(own.header("retry-after"), Some("60"));
    let marked = after_one(r#"{"mark": {"header": "X-Over", "value": "yes"}}"#);
    assert_eq!(marked.answer, Disposition::Allow);
    assert_eq!(marked.marks, [("x-over".to_string(), "yes".to_string())]);
    let silent = after_one(r#"{"respond": {"status": 200, "body": "ok"}}"#);
    assert_eq!(silent.answer, Disposition::Deny { status: 200 });
    assert_eq!(silent.body.as_deref(), Some("ok"));
    assert_eq!(
        silent.headers,
        [("content-type", "text/plain".to_string()), ("cache-control", "no-store".to_string())]
    );
}

// Envoy would send a body with any status, and no content type without a body; the Worker's runtime
// the other way round.
#[test]
fn there_is_a_content_type_if_and_only_if_there_is_a_body() {
    for (action, body) in [
        (r#"{"respond": {"status": 200, "body": ""}}"#, ""),
        (r#"{"respond": {"status": 200}}"#, ""),
        (r#"{"respond": {"status": 204, "body": "lost"}}"#, ""),
        (r#"{"deny": {"status": 503, "body": ""}}"#, ""),
        (r#"{"deny": {"status": 503, "body": "busy"}}"#, "busy"),
        (r#"{"deny": {"status": 204}}"#, ""),
        (r#"{"deny": {"status": 205, "body": "lost"}}"#, ""),
        (r#"{"deny": {"status": 304}}"#, ""),
    ] {
        let mut surface = Surfaced::new(&rule(&format!(r#""action": {action}"#)));
        surface.check(&at("/"), 0);
        let denied = surface.check(&at("/"), 0);
        assert_eq!(denied.body.as_deref(), Some(body), "{action}");
        let expected = (!body.is_empty()).then_some("text/plain");
        assert_eq!(denied.header("content-type"), expected, "{action}");
    }
}

#[test]
fn a_denial_beside_a_missing_part_says_what_is_missing() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
            {"name": "quota", "key": [], "quotas": [{"limit": 1, "window": "1m"}]},
            {"name": "part", "when": {"methods": ["PUT"]}, "key": [{"header": "x-k"}], "on_missing": "deny",
             "quotas": [{"limit": 1, "window": "1m"}]}]}"#,
    );
    assert_eq!(surface.check(&at("/"), 0).answer, Disposition::Allow);
    let denied = surface.check(&at("/").method("PUT"), 0);
    assert_eq!((denied.answer, denied.header("retry-after")), (DENIED, None));
    assert!(denied.body.unwrap().contains("the request lacks what its quota is counted by"));
}

/// Guards: a rule that requires a credential by its key, and cannot respond with 401 to a client
/// without one.
#[test]
fn a_missing_part_is_answered_as_the_rule_answers() {
    let missing = r#""key": [{"header": "x-k"}], "on_missing": "deny", "action": "#;
    for (action, status, body) in [
        (r#"{"deny": {"status": 401, "body": "send x-k"}}"#, 401, Some("send x-k")),
        (r#"{"deny": {"status": 401, "body": ""}}"#, 401, Some("")),
        (r#"{"deny": {"status": 403}}"#, 403, None),
        (r#"{"respond": {"status": 404, "body": "nothing"}}"#, 404, Some("nothing")),
        (r#"{"delay": {"max": "2s"}}"#, 429, None),
        (r#""deny""#, 429, None),
    ] {
        let mut surface = Surfaced::new(&rule(&format!("{missing}{action}")));
        let denied = surface.check(&at("/"), 0);
        assert_eq!(denied.answer, Disposition::Deny { status }, "{action}");
        assert_eq!(denied.header("retry-after"), None, "{action}");
        let said = denied.body.as_deref().unwrap();
        let problem = format!("\"status\":{status},\"detail\":\"the request lacks what its quota");
        match body {
            Some(body) => assert_eq!(said, body, "{action}"),
            None => assert!(said.contains(&problem), "{action}: {said}"),
        }
        let kind = match body {
            Some("") => None,
            Some(_) => Some("text/plain"),
            None => Some("application/problem+json"),
        };
        assert_eq!(denied.header("content-type"), kind, "{action}");
    }
}

#[test]
fn a_request_waits_as_long_as_the_action_lets_it() {
    let mut surface = Surfaced::new(&rule(
        r#""action": {"delay": {"max": "2s"}}, "quotas": [{"limit": 1, "window": "1500ms"}]"#,
    ));
    assert_eq!(surface.check(&at("/"), 0).answer, Disposition::Allow);
    assert_eq!(surface.check(&at("/"), 0).answer, Disposition::Retry(Span::from_millis(1500)));
    surface.waited = Span::from_millis(1500);
    assert_eq!(surface.check(&at("/"), 1500).answer, Disposition::Allow);
    // The final count: the rule delayed it, unless it did not wait.
    for (waited, result) in [(0, RuleResult::Allowed), (1500, RuleResult::Delayed)] {
        let outcome = surface.plan.outcome(&surface.policy);
        let results: Vec<_> = outcome.rules_after(Span::from_millis(waited)).collect();
        assert_eq!(results, [(0, result)]);
    }
    assert_eq!(
        surface.check(&at("/"), 1500).answer,
        DENIED,
        "1500 ms more are more than 2 s in all"
    );
}

#[test]
fn a_queue_delays_up_to_its_length_and_no_longer_than_the_action_says() {
    let quotas =
        r#""quotas": [{"limit": 1, "window": "1s", "burst": 4, "algorithm": "leaky-queue"}]"#;
    let mut surface = Surfaced::new(&rule(quotas));
    let answers: Vec<_> = (0..5).map(|_| surface.check(&at("/"), 0).answer).collect();
    let delay = |secs| Disposition::Delay(Span::from_secs(secs));
    assert_eq!(answers, [Disposition::Allow, delay(1), delay(2), delay(3), DENIED]);
    let mut bounded =
        Surfaced::new(&rule(&format!(r#"{quotas}, "action": {{"delay": {{"max": "1s"}}}}"#)));
    let answers: Vec<_> = (0..3).map(|_| bounded.check(&at("/"), 0).answer).collect();
    assert_eq!(answers, [Disposition::Allow, delay(1), DENIED]);
    assert_eq!(bounded.check(&at("/"), 0).header("retry-after"), Some("1"));
    assert_eq!(bounded.check(&at("/"), 1000).answer, delay(1));
}

// Guards: a rule that only observes, while metrics and logs report that it delayed requests.
#[test]
fn a_shadow_delays_nobody_and_does_not_say_so() {
    let queue = r#"{"limit": 1, "window": "1s", "burst": 4, "algorithm": "leaky-queue"}"#;
    let mut surface = Surfaced::new(&rule(&format!(r#""mode": "shadow", "quotas": [{queue}]"#)));
    for result in [RuleResult::Allowed, RuleResult::Shadowed] {
        assert_eq!(surface.check(&at("/"), 0).answer, Disposition::Allow);
        let outcome = surface.plan.outcome(&surface.policy);
        let said = outcome.decisions().next().unwrap();
        assert_eq!(said.result, result);
        assert_eq!(said.said_by(), (result == RuleResult::Shadowed).then_some(0));
    }
    // Another rule delayed the request.
    let delay = r#""key": [], "action": {"delay": {"max": "2s"}}"#;
    let mut surface = Surfaced::new(&format!(
        r#"{{"version": 1, "rules": [
            {{"name": "slow", {delay}, "quotas": [{{"limit": 1, "window": "1s"}}]}},
            {{"name": "watch", "mode": "shadow", {delay}, "quotas": [{{"limit": 9, "window": "1s"}}]}}]}}"#
    ));
    surface.check(&at("/"), 0);
    surface.check(&at("/"), 1000);
    let outcome = surface.plan.outcome(&surface.policy);
    let waited = Span::from_secs(1);
    let expected = [(0, RuleResult::Delayed), (1, RuleResult::Allowed)];
    assert_eq!(outcome.rules_after(waited).collect::<Vec<_>>(), expected);
    let decided = outcome.decisions_after(waited).map(|it| (it.rule, it.result));
    assert_eq!(decided.collect::<Vec<_>>(), expected);
}

#[test]
fn a_rule_that_marks_or_shadows_refuses_nothing_for_others() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
            {"name": "soft", "key": [], "action": {"mark": {"header": "x-m", "value": "1"}}, "quotas": [{"limit": 1, "window": "1m"}]},
            {"name": "shadow", "key": [], "mode": "shadow", "quotas": [{"limit": 1, "window": "1m"}]},
            {"name": "hard", "key": [], "quotas": [{"limit": 3, "window": "1m"}]}]}"#,
    );
    let answers: Vec<_> = (0..4).map(|_| surface.check(&at("/"), 0).answer).collect();
    assert_eq!(answers, [Disposition::Allow, Disposition::Allow, Disposition::Allow, DENIED]);
    assert_eq!(surface.store.len(), 1, "rules with the same key are one stored value");
}

#[test]
fn response_settings() {
    let first_and_denied = |response: &str| {
        let document =
            rule("").replace(r#""rules""#, &format!(r#""response": {response}, "rules""#));
        let mut surface = Surfaced::new(&document);
        (surface.check(&at("/"), 0).headers, surface.check(&at("/"), 0))
    };
    let pairs = |headers: &[(&'static str, String)]| {
        headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    let (first, denied) = first_and_denied(r#"{"headers": "draft-7"}"#);
    assert_eq!(
        pairs(&first),
        ["ratelimit-policy: 1;w=60", "ratelimit: limit=1, remaining=0, reset=60"]
    );
    assert_eq!(denied.header("ratelimit"), Some("limit=1, remaining=0, reset=60"));
    let (first, _) = first_and_denied(r#"{"headers": "draft-6"}"#);
    assert_eq!(
        pairs(&first),
        [
            "ratelimit-policy: 1;w=60",
            "ratelimit-limit: 1",
            "ratelimit-remaining: 0",
            "ratelimit-reset: 60"
        ]
    );
    let (first, _) = first_and_denied(r#"{"headers": "x-ratelimit"}"#);
    assert_eq!(
        pairs(&first),
        ["x-ratelimit-limit: 1", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 60"]
    );
    let (first, denied) = first_and_denied(r#"{"headers": "off"}"#);
    assert!(first.is_empty());
    assert_eq!(denied.header("retry-after"), Some("60"));
    for headers in ["draft-11", "draft-7", "draft-6"] {
        let response = |more: &str| format!(r#"{{"headers": "{headers}"{more}}}"#);
        let (mut with, mut denied_with) = first_and_denied(&response(""));
        let (first, denied) = first_and_denied(&response(r#", "policy": false"#));
        let is_other = |(name, _): &(&str, String)| *name != "ratelimit-policy";
        with.retain(is_other);
        denied_with.headers.retain(is_other);
        assert_eq!((&first, &denied.headers), (&with, &denied_with.headers), "{headers}");
    }
    let (first, denied) = first_and_denied(r#"{"on_allow": false}"#);
    assert!(first.is_empty());
    assert!(denied.header("ratelimit").is_some());
    let (_, denied) = first_and_denied(r#"{"body": "text"}"#);
    assert_eq!(
        (denied.header("content-type"), denied.body.as_deref()),
        (Some("text/plain"), Some("try again in 60 seconds\n"))
    );
    let (_, denied) = first_and_denied(r#"{"body": "none"}"#);
    assert_eq!((denied.header("content-type"), denied.body.as_deref()), (None, Some("")));
    let (first, _) = first_and_denied(r#"{"partition_key": true}"#);
    assert!(
        first[0].1.starts_with(r#""r";q=1;w=60;pk=:"#) && first[0].1.ends_with("=:"),
        "{first:?}"
    );
}

#[test]
fn jitter_only_makes_waits_longer() {
    let document = rule("").replace(r#""rules""#, r#""response": {"jitter": "30s"}, "rules""#);
    let mut surface = Surfaced::new(&document);
    let waits: Vec<u64> = (0..100)
        .map(|i| {
            let request = get("/", &format!("10.0.0.{i}"));
            surface.check(&request, 0);
            let denied = surface.check(&request, 0);
            let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
            assert_eq!(denied.header("ratelimit"), Some(format!(r#""r";r=0;t={wait}"#).as_str()));
            assert!(denied.body.unwrap().contains(&format!("try again in {wait} seconds")));
            wait
        })
        .collect();
    assert!(waits.iter().all(|wait| (60..=90).contains(wait)), "{waits:?}");
    assert!(waits.iter().collect::<std::collections::BTreeSet<_>>().len() > 10, "{waits:?}");
}

#[test]
fn a_header_that_nobody_vouches_for_is_warned_about() {
    let warnings = |client_ip: &str| {
        let document =
            rule("").replace(r#""rules""#, &format!(r#""client_ip": {client_ip}, "rules""#));
        Surfaced::new(&document).policy.warnings().to_string()
    };
    const WARNING: &str = "client_ip: trusts the header from any sender; give trusted_proxies";
    let source = r#""source": {"header": "x-real-ip"}"#;
    let not_believed = warnings(&format!("{{{source}}}"));
    assert!(not_believed.starts_with("client_ip: trusts no proxy"), "{not_believed}");
    // A header with one address has no list in which hops could be counted.
    assert_eq!(warnings(&format!(r#"{{{source}, "trusted_hops": 1}}"#)), WARNING);
    assert_eq!(warnings(&format!(r#"{{{source}, "trusted_proxies": ["10.0.0.1"]}}"#)), "");
}

#[test]
fn a_grpc_client_is_told_the_truth_or_nothing() {
    let told = |action: &str, refuse: fn(&mut Surfaced)| {
        let mut surface =
            Surfaced::new(&rule(&format!(r#""action": {action}, "on_failure": "deny""#)));
        surface.check(&get("/", "10.0.0.1"), 0);
        refuse(&mut surface);
        let outcome = surface.plan.outcome(&surface.policy);
        let mut fields = Vec::new();
        outcome.grpc_headers("application/grpc", &mut |name, value| {
            fields.push(format!("{name}: {value}"));
        });
        let status = outcome.grpc();
        (status.code, status.message, fields)
    };
    let quota: fn(&mut Surfaced) = |surface| {
        surface.check(&get("/", "10.0.0.1"), 0);
    };
    let failure: fn(&mut Surfaced) =
        |surface| surface.plan.partition_mut(0).unwrap().fail(Failure::Unreachable);

    let exhausted = "quota exceeded: r; retry in 60 s";
    for action in [r#""deny""#, r#"{"deny": {"status": 503, "body": "busy"}}"#] {
        let (code, message, fields) = told(action, quota);
        assert_eq!((code, message.as_str()), (8, exhausted), "{action}");
        assert_eq!(
            fields,
            [
                "cache-control: no-store",
                "retry-after: 60",
                r#"ratelimit-policy: "r";q=1;w=60"#,
                r#"ratelimit: "r";r=0;t=60"#,
                "content-type: application/grpc",
                "grpc-status: 8",
                "grpc-message: quota exceeded: r; retry in 60 s",
            ],
            "{action}"
        );
    }
    let (code, message, _) = told(r#""deny""#, failure);
    assert_eq!((code, message.as_str()), (14, "the rate limiter cannot decide at the moment"));

    let silent = ["cache-control: no-store", "content-type: application/grpc"];
    let (code, message, fields) = told(r#"{"respond": {"status": 200, "body": "ok"}}"#, quota);
    assert_eq!((code, message.as_str()), (0, ""));
    assert_eq!(fields, [&silent[..], &["grpc-status: 0"]].concat());
    let (code, message, fields) = told(r#"{"respond": {"status": 404, "body": "100 %"}}"#, quota);
    assert_eq!((code, message.as_str()), (12, "100 %"));
    assert_eq!(fields, [&silent[..], &["grpc-status: 12", "grpc-message: 100 %25"]].concat());
}
