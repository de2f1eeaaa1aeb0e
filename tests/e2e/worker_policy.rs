//! The whole policy on the Worker: charging by response, marks, custom responses, waiting, shadows,
//! tiers, and the facts of the edge.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::workerd::{EDGE_FACTS, Setup, Workerd, answer};

use crate::worker_origin::serve;

const RATE_LIMIT_FIELDS: [&str; 3] = ["ratelimit", "ratelimit-policy", "retry-after"];

/// One rule for every client with a quota of `limit` for a year, changed by `more`.
fn rule(limit: u64, more: Value) -> Value {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    let mut rule = json!({"name": "all", "key": ["client_ip"], "quotas": [quota]});
    let fields = more.as_object().expect("fields").clone();
    rule.as_object_mut().expect("a rule").extend(fields);
    rule
}

fn policy(limit: u64, more: Value) -> Value {
    json!({"version": 1, "rules": [rule(limit, more)]})
}

fn setup(origin: &str, policy: &Value) -> Setup {
    Setup::new(policy).binding("ORIGIN", origin)
}

fn send(worker: &Workerd, request: Request) -> Response {
    worker.client().send(&request.header("cf-connecting-ip", "192.0.2.1"))
}

fn get(worker: &Workerd) -> Response {
    send(worker, Request::get("/"))
}

fn ask(worker: &Workerd, more: Value) -> Value {
    let mut body = json!({"method": "POST", "path": "/login", "client_ip": "192.0.2.1"});
    body.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
    answer(&worker.client().send(&Request::post("/check", body.to_string())))
}

/// An origin that accepts the right password.
fn login() -> String {
    serve(|request| match request.target.as_str() {
        "/good" => request.answer("200 OK", "", "welcome"),
        "/broken" => request.answer("503 Service Unavailable", "", ""),
        _ => request.answer("401 Unauthorized", "", "no"),
    })
}

fn failed_logins() -> Value {
    policy(2, json!({"charge": {"response_status": ["401", "403"]}}))
}

/// The remaining units in `ratelimit`.
fn left(response: &Response) -> u64 {
    let field = response.header("ratelimit").expect("a ratelimit field");
    let r = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    r.and_then(|r| r.parse().ok()).unwrap_or_else(|| panic!("no r in {field}"))
}

// Guards: users who are locked out by their successes, and guessers who are not by their failures.
// Only the named statuses are charged, and once they are used up the right password does not help
// either.
#[test]
fn only_failed_logins_are_charged_in_front_of_an_origin() {
    let worker = setup(&login(), &failed_logins()).start();
    let path = |path: &str| send(&worker, Request::get(path));
    for _ in 0..3 {
        assert_eq!((path("/good").status, path("/broken").status), (200, 503));
    }
    assert_eq!(worker.databases().len(), 1, "it was looked at, and nothing else");
    assert_eq!(left(&path("/good")), 2, "nothing is charged yet");
    assert_eq!(path("/bad").status, 401);
    assert_eq!(left(&path("/good")), 1);
    assert_eq!(path("/bad").status, 401);
    let refused = path("/good");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    // Another client is not affected.
    let other = Request::get("/good").header("cf-connecting-ip", "192.0.2.2");
    assert_eq!(worker.client().send(&other).status, 200);
}

// Guards: a caller of /check that cannot report how the login ended. The first call decides and
// requests a report, the second reports; its response shows whether anything was charged.
#[test]
fn only_failed_logins_are_charged_as_a_service() {
    let worker = Setup::new(failed_logins()).start();
    for status in [200, 404, 500] {
        let decided = ask(&worker, json!({}));
        assert_eq!(
            (&decided["decision"], &decided["report"]),
            (&json!("allow"), &json!("response_status"))
        );
        assert_eq!(ask(&worker, json!({"response_status": status})), json!({"charged": false}));
    }
    for status in [401, 403] {
        assert_eq!(ask(&worker, json!({}))["decision"], "allow");
        assert_eq!(ask(&worker, json!({"response_status": status})), json!({"charged": true}));
    }
    let refused = ask(&worker, json!({}));
    assert_eq!((&refused["decision"], &refused["violated"]), (&json!("deny"), &json!(["year"])));
    assert_eq!(refused["report"], Value::Null, "a refused request has no response to report");
    // The quota is used up already: a late report charges nothing.
    assert_eq!(ask(&worker, json!({"response_status": 401})), json!({"charged": false}));
    for wrong in [json!(99), json!(600), json!("401"), json!(-1)] {
        let body = json!({"method": "GET", "path": "/", "response_status": wrong}).to_string();
        assert_eq!(worker.client().send(&Request::post("/check", body)).status, 400, "{wrong}");
    }
}

