//! The admin API over HTTP: every response to a wrong request, and that it changed nothing.

use crate::common::*;
use tollgate_service::{ApiResponse, Tokens};

/// Status and kind of problem.
fn problem(answer: &ApiResponse) -> (u16, String) {
    let is_problem = answer.fields.get("content-type") == Some("application/problem+json");
    assert!(is_problem && answer.fields.get("cache-control") == Some("no-store"), "{answer:?}");
    let document: serde_json::Value =
        serde_json::from_str(&answer.body).expect("a problem is JSON");
    assert_eq!(document["status"], answer.status, "{answer:?}");
    let kind = document["type"].as_str().expect("a type");
    let kind = kind.strip_prefix(tollgate_service::PROBLEM_TYPES).expect("ours");
    (answer.status, kind.to_owned())
}

/// Sends the request, and returns the response in words: a status and the type of a problem.
fn told(it: &Deployment, ask: &Ask) -> String {
    let answer = it.ask(ask);
    if answer.status < 400 {
        return answer.status.to_string();
    }
    let (status, kind) = problem(&answer);
    format!("{status} {kind}")
}

const ALL: &[(&str, &str)] = &[
    ("GET", "admin/policy"),
    ("HEAD", "admin/policy"),
    ("PUT", "admin/policy"),
    ("DELETE", "admin/policy"),
    ("GET", "admin/policy/history"),
    ("GET", "admin/policy/versions/1"),
    ("POST", "admin/policy/rollback"),
    ("GET", "admin/tenants"),
    ("GET", "admin/tenants/a"),
    ("PUT", "admin/tenants/a"),
    ("DELETE", "admin/tenants/a"),
    ("POST", "admin/explain"),
    ("GET", "admin/keys?rule=each&key=192.0.2.1"),
    ("GET", "admin/keys/history"),
    ("POST", "admin/keys/reset"),
    ("POST", "admin/keys/block"),
    ("POST", "admin/keys/unblock"),
    ("GET", "metrics"),
];

#[test]
fn who_has_which_token_may_do_what() {
    let it = Deployment::new();
    for (method, path) in ALL {
        let reads = matches!(*method, "GET" | "HEAD") || *path == "admin/explain";
        let write = if reads { None } else { Some("403 forbidden") };
        let elsewhere = if *path == "metrics" { None } else { Some("403 forbidden") };
        let is_policy = reads && *path == "admin/policy";
        let follow = if is_policy { None } else { Some("403 forbidden") };
        for (authorization, expected) in [
            ("", Some("401 unauthorized")),
            ("Bearer", Some("401 unauthorized")),
            ("Bearer ", Some("401 unauthorized")),
            ("Bearer admin-t0ke", Some("401 unauthorized")),
            ("Bearer admin-t0ken2", Some("401 unauthorized")),
            ("Bearer ADMIN-T0KEN", Some("401 unauthorized")),
            ("admin-t0ken", Some("401 unauthorized")),
            ("Basic YWRtaW46YWRtaW4tdDBrZW4=", Some("401 unauthorized")),
            ("Basic admin-t0ken", Some("401 unauthorized")),
            ("Bearer x, Bearer admin-t0ken", Some("401 unauthorized")),
            ("Bearer admin-t0ken, Bearer admin-t0ken", Some("401 unauthorized")),
            ("Bearer read-t0ken", write),
            ("Bearer metrics-t0ken", elsewhere),
            ("Bearer follow-t0ken", follow),
            ("Bearer admin-t0ken", None),
            ("bearer  admin-t0ken ", None),
        ] {
            let ask = Ask::new(method, path).with("authorization", authorization);
            let answer = it.ask(&ask);
            let Some(expected) = expected else {
                assert!(
                    !matches!(answer.status, 401 | 403 | 404 | 405) || path.contains("tenants/"),
                    "{method} {path} {answer:?}"
                );
                continue;
            };
            let challenge = answer.fields.get("www-authenticate");
            let wanted = match (authorization, expected) {
                ("", _) => "Bearer",
                (_, "401 unauthorized") => "Bearer error=\"invalid_token\"",
                _ => "Bearer error=\"insufficient_scope\"",
            };
            assert_eq!(challenge, Some(wanted), "{method} {path} {authorization}");
            if *method == "HEAD" {
                assert!(answer.body.is_empty());
                assert_eq!(answer.status.to_string(), expected[..3]);
            } else {
                let (status, kind) = problem(&answer);
                assert_eq!(format!("{status} {kind}"), expected, "{method} {path} {authorization}");
            }
        }
    }
    assert_eq!(it.tag().split('-').next(), Some("\"1"), "nothing was changed");
}

