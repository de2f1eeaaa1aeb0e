//! One value has one count: whatever surrounds it, however often it is given, and wherever it is
//! read.
//!
//! Invariant: with limit 1, of all the spellings that an origin takes for one credential exactly
//! one request is allowed; a request whose values differ is denied with 400, unless the policy
//! specifies which is meant.

use tollgate_policy::{Disposition, Surface};

use crate::support::{Request, Surfaced, get};

const PASS: Disposition = Disposition::Allow;
const DENIED: Disposition = Disposition::Deny { status: 429 };
const BAD: Disposition = Disposition::Deny { status: 400 };

fn at(target: &str) -> Request {
    get(target, "192.0.2.1")
}

/// One rule, limit 1 unless `rule` contains another.
fn document(head: &str, rule: &str) -> String {
    let quotas = r#""quotas": [{"limit": 1, "window": "1m"}]"#;
    format!(r#"{{"version": 1, {head} "rules": [{{"name": "r", {rule}, {quotas}}}]}}"#)
}

/// A document whose rule counts by this part.
fn counting(part: &str) -> String {
    document(r#""jwt": {"metadata": "payload"},"#, &format!(r#""key": [{part}]"#))
}

/// Every spelling of white space round a value, of up to three bytes: 51 with the value itself.
fn padded(value: &str) -> Vec<String> {
    let outer = ["", " ", "\t", "  ", " \t", "\t ", "\t\t"];
    let both = outer.iter().flat_map(|left| outer.map(|right| format!("{left}{value}{right}")));
    both.chain([format!("{value}   "), format!("   {value}")]).collect()
}

#[track_caller]
fn one_count(document: &str, requests: impl IntoIterator<Item = Request>) {
    let mut surface = Surfaced::new(document);
    let answers: Vec<Disposition> =
        requests.into_iter().map(|request| surface.check(&request, 0).answer).collect();
    assert!(answers.len() > 1);
    assert_eq!(answers[0], PASS);
    assert!(answers[1..].iter().all(|answer| *answer == DENIED), "{document}: {answers:?}");
}

#[test]
fn white_space_round_a_value_is_no_new_key() {
    let values = padded("secret");
    assert_eq!(values.len(), 51);
    let headers = values.iter().map(|value| at("/").header("x-api-key", value));
    one_count(&counting(r#"{"header": "x-api-key"}"#), headers);
    let cookies = values.iter().map(|value| at("/").header("cookie", format!("sid={value}; a=b")));
    one_count(&counting(r#"{"cookie": "sid"}"#), cookies);
    let countries = padded("DE");
    let geo = r#""geo": {"country_header": "x-country"},"#;
    let countries = countries.iter().map(|value| at("/").header("x-country", value));
    one_count(&document(geo, r#""key": ["country"]"#), countries);
    let addresses = padded("203.0.113.9");
    let real_ip =
        r#""client_ip": {"source": {"header": "x-real-ip"}, "trusted_proxies": ["192.0.2.1"]},"#;
    let addresses = addresses.iter().map(|value| at("/").header("x-real-ip", value));
    one_count(&document(real_ip, r#""key": ["client_ip"]"#), addresses);
}

#[test]
fn lines_commas_and_empty_elements_are_no_new_key() {
    let line = |lines: &[&str]| lines.iter().fold(at("/"), |r, line| r.header("x-api-key", line));
    one_count(
        &counting(r#"{"header": "x-api-key"}"#),
        [
            line(&["secret"]),
            line(&["secret", "secret"]),
            line(&["secret, secret"]),
            line(&["secret,"]),
            line(&[",, secret ,"]),
            line(&["", "secret"]),
            line(&["secret", " "]),
        ],
    );
    one_count(
        &counting(r#"{"query": "k"}"#),
        [at("/?k=a%20b"), at("/?%6b=a+b"), at("/?k=a+b&k=a%20b"), at("/?x&k=%61%20b#k=c")],
    );
    let cookie = |lines: &[&str]| lines.iter().fold(at("/"), |r, line| r.header("cookie", line));
    one_count(
        &counting(r#"{"cookie": "sid"}"#),
        [
            cookie(&["sid=abc"]),
            cookie(&["sid=abc;sid=abc"]),
            cookie(&["sid=abc", "sid=abc"]),
            cookie(&["sid=\"abc\""]),
            cookie(&["sid=%61bc"]),
            cookie(&["sid=\"\\141bc\""]),
            cookie(&["a=b", "sid = abc"]),
        ],
    );
    let authorization = |value: &str| at("/").header("authorization", value);
    let key = counting(r#"{"header": "authorization"}"#);
    let bearer = ["Bearer t", "bearer t", "BEARER\tt", "Bearer   t", "Bearer t, Bearer t"];
    one_count(&key, bearer.map(authorization));
    let basic = ["Basic dTpwcA==", "Basic dTpwcA", "basic dTpwcB==", "Basic\tdTpwcC="];
    one_count(&key, basic.map(authorization));
}

#[test]
fn values_that_differ_are_refused_unless_the_policy_says_which() {
    let twice = [
        (r#"{"header": "x-api-key"#, at("/").header("x-api-key", "a").header("x-api-key", "b")),
        (r#"{"header": "x-api-key"#, at("/").header("x-api-key", "a, b")),
        (r#"{"query": "k"#, at("/?k=a&k=b")),
        (r#"{"cookie": "sid"#, at("/").header("cookie", "sid=a; sid=b")),
    ];
    for (part, request) in twice {
        let alone = |value: &str| {
            let cookie = format!("sid={value}");
            at(&format!("/?k={value}")).header("x-api-key", value).header("cookie", cookie)
        };
        for (how, a, b) in [
            (r#""}"#, None, None),
            (r#"", "repeated": "refuse"}"#, None, None),
            (r#"", "repeated": "first"}"#, Some(DENIED), Some(PASS)),
            (r#"", "repeated": "last"}"#, Some(PASS), Some(DENIED)),
            (r#"", "repeated": "join"}"#, Some(PASS), Some(PASS)),
        ] {
            let mut surface = Surfaced::new(&counting(&format!("{part}{how}")));
            let seen = surface.check(&request, 0).answer;
            assert_eq!(seen, if a.is_none() { BAD } else { PASS }, "{part}{how}");
            if let (Some(a), Some(b)) = (a, b) {
                assert_eq!(surface.check(&request, 0).answer, DENIED, "{part}{how}");
                assert_eq!(surface.check(&alone("a"), 0).answer, a, "{part}{how}: a");
                assert_eq!(surface.check(&alone("b"), 0).answer, b, "{part}{how}: b");
            }
        }
        let document = counting(&format!(r#"{part}"}}"#));
        let first = document.replace(r#""version": 1,"#, r#""version": 1, "repeated": "first","#);
        assert_eq!(Surfaced::new(&first).check(&request, 0).answer, PASS, "the document's default");
    }
}

// Their honest values have commas; whatever the document's default is, these are one value.
#[test]
fn a_header_that_is_a_list_is_joined() {
    let agent = |value: &str| at("/").header("user-agent", value);
    let key = counting(r#"{"header": "user-agent"}"#);
    let spellings = ["A (b, c)", "A (b,c)", " A (b ,\tc)"].map(agent);
    one_count(&key, spellings.clone());
    one_count(
        &key.replace(r#""version": 1,"#, r#""version": 1, "repeated": "refuse","#),
        spellings,
    );
    let mut surface = Surfaced::new(&counting(r#"{"header": "user-agent", "repeated": "refuse"}"#));
    assert_eq!(surface.check(&agent("A (b, c)"), 0).answer, BAD);
}

#[test]
fn what_http_forbids_in_a_value_is_no_new_key() {
    for value in ["secret\x0b", "\x01secret", "sec\x7fret", "secret\x1f"] {
        let mut surface = Surfaced::new(&counting(r#"{"header": "x-api-key"}"#));
        let request = at("/").header("x-api-key", value);
        assert_eq!(surface.check(&request, 0).answer, BAD, "{value:?}");
    }
}

// Which of two addresses is right is unknown: the client is the one known to have connected.
#[test]
fn a_client_with_two_addresses_is_the_connection() {
    let head =
        r#""client_ip": {"source": {"header": "x-real-ip"}, "trusted_proxies": ["192.0.2.1"]},"#;
    let lines = |a: &str, b: &str| at("/").header("x-real-ip", a).header("x-real-ip", b);
    let mut surface = Surfaced::new(&document(head, r#""key": ["client_ip"]"#));
    assert_eq!(surface.check(&lines("203.0.113.9", "::ffff:203.0.113.9"), 0).answer, PASS);
    assert_eq!(surface.check(&at("/").header("x-real-ip", "203.0.113.9"), 0).answer, DENIED);
    assert_eq!(surface.check(&lines("203.0.113.9", "192.0.2.9"), 0).answer, PASS);
    assert_eq!(surface.check(&lines("192.0.2.9", "192.0.2.77"), 0).answer, DENIED);
    assert_eq!(surface.check(&at("/"), 0).answer, DENIED, "all of these are one");
}

// The rule applies if any value matches; it exempts only if every value that the origin may take
// matches.
#[test]
fn conditions_hold_for_any_value_and_let_off_only_for_all() {
    let plan = |value: &str| at("/").header("x-plan", value);
    for (request, when, unless) in [
        (plan("gold"), true, true),
        (plan(" gold\t"), true, true),
        (plan("gold,gold"), true, true),
        (plan("free, gold"), true, false),
        (plan("gold, free"), true, false),
        (plan("free"), false, false),
        (at("/"), false, false),
    ] {
        let applies = |field: &str| {
            let rule = format!(r#""key": [], "{field}": {{"headers": {{"x-plan": "gold"}}}}"#);
            !Surfaced::new(&document("", &rule)).check(&request, 0).headers.is_empty()
        };
        assert_eq!(applies("when"), when, "when: {request:?}");
        assert_eq!(!applies("unless"), unless, "unless: {request:?}");
        let exempt = r#""exempt": [{"headers": {"x-plan": "gold"}}],"#;
        let seen = Surfaced::new(&document(exempt, r#""key": []"#)).check(&request, 0);
        assert_eq!(seen.headers.is_empty(), unless, "exempt: {request:?}");
    }
    let query = r#""key": [], "unless": {"query": {"internal": "1"}}"#;
    for (target, is_let_off) in [("/?internal=1", true), ("/?internal=1&internal=0", false)] {
        let seen = Surfaced::new(&document("", query)).check(&at(target), 0);
        assert_eq!(seen.headers.is_empty(), is_let_off, "{target}");
    }
}

// With more than one plan a client would choose the tier, and the origin another plan.
#[test]
fn a_tier_is_for_one_value() {
    let tier = |repeated: &str| {
        document(
            "",
            &format!(
                r#""key": [{{"header": "x-key"}}], "tiers": [{{"name": "gold", {repeated}
                  "when": {{"headers": {{"x-plan": "gold"}}}}, "quotas": [{{"limit": 9, "window": "1m"}}]}}]"#
            ),
        )
    };
    for (repeated, plan, limit) in [
        ("", " gold\t", Some("9")),
        ("", "gold, gold", Some("9")),
        ("", "free", Some("1")),
        ("", "gold, free", None),
        (r#""repeated": "first","#, "gold, free", Some("9")),
        (r#""repeated": "last","#, "gold, free", Some("1")),
        (r#""repeated": "join","#, "gold, free", Some("1")),
    ] {
        let request = at("/").header("x-key", "k").header("x-plan", plan);
        let seen = Surfaced::new(&tier(repeated)).check(&request, 0);
        let expected = limit.map(|limit| format!("\"r\";q={limit};w=60"));
        assert_eq!(seen.header("ratelimit-policy"), expected.as_deref(), "{repeated} {plan}");
        assert_eq!(seen.answer == BAD, limit.is_none(), "{repeated} {plan}");
    }
    // Another key's tier does not affect this one.
    let of_key = tier("").replace(r#""when""#, r#""key_values": ["other"], "when""#);
    let request = at("/").header("x-key", "k").header("x-plan", "gold, free");
    assert_eq!(Surfaced::new(&of_key).check(&request, 0).answer, PASS);
    let known =
        tier("").replace(r#""when": {"headers": {"x-plan": "gold"}}"#, r#""key_values": ["k"]"#);
    let request = at("/").header("x-key", "\tk ");
    let seen = Surfaced::new(&known).check(&request, 0);
    assert_eq!(
        seen.header("ratelimit-policy"),
        Some("\"r\";q=9;w=60"),
        "the key without white space"
    );
}

#[test]
fn a_cost_is_one_number() {
    let cost = |repeated: &str| {
        document(
            "",
            &format!(r#""key": [], "cost": {{"header": "x-cost", "max": 1000{repeated}}}"#),
        )
        .replace(r#""limit": 1,"#, r#""limit": 1000,"#)
    };
    for (repeated, value, left) in [
        ("", "\t7 ", Some("993")),
        ("", "007", Some("993")),
        ("", "+7", Some("999")),
        ("", "7 7", Some("999")),
        ("", "7, 7", Some("993")),
        ("", "1, 7", None),
        (r#", "repeated": "first""#, "1, 7", Some("999")),
        (r#", "repeated": "last""#, "1, 7", Some("993")),
    ] {
        let seen = Surfaced::new(&cost(repeated)).check(&at("/").header("x-cost", value), 0);
        let field = seen.header("ratelimit").map(|field| field.split("r=").nth(1).unwrap());
        assert_eq!(field.map(|f| f.split(';').next().unwrap()), left, "{repeated} {value}");
        assert_eq!(seen.answer == BAD, left.is_none());
    }
    let joined = cost("").replace(r#""version": 1,"#, r#""version": 1, "repeated": "join","#);
    let request = at("/").header("x-cost", "1, 7");
    assert_eq!(Surfaced::new(&joined).check(&request, 0).answer, BAD, "a list is no number");
}

#[test]
fn two_tokens_that_differ_are_refused() {
    let jwt = r#""jwt": {"keys": [{"kty": "oct", "alg": "HS256", "k": "0123456789012345678901234567890123456789012"}]},"#;
    let document = document(jwt, r#""key": [{"jwt_claim": "sub"}]"#);
    for (value, answer, token) in [
        ("Bearer a", PASS, Some("a")),
        ("bearer\ta ", PASS, Some("a")),
        ("Bearer a, Bearer a", PASS, Some("a")),
        ("Bearer a, Bearer b", BAD, None),
    ] {
        let mut surface = Surfaced::on(&document, Surface::Worker);
        let request =
            Request { claims: vec![("sub", "somebody")], ..at("/").header("authorization", value) };
        let found = surface.policy.claims().unwrap().token(&request);
        assert_eq!(found.as_deref(), token.map(str::as_bytes), "{value}");
        assert_eq!(surface.check(&request, 0).answer, answer, "{value}");
    }
}

// A key's definition, and so its counts, is the same whether its default is written or not.
#[test]
fn only_an_unusual_mode_is_another_key() {
    let identity = |part: &str| Surfaced::new(&counting(part)).policy.groups()[0].identity();
    let plain = identity(r#"{"header": "x-k"}"#);
    assert_eq!(identity(r#"{"header": "x-k", "repeated": "refuse"}"#), plain);
    assert_ne!(identity(r#"{"header": "x-k", "repeated": "first"}"#), plain);
    let agent = identity(r#"{"header": "user-agent"}"#);
    assert_eq!(identity(r#"{"header": "user-agent", "repeated": "join"}"#), agent);
}