// Guards: a guesser that makes the Worker lose counts: the charge of a failed login is on disk
// before its response is sent.
#[test]
fn a_settled_charge_survives_kill_9() {
    let mut worker = setup(&login(), &failed_logins()).start();
    for expected in [401, 401, 429] {
        assert_eq!(send(&worker, Request::get("/bad")).status, expected);
        worker.kill();
        worker.restart();
    }
}

// Guards: an origin that never responds, or not in time to be charged: a 502 of the Worker's is a
// status like others.
#[test]
fn an_origin_that_is_down_is_charged_by_our_502() {
    let nobody = format!("http://127.0.0.1:{}", tollgate_e2e::process::free_port());
    let policy = policy(1, json!({"charge": {"response_status": ["5xx"]}}));
    let worker = setup(&nobody, &policy).start();
    assert_eq!((get(&worker).status, get(&worker).status), (502, 429));
}

/// An origin that records every line of `x-over-limit` that reached it, per request.
fn marked_origin() -> (String, Arc<Mutex<Vec<Vec<String>>>>) {
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    let origin = serve(move |request| {
        let lines = request.headers.iter().filter(|(name, _)| name == "x-over-limit");
        log.lock().expect("a log").push(lines.map(|(_, value)| value.clone()).collect());
        let body = request.body();
        request.answer("200 OK", "", body);
    });
    (origin, seen)
}

const MARK: &str = r#"{"action": {"mark": {"header": "X-Over-Limit", "value": "1"}}}"#;

fn mark() -> Value {
    serde_json::from_str(MARK).expect("JSON")
}

// Guards: a mark that is lost, or that a client removes or forges by sending lines of that name
// itself.
#[test]
fn a_mark_reaches_the_origin_in_place_of_the_clients_own() {
    let (origin, seen) = marked_origin();
    let worker = setup(&origin, &policy(1, mark())).start();
    assert_eq!(get(&worker).status, 200);
    let over = send(
        &worker,
        Request::post("/", "body").header("X-OVER-limit", "0").header("x-over-limit", "2"),
    );
    assert_eq!((over.status, over.text().as_str()), (200, "body"), "it passes, with its body");
    assert_eq!(over.header("retry-after"), None);
    let seen = seen.lock().expect("a log");
    assert_eq!(*seen, [vec![], vec!["1".to_owned()]]);
}

// Guards: the service, where the caller sets the mark.
#[test]
fn a_mark_is_told_to_the_caller_of_check() {
    let worker = Setup::new(policy(1, mark())).start();
    let first = ask(&worker, json!({}));
    assert_eq!((&first["decision"], &first["request_headers"]), (&json!("allow"), &Value::Null));
    let over = ask(&worker, json!({}));
    assert_eq!(over["decision"], "allow");
    assert_eq!(over["rules"], json!([{"name": "all", "result": "marked"}]));
    assert_eq!(over["request_headers"], json!({"x-over-limit": "1"}));
}

// Guards: a denial with the policy's own response: its status and its body, and every field that a
// client needs to wait.
#[test]
fn deny_answers_with_its_own_status_and_body() {
    let own = json!({"action": {"deny": {"status": 503, "body": "come back later"}}});
    let worker = setup(&login(), &policy(1, own)).start();
    assert_eq!(send(&worker, Request::get("/good")).status, 200);
    let denied = get(&worker);
    assert_eq!((denied.status, denied.text().as_str()), (503, "come back later"));
    assert_eq!(denied.header("content-type").as_deref(), Some("text/plain"));
    assert_eq!(denied.header("cache-control").as_deref(), Some("no-store"));
    assert!(RATE_LIMIT_FIELDS.iter().all(|name| denied.header(name).is_some()), "{denied:?}");
}

// Guards: a shadowban that reveals itself: it needs a response that looks like success, without any
// field of Tollgate's, and an origin that does not see the request.
#[test]
fn respond_answers_in_silence() {
    let (origin, seen) = marked_origin();
    for (respond, status, body) in [
        (json!({"status": 200, "body": "thanks"}), 200, "thanks"),
        (json!({"status": 200, "body": ""}), 200, ""),
        (json!({"status": 204}), 204, ""),
        (json!({"status": 204, "body": "lost"}), 204, ""),
        (json!({"status": 304}), 304, ""),
    ] {
        seen.lock().expect("a log").clear();
        let worker = setup(&origin, &policy(1, json!({"action": {"respond": respond}}))).start();
        assert_eq!(get(&worker).status, 200);
        let banned = get(&worker);
        assert_eq!((banned.status, banned.text().as_str()), (status, body));
        let kind = (!body.is_empty()).then_some("text/plain");
        assert_eq!(banned.header("content-type").as_deref(), kind, "{banned:?}");
        assert!(RATE_LIMIT_FIELDS.iter().all(|name| banned.header(name).is_none()), "{banned:?}");
        assert_eq!(banned.header("cache-control").as_deref(), Some("no-store"));
        assert_eq!(seen.lock().expect("a log").len(), 1, "only the first reached the origin");
    }
}