#[test]
fn a_refused_request_reads_no_body_and_asks_no_store() {
    let it = Deployment::new();
    for (method, path) in ALL {
        let ask = Ask::new(method, path).with("authorization", "Bearer wrong").json("{}");
        let next = it.begin(&ask);
        assert!(matches!(next, tollgate_service::Next::Response(_)), "{method} {path}");
    }
    assert_eq!(*it.calls.borrow(), 0);
}

#[test]
fn what_has_no_secret_is_off() {
    let mut it = Deployment::new();
    let token = |text: &str| Some(tollgate_service::Token::new(text.as_bytes()));
    it.tokens = Tokens { read: token(READ), follow: token(FOLLOW), ..Tokens::default() };
    for (method, path) in ALL.iter().chain(&[("GET", "openapi.json")]) {
        for token in [ADMIN, READ, METRICS, FOLLOW, ""] {
            let ask = Ask::new(method, path).with("authorization", &format!("Bearer {token}"));
            assert_eq!(it.ask(&ask).status, 404, "{method} {path}");
        }
    }
    it.tokens = Tokens { metrics: token(METRICS), ..Tokens::default() };
    let metrics = Ask::new("GET", "metrics");
    assert_eq!(told(&it, &metrics), "401 unauthorized");
    let metrics = metrics.with("authorization", "Bearer metrics-t0ken");
    assert_eq!(told(&it, &metrics), "503 store-unavailable", "its store is none of rules");
    assert_eq!(told(&it, &Ask::new("GET", "admin/policy")), "404 not-found");
}

#[test]
fn a_path_has_one_spelling_and_its_methods() {
    let it = Deployment::new();
    for path in [
        "admin/policy/",
        "/admin/policy",
        "admin//policy",
        "admin/./policy",
        "admin/policy/../policy",
        "admin/%70olicy",
        "admin%2Fpolicy",
        "Admin/policy",
        "admin/policy;x=1",
        "admin/policy%00",
        "admin",
        "",
        "admin/policy/versions",
        "admin/policy/versions/",
        "admin/policy/versions/1/2",
        "admin/tenants/",
        "admin/tenants/a/b",
        "metrics/",
        "nothing",
    ] {
        assert_eq!(told(&it, &Ask::new("GET", path)), "404 not-found", "{path}");
    }
    for target in [
        "/admin/policy",
        "",
        "/",
        "//.well-known/tollgate/admin/policy",
        "admin/policy",
        "/.well-known/tollgate",
    ] {
        let ask = Ask { target: target.into(), ..Ask::new("GET", "") };
        assert_eq!(told(&it, &ask), "404 not-found", "{target}");
    }
    for path in ["admin/tenants/%", "admin/tenants/%zz", "admin/tenants/%ff", "admin/tenants/a%c3"]
    {
        assert_eq!(told(&it, &Ask::new("GET", path)), "400 malformed", "{path}");
    }
    for version in ["0", "99", "-1", "+1", "01", "1.0", "a", "%31%20", "18446744073709551616"] {
        let ask = Ask::new("GET", &format!("admin/policy/versions/{version}"));
        assert_eq!(told(&it, &ask), "404 not-found", "{version}");
    }
    for (path, allow) in [
        ("admin/policy", "GET, HEAD, PUT, DELETE"),
        ("admin/policy/history", "GET, HEAD"),
        ("admin/keys/history", "GET, HEAD"),
        ("admin/policy/rollback", "POST"),
        ("admin/tenants/a", "GET, HEAD, PUT, DELETE"),
        ("admin/keys/block", "POST"),
        ("metrics", "GET, HEAD"),
        ("openapi.json", "GET, HEAD"),
    ] {
        for method in ["PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "Put", "", "POST "] {
            let answer = it.ask(&Ask::new(method, path));
            assert_eq!(problem(&answer), (405, "method-not-allowed".into()), "{method} {path}");
            assert_eq!(answer.fields.get("allow"), Some(allow));
        }
    }
    let long = format!("admin/policy?{}", "a".repeat(4096));
    assert_eq!(told(&it, &Ask::new("GET", &long)), "414 uri-too-long");
}