fn waiting(window: &str, max: &str) -> Value {
    let quota = json!({"name": "q", "limit": 1, "window": window});
    policy(1, json!({"quotas": [quota], "action": {"delay": {"max": max}}}))
}

// Guards: shaping that denies, or that allows too early. A request over the limit waits until it is
// allowed; the client notices only the time.
#[test]
fn delay_waits_until_the_request_is_admitted() {
    let worker = setup(&login(), &waiting("1s", "10s")).start();
    let path = || send(&worker, Request::get("/good")).status;
    let started = Instant::now();
    assert_eq!([path(), path(), path()], [200, 200, 200]);
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1_980), "three in {took:?}");
    // Four at once: each waits its turn.
    let started = Instant::now();
    thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(path)).collect();
        asked.into_iter().for_each(|one| assert_eq!(one.join().expect("an answer"), 200));
    });
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(2_980), "four more in {took:?}");
}

// Guards: connections that pile up: a request that would wait longer than permitted is denied at
// once.
#[test]
fn delay_refuses_who_would_wait_too_long() {
    // If it waited, this client's time-out would end first.
    let worker = setup(&login(), &waiting("1h", "5m")).start();
    assert_eq!(send(&worker, Request::get("/good")).status, 200);
    let refused = get(&worker);
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").and_then(|s| s.parse().ok()).expect("seconds");
    assert!((3_500..=3_600).contains(&wait), "{wait}");
}

// Guards: a shadow that denies, that is visible to clients, or that is invisible to the operator:
// it decides and counts, and the client sees only the enforced rule next to it.
#[test]
fn a_shadow_never_refuses() {
    let mut shadow = rule(1, json!({"name": "shadow", "mode": "shadow"}));
    shadow["quotas"][0]["name"] = json!("hidden");
    let policy = json!({"version": 1, "rules": [shadow, rule(9, json!({}))]});
    let worker = setup(&login(), &policy).start();
    for r in (0..9).rev() {
        let passed = send(&worker, Request::get("/good"));
        assert_eq!((passed.status, left(&passed)), (200, r));
        let field = passed.header("ratelimit-policy").expect("ratelimit-policy");
        assert!(!field.contains("hidden"), "{field}");
    }
    assert_eq!(get(&worker).status, 429);

    let service = Setup::new(&policy).start();
    let results = || ask(&service, json!({}))["rules"].clone();
    let both = |shadow: &str| json!([{"name": "shadow", "result": shadow}, {"name": "all", "result": "allowed"}]);
    assert_eq!([results(), results()], [both("allowed"), both("shadowed")]);
}

// Guards: a tier that is not found, or one that shares its count with another. By key value and by
// condition.
#[test]
fn tiers_replace_the_quotas() {
    let tier = |name: &str, priority: u64, limit: u64, more: Value| {
        let mut tier = rule(limit, more);
        let fields = tier.as_object_mut().expect("a tier");
        fields.remove("key");
        fields.insert("name".into(), json!(name));
        fields.insert("priority".into(), json!(priority));
        tier
    };
    let gold = tier("gold", 10, 1000, json!({"key_values": ["k-gold"]}));
    let staff = tier("staff", 20, 5, json!({"when": {"headers": {"x-staff": "yes"}}}));
    let rule = rule(1, json!({"key": [{"header": "x-api-key"}], "tiers": [gold, staff]}));
    let worker = setup(&login(), &json!({"version": 1, "rules": [rule]})).start();
    let with = |key: &str, staff: &str| {
        let request = Request::get("/good").header("x-api-key", key).header("x-staff", staff);
        send(&worker, request)
    };
    assert_eq!((with("k-1", "no").status, with("k-1", "no").status), (200, 429));
    assert_eq!((left(&with("k-gold", "no")), left(&with("k-gold", "no"))), (999, 998));
    assert_eq!((left(&with("k-1", "yes")), left(&with("k-gold", "yes"))), (4, 4));
    assert_eq!(left(&with("k-gold", "no")), 997, "each tier has a count of its own");
}