#[test]
fn a_query_says_what_is_known_once() {
    let it = Deployment::new();
    for (path, expected) in [
        ("admin/policy?", "200"),
        ("admin/policy?&&", "200"),
        ("admin/policy?a=1", "400 malformed"),
        ("admin/policy?dry_run", "400 malformed"),
        ("admin/policy/history?limit=1&before=5", "200"),
        ("admin/policy/history?limit=100", "200"),
        ("admin/policy/history?limit=0", "400 malformed"),
        ("admin/policy/history?limit=101", "400 malformed"),
        ("admin/policy/history?limit=1&limit=2", "400 malformed"),
        ("admin/policy/history?limit=1&%6Cimit=2", "400 malformed"),
        ("admin/policy/history?before=0", "400 malformed"),
        ("admin/policy/history?before=18446744073709551615", "200"),
        ("admin/policy/history?before=18446744073709551616", "400 malformed"),
        ("admin/policy/history?before=%ff", "400 malformed"),
        ("admin/tenants?limit=100&after=a%2Fb", "200"),
        ("admin/tenants?limit=101", "400 malformed"),
        ("admin/keys/history?limit=100&before=18446744073709551615", "200"),
        ("admin/keys/history?limit=101", "400 malformed"),
        ("admin/keys/history?before=0", "400 malformed"),
        ("admin/keys/history?after=1", "400 malformed"),
        ("admin/keys?rule=each", "503 store-unavailable"),
        ("admin/keys?key=a", "400 malformed"),
        ("admin/keys?rule=a&rule=b", "400 malformed"),
    ] {
        assert_eq!(told(&it, &Ask::new("GET", path)), expected, "{path}");
    }
    // A typing error in `dry_run` does not make a real change.
    for query in
        ["dryrun", "dry-run", "DRY_RUN", "dry_run=maybe", "dry_run&dry_run", "dry_run=true&x"]
    {
        let ask = Ask::new("PUT", &format!("admin/policy?{query}")).with("if-match", "*");
        assert_eq!(told(&it, &ask.json(policy(20))), "400 malformed", "{query}");
    }
    assert_eq!(it.tag().split('-').next(), Some("\"1"), "nothing was changed");
}

#[test]
fn a_write_needs_a_precondition_that_holds() {
    let it = Deployment::new();
    let tag = it.tag();
    let weak = format!("W/{tag}");
    let cases = [
        ("", "428 precondition-required"),
        ("\"1-0000000000000000\"", "412 precondition-failed"),
        ("\"\"", "412 precondition-failed"),
        (&weak, "412 precondition-failed"),
        (tag.trim_matches('"'), "400 malformed"),
        (&tag[..tag.len() - 1], "400 malformed"),
        ("*,*", "400 malformed"),
        (" ", "400 malformed"),
        ("\u{0}", "400 malformed"),
    ];
    for (if_match, expected) in cases {
        let put = Ask::new("PUT", "admin/policy").with("if-match", if_match).json(policy(20));
        assert_eq!(told(&it, &put), expected, "{if_match}");
        let delete = Ask::new("DELETE", "admin/policy").with("if-match", if_match);
        assert_eq!(told(&it, &delete), expected, "{if_match}");
        let back =
            Ask::new("POST", "admin/policy/rollback").with("if-match", if_match).json("{\"to\":1}");
        assert_eq!(told(&it, &back), expected, "{if_match}");
    }
    let long = format!("\"{}\"", "a".repeat(4096));
    let put = Ask::new("PUT", "admin/policy").with("if-match", &long).json(policy(20));
    assert_eq!(told(&it, &put), "431 header-field-too-large");
    let put = |name: &str, value: &str| {
        Ask::new("PUT", "admin/policy").with(name, value).json(policy(20))
    };
    assert_eq!(told(&it, &put("if-none-match", "*")), "412 precondition-failed");
    assert_eq!(told(&it, &put("if-none-match", &weak)), "412 precondition-failed");
    let answer = it.ask(&put("if-match", "\"old\""));
    assert_eq!(answer.fields.get("etag"), Some(tag.as_str()), "what is there is said");
    assert_eq!(it.tag(), tag, "nothing was changed");
    // A list, two lines of which one matches, and a star.
    let list = format!("\"old\" ,, {tag}");
    assert_eq!(told(&it, &put("if-match", &list)), "200");
    let mut two = put("if-match", "\"old\"").json(policy(30));
    two.fields.push(("if-match".into(), it.tag()));
    assert_eq!(told(&it, &two), "200");
    assert_eq!(told(&it, &put("if-match", "*")), "200");
    assert_eq!(told(&it, &put("if-none-match", "\"old\"").json(policy(40))), "200");
}

#[test]
fn a_read_of_what_is_known_is_304() {
    let it = Deployment::new();
    let tag = it.tag();
    for (value, expected) in [
        (tag.clone(), 304),
        (format!("W/{tag}"), 304),
        (format!("\"a\", {tag}"), 304),
        ("*".into(), 304),
        ("\"a\"".into(), 200),
    ] {
        for method in ["GET", "HEAD"] {
            for path in ["admin/policy", "admin/policy/versions/1"] {
                let answer = it.ask(&Ask::new(method, path).with("if-none-match", &value));
                assert_eq!(answer.status, expected, "{value}");
                assert_eq!(answer.fields.get("etag"), Some(tag.as_str()));
                assert_eq!(answer.body.is_empty(), expected == 304 || method == "HEAD");
            }
        }
    }
}

#[test]
fn a_hostile_body_changes_nothing() {
    let it = Deployment::new();
    let mib = 1 << 20;
    let padded = |len: usize| {
        let policy = policy(20);
        format!("{policy}{}", " ".repeat(len - policy.len())).into_bytes()
    };
    let deep = |n: usize| format!("{{\"version\":1,\"rules\":{}{}}}", "[".repeat(n), "]".repeat(n));
    let put = |body: Vec<u8>| Ask::new("PUT", "admin/policy").with("if-match", "*").json(body);
    let twice = policy(20).replacen("\"version\": 1", "\"version\": 1, \"version\": 1", 1);
    for (body, expected) in [
        (vec![], "400 malformed"),
        (b"{".to_vec(), "400 malformed"),
        (b"{} {}".to_vec(), "400 malformed"),
        (b"\xff\xfe{\0}\0".to_vec(), "400 malformed"),
        (b"{\"version\":1,\"rules\":[],\"\xc3\x28\":1}".to_vec(), "400 malformed"),
        (padded(mib + 1), "413 content-too-large"),
        (vec![b'['; mib], "400 malformed"),
        (b"[]".to_vec(), "422 invalid"),
        (b"null".to_vec(), "422 invalid"),
        (deep(100).into_bytes(), "422 invalid"),
        (deep(100_000).into_bytes(), "422 invalid"),
        (twice.into_bytes(), "422 invalid"),
        (b"{\"version\":1,\"rules\":[],\"\\ud800\":1}".to_vec(), "422 invalid"),
        (b"{\"version\":1e999,\"rules\":[]}".to_vec(), "422 invalid"),
    ] {
        let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!(told(&it, &put(body)), expected, "{start}");
    }
    for kind in [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "multipart/form-data",
    ] {
        let ask = put(policy(20).into()).with("content-type", kind);
        assert_eq!(told(&it, &ask), "415 unsupported-media-type", "{kind}");
    }
    assert_eq!(it.tag().split('-').next(), Some("\"1"), "nothing was changed");
    let ask = put(padded(mib)).with("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(told(&it, &ask), "200", "1 MiB is not too much");
    for body in [
        "{}",
        "{\"to\":\"1\"}",
        "{\"to\":0}",
        "{\"to\":1,\"to\":1}",
        "{\"to\":1,\"x\":1}",
        "{\"to\":1.0}",
        "[1]",
    ] {
        let ask = Ask::new("POST", "admin/policy/rollback").with("if-match", "*").json(body);
        assert_eq!(told(&it, &ask), "422 invalid", "{body}");
    }
    let ask = Ask::new("POST", "admin/policy/rollback").with("if-match", "*");
    assert_eq!(told(&it, &ask.clone().json(vec![b' '; 65_537])), "413 content-too-large");
    assert_eq!(told(&it, &ask.clone().json("{\"to\":2}")), "409 conflict", "it is in force");
    assert_eq!(told(&it, &ask.json("{\"to\":3}")), "404 not-found");
}

#[test]
fn a_bad_policy_is_told_every_mistake() {
    let it = Deployment::new();
    let bad = r#"{"version": 1, "rules": [{"name": "a", "key": [], "quotas": [{"limit": -1, "window": "0s"}]}, 7], "x": 1}"#;
    let answer = it.put(bad);
    assert_eq!(problem(&answer), (422, "invalid".into()));
    let document: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let errors = document["errors"].as_array().expect("a list");
    let said: Vec<String> = errors
        .iter()
        .map(|e| format!("{}: {}", e["path"].as_str().unwrap(), e["detail"].as_str().unwrap()))
        .collect();
    let compiled = tollgate_language::compile(bad, tollgate_policy::Surface::Worker).unwrap_err();
    let expected: Vec<String> =
        compiled.0.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    assert!(said.len() >= 4 && said == expected, "{said:#?}");
    let objected = policy(20).replace("\"each\"", "\"objected\"");
    let answer = it.put(&objected);
    assert!(
        answer.status == 422 && answer.body.contains("is objected"),
        "what only this surface knows"
    );
}

#[test]
fn of_two_who_saw_the_same_exactly_one_wins() {
    // Every order of two writers' steps: each has read before the other writes, or not.
    for second in ["PUT", "DELETE", "POST"] {
        let it = Deployment::new();
        assert_eq!(it.put(&policy(20)).status, 200);
        let tag = it.tag();
        let one = Ask::new("PUT", "admin/policy").with("if-match", &tag).json(policy(30));
        let other = match second {
            "PUT" => Ask::new("PUT", "admin/policy").json(policy(40)),
            "DELETE" => Ask::new("DELETE", "admin/policy"),
            _ => Ask::new("POST", "admin/policy/rollback").json("{\"to\":1}"),
        };
        let other = other.with("if-match", &tag);
        // Both up to their write, which the store carries out in some order.
        let up_to_change = |ask: &Ask| {
            let mut next = it.begin(ask);
            loop {
                if let tollgate_service::Next::Store(wants) = &next
                    && wants.call().to_json().contains("\"change\"")
                {
                    return next;
                }
                assert!(!matches!(next, tollgate_service::Next::Response(_)), "{next:?}");
                next = it.step(next, ask);
            }
        };
        let (first, last) = (up_to_change(&one), up_to_change(&other));
        let finish = |mut next, ask: &Ask| loop {
            next = match next {
                tollgate_service::Next::Response(answer) => return answer,
                other => it.step(other, ask),
            };
        };
        assert_eq!(finish(first, &one).status, 200);
        let late = finish(last, &other);
        assert_eq!(problem(&late), (409, "conflict".into()), "{second}");
        let read = it.ask(&Ask::new("GET", "admin/policy"));
        assert_eq!(read.body.as_ref(), policy(30), "the first one's stands");
        // A client that comes after both does not get that far.
        assert_eq!(told(&it, &other), "412 precondition-failed");
    }
}

#[test]
fn a_store_that_fails_or_talks_nonsense_is_said_to() {
    use tollgate_service::{PolicyReply, StoreReply, TenantReply};
    let it = Deployment::new();
    let asks = [
        Ask::new("GET", "admin/policy"),
        Ask::new("PUT", "admin/policy").with("if-match", "*").json(policy(20)),
        Ask::new("GET", "admin/policy/history"),
        Ask::new("GET", "admin/tenants"),
        Ask::new("DELETE", "admin/tenants/a").with("if-match", "*"),
        Ask::new("GET", "admin/keys?rule=each"),
        Ask::new("GET", "admin/keys/history"),
        Ask::new("GET", "metrics"),
    ];
    for ask in asks {
        for reply in [
            StoreReply::Failed("secret of the store".into()),
            StoreReply::Policy(PolicyReply::SendText),
            StoreReply::Policy(PolicyReply::Changed { version: 1 }),
            StoreReply::Tenants(TenantReply::Full),
            StoreReply::from_json(b"\xff{"),
        ] {
            let mut next = it.begin(&ask);
            let mut steps = 0;
            let answer = loop {
                steps += 1;
                assert!(steps < 9, "it ends");
                next = match next {
                    tollgate_service::Next::Response(answer) => break answer,
                    tollgate_service::Next::Store(wants) => it.answered(wants, reply.clone()),
                    other => it.step(other, &ask),
                };
            };
            assert_eq!(problem(&answer), (503, "store-unavailable".into()));
            assert!(!answer.body.contains("secret"), "{answer:?}");
        }
    }
}