// Guards: countries and networks, which only the edge knows: a client cannot set them, and where
// the edge does not know them the rule is skipped.
#[test]
fn countries_and_networks_come_from_the_edge() {
    let germany = json!({"when": {"countries": ["DE"]}, "key": ["asn"]});
    let worker = setup(&login(), &policy(1, germany)).start();
    let from = |facts: &str| {
        let request = Request::get("/good").header("cf-ipcountry", "DE").header(EDGE_FACTS, facts);
        send(&worker, request).status
    };
    let german = |asn: u32| from(&json!({"country": "DE", "asn": asn}).to_string());
    assert_eq!([german(64_500), german(64_500), german(64_501)], [200, 429, 200]);
    for unknown in
        ["{}", r#"{"country": "FR", "asn": 64500}"#, r#"{"country": "DE"}"#, r#"{"country": null}"#]
    {
        assert_eq!([from(unknown), from(unknown)], [200, 200], "{unknown}");
    }
}

// Guards: a client counted by a certificate that Cloudflare has not verified, or by one that it
// names itself in a header.
#[test]
fn only_a_verified_certificate_is_counted() {
    let certificate = |name: &str, change: Value| {
        let mut tls = json!({
            "certPresented": "1", "certVerified": "SUCCESS", "certRevoked": "0",
            "certSubjectDN": format!("CN={name}"), "certFingerprintSHA256": format!("{name}-f"),
        });
        tls.as_object_mut().expect("fields").extend(change.as_object().expect("fields").clone());
        json!({"tlsClientAuth": tls})
    };
    for part in ["subject", "sha256"] {
        let by_certificate = json!({"key": [{"client_certificate": part}], "on_missing": "deny"});
        let worker = setup(&login(), &policy(1, by_certificate)).start();
        let from = |facts: Value| {
            let request = Request::get("/good").header("certSubjectDN", "CN=alice");
            send(&worker, request.header(EDGE_FACTS, facts.to_string())).status
        };
        let of = |name| from(certificate(name, json!({})));
        assert_eq!([of("alice"), of("alice"), of("bob")], [200, 429, 200], "{part}");
        for other in [
            json!({}),
            json!({"tlsClientAuth": null}),
            json!({"certSubjectDN": "CN=carol"}),
            certificate("carol", json!({"certVerified": "FAILED:self signed certificate"})),
            certificate("carol", json!({"certVerified": "NONE"})),
            certificate("carol", json!({"certPresented": "0"})),
            certificate("carol", json!({"certRevoked": "1"})),
            certificate("carol", json!({"certSubjectDN": "", "certFingerprintSHA256": null})),
        ] {
            assert_eq!(from(other.clone()), 429, "{part}: {other} has none");
        }
        assert_eq!(of("carol"), 200, "{part}: nothing was charged to her");
    }
}

#[test]
fn facts_of_cloudflares_are_counted_where_it_reports_them() {
    let bot = |name: &str, value: &str| json!({"botManagement": {"ja3Hash": "0", "ja4": "0", (name): value}});
    let plain = |name: &str, value: &str| json!({ (name): value });
    let rows: [(&str, [Value; 2]); 4] = [
        ("colo", [plain("colo", "FRA"), plain("colo", "LHR")]),
        ("tls_version", [plain("tlsVersion", "TLSv1.3"), plain("tlsVersion", "TLSv1.2")]),
        ("ja3", [bot("ja3Hash", "a"), bot("ja3Hash", "b")]),
        ("ja4", [bot("ja4", "a"), bot("ja4", "b")]),
    ];
    for (name, [one, other]) in rows {
        let rule = json!({"key": [{"cf": name}], "on_missing": "deny"});
        let worker = setup(&login(), &policy(1, rule)).start();
        let from = |facts: &Value| {
            send(&worker, Request::get("/good").header(EDGE_FACTS, facts.to_string())).status
        };
        assert_eq!([from(&one), from(&one), from(&other)], [200, 429, 200], "{name}");
        for unknown in [json!({}), json!({"botManagement": null}), json!({"colo": ""})] {
            assert_eq!(from(&unknown), 429, "{name}: {unknown}");
        }
    }
}

// Guards: a caller of /check whose own country is used for its client, or that cannot send the
// client's facts.
#[test]
fn countries_and_networks_come_from_the_caller_of_check() {
    let germany = json!({"when": {"countries": ["DE"]}, "key": ["asn"]});
    let worker = Setup::new(policy(1, germany)).start();
    let decision = |facts: Value| {
        let mut body = json!({"method": "GET", "path": "/"});
        body.as_object_mut().expect("fields").extend(facts.as_object().expect("fields").clone());
        let caller = json!({"country": "DE", "asn": 64_500}).to_string();
        let request = Request::post("/check", body.to_string()).header(EDGE_FACTS, caller);
        answer(&worker.client().send(&request))["decision"].clone()
    };
    let german = |asn: u32| decision(json!({"country": "de", "asn": asn}));
    assert_eq!([german(64_500), german(64_500), german(64_501)], ["allow", "deny", "allow"]);
    for unknown in [json!({}), json!({"country": "FR", "asn": 64_500}), json!({"country": "DE"})] {
        let twice = [decision(unknown.clone()), decision(unknown.clone())];
        assert_eq!(twice, ["allow", "allow"], "{unknown}");
    }
}
