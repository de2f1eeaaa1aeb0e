//! The server's responses: `/check` as in the Worker, the admin API, probes.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::http2;
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{ADMIN_TOKEN, Setup, TollgateServer};
use tollgate_e2e::workerd::{answer, check_request};

use std::time::{Duration, Instant};

fn server(rules: Value) -> Setup {
    Setup::new(json!({"version": 1, "rules": rules}))
}

fn year(name: &str, limit: u64) -> Value {
    json!({"name": name, "algorithm": "fixed-window", "limit": limit, "window": "366d"})
}

fn by_client(limit: u64) -> Value {
    json!([{"name": "each", "key": ["client_ip"], "quotas": [year("year", limit)]}])
}

fn ask(server: &TollgateServer, body: &Value) -> Value {
    answer(&server.client().send(&Request::post("/check", body.to_string())))
}

fn problem(response: &Response, status: u16) -> Value {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("content-type").as_deref(), Some("application/problem+json"));
    serde_json::from_slice(&response.body).expect("a problem is JSON")
}

// Guards: the contract of the response, byte for byte as in the Worker's test.
#[test]
fn the_answer_is_the_workers() {
    let server = server(json!([
        {"name": "api", "when": {"paths": ["/api/**"]}, "key": ["client_ip"], "quotas": [year("api-year", 1)]},
        {"name": "post", "when": {"methods": ["POST"]}, "key": [], "quotas": [year("posts", 9)]},
    ]))
    .start();
    let request = json!({"method": "GET", "path": "/api/x?y=z", "client_ip": "192.0.2.1"});
    let allowed = ask(&server, &request);
    assert_eq!(allowed["decision"], "allow");
    assert_eq!(allowed["rules"], json!([{"name": "api", "result": "allowed"}]));
    assert_eq!(allowed["headers"]["ratelimit-policy"], "\"api-year\";q=1;w=31622400");
    let denied = ask(&server, &request);
    assert_eq!((&denied["decision"], &denied["status"]), (&json!("deny"), &json!(429)));
    assert_eq!(denied["violated"], json!(["api-year"]));
    let two = ask(&server, &json!({"method": "POST", "path": "/api/x", "client_ip": "192.0.2.2"}));
    assert_eq!(two["rules"].as_array().map(Vec::len), Some(2));
    let none = ask(&server, &json!({"method": "GET", "path": "/", "client_ip": "2001:db8::1"}));
    let expected = json!({"decision": "allow", "rules": [], "violated": [], "retry_after_ms": null, "headers": {}});
    assert_eq!(none, expected);
}

#[test]
fn several_are_decided_each_by_itself_over_both_versions_of_http() {
    let server = server(by_client(2)).start();
    let one = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
    let batch = json!({"requests": [one, one, {"method": "GET"}, one]}).to_string();
    let response = answer(&server.client().send(&Request::post("/check", batch.as_str())));
    let answers = response["answers"].as_array().expect("answers");
    let count = |word: &str| answers.iter().filter(|answer| answer["decision"] == word).count();
    assert_eq!((answers.len(), count("allow"), count("deny")), (4, 2, 1));
    assert_eq!(answers[2]["errors"][0]["path"], "requests[2].path");
    let second = http2::send(server.port, &Request::post("/check", batch)).response;
    assert!(second.status == 200 && !second.text().contains("allow"), "{}", second.text());
}

#[test]
fn what_cannot_be_asked_is_a_problem() {
    let server = server(by_client(1)).start();
    let send = |request: &Request| server.client().send(request);
    problem(&send(&Request::get("/")), 404);
    problem(&send(&Request::get("/check")), 405);
    problem(&send(&Request::post("/check", "{")), 400);
    problem(&send(&Request::post("/check", vec![b' '; 65_537])), 413);
    let list: Vec<Value> = (0..101).map(|_| json!({"method": "GET", "path": "/"})).collect();
    problem(&send(&Request::post("/check", json!({"requests": list}).to_string())), 400);
    // Without a token there is no admin API, and the page's paths are not served.
    for path in ["admin", "admin/", "admin/policy", "metrics", "openapi.json", "nothing"] {
        problem(&send(&Request::get(&format!("/.well-known/tollgate/{path}"))), 404);
    }
    let health = send(&Request::get("/.well-known/tollgate/health"));
    assert_eq!((health.status, health.text().contains("\"status\":\"ok\"")), (200, true));
    assert_eq!(send(&Request::new("HEAD", "/.well-known/tollgate/health")).body, b"");
}

// Guards: an unauthorized caller that could spend any client's quota, because the caller names the
// client.
#[test]
fn only_a_caller_who_is_trusted_may_ask() {
    let asked = check_request("GET", "/", "192.0.2.1");
    let closed = server(by_client(9)).set("trusted_callers", "192.0.2.0/24").start();
    problem(&closed.client().send(&asked), 403);
    let token = "only-for-tests-check";
    let open = server(by_client(9)).variable("TOLLGATE_CHECK_TOKEN", token).start();
    let refused = open.client().send(&asked);
    problem(&refused, 401);
    assert_eq!(refused.header("www-authenticate").as_deref(), Some("Bearer"));
    let sent =
        check_request("GET", "/", "192.0.2.1").header("authorization", format!("Bearer {token}"));
    assert_eq!(answer(&open.client().send(&sent))["decision"], "allow");
}

// Guards: an attacker that tries tokens unseen.
#[test]
fn who_may_not_ask_is_counted_and_logged_without_his_words() {
    let asked = check_request("GET", "/secret-path", "192.0.2.1");
    let variable = ("TOLLGATE_CHECK_TOKEN", "only-for-tests-check");
    let start = || server(by_client(9)).set("log_sample", "1").operated();
    let server = start().variable(variable.0, variable.1).start();
    let wrong = asked.clone().header("authorization", "Bearer guessed-token");
    for request in [&asked, &wrong, &wrong] {
        assert_eq!(server.client().send(request).status, 401);
    }
    let admin = Request::get("/.well-known/tollgate/admin/policy");
    assert_eq!(server.client().send(&admin).status, 401);
    let tried = admin.header("authorization", "Bearer guessed-token");
    assert_eq!(server.client().send(&tried).status, 401);
    let metrics = server.operate("GET", "metrics", "", &[]).text();
    for (api, reason, count) in [
        ("check", "missing", 1),
        ("check", "wrong", 2),
        ("admin", "missing", 1),
        ("admin", "wrong", 1),
    ] {
        let line =
            format!("\ntollgate_unauthorized_total{{api=\"{api}\",reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let lines = server.wait_for_events("unauthorized", 5);
    assert_eq!(lines[0]["api"], "check");
    let log = server.server.log();
    for word in ["guessed", "secret-path", "192.0.2.1"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    // An address that is not permitted.
    let closed = start().set("trusted_callers", "192.0.2.0/24").start();
    assert_eq!(closed.client().send(&asked).status, 403);
    let metrics = closed.operate("GET", "metrics", "", &[]).text();
    assert!(metrics.contains("api=\"check\",reason=\"wrong\"} 1\n"), "{metrics}");
}

#[test]
fn a_request_waits_here_and_a_place_in_a_queue_with_who_asks() {
    let quota = json!({"limit": 10, "window": "1s", "burst": 1});
    let server = server(json!([
        {"name": "waits", "when": {"paths": ["/w"]}, "key": [], "quotas": [quota], "action": {"delay": {"max": "5s"}}},
        {"name": "queue", "when": {"paths": ["/q"]}, "key": [], "quotas": [
            {"algorithm": "leaky-queue", "limit": 2, "window": "200s", "burst": 2}]},
    ]))
    .start();
    let since = Instant::now();
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    for client in &mut clients {
        client.start(&check_request("GET", "/w", "192.0.2.1")).expect("sent");
    }
    for client in &mut clients {
        // The server closes a connection on which nothing comes for ten seconds.
        let lost = |why| panic!("no answer {:?} after the first connected: {why}", since.elapsed());
        let answer = answer(&client.finish(false).unwrap_or_else(lost));
        assert_eq!(answer["decision"], "allow", "{answer}");
    }
    let request = json!({"method": "GET", "path": "/q"});
    assert_eq!(ask(&server, &request)["decision"], "allow");
    let delayed = ask(&server, &request);
    assert_eq!(delayed["decision"], "delay");
    assert!(delayed["delay_ms"].as_u64().is_some_and(|delay| delay > 50_000), "{delayed}");
}

#[test]
fn what_a_response_brings_about_is_charged_when_it_is_reported() {
    let server = server(json!([{"name": "failed", "key": ["client_ip"],
        "charge": {"response_status": ["401"]}, "quotas": [year("failures", 2)]}]))
    .start();
    let asked = json!({"method": "POST", "path": "/login", "client_ip": "192.0.2.1"});
    let mut report = asked.clone();
    for status in [200, 401, 401] {
        let allowed = ask(&server, &asked);
        let seen = (&allowed["decision"], &allowed["report"]);
        assert_eq!(seen, (&json!("allow"), &json!("response_status")));
        report["response_status"] = json!(status);
        assert_eq!(ask(&server, &report), json!({"charged": status == 401}));
    }
    assert_eq!(ask(&server, &asked)["decision"], "deny");
}

#[test]
fn a_cost_is_settled_once() {
    let rules = json!([{"name": "tokens", "key": ["client_ip"], "cost": {"header": "x-cost", "max": 1000},
        "quotas": [year("year", 100)]}]);
    let server = server(rules).start();
    let asked = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1", "settle": true,
        "headers": {"x-cost": "60"}});
    let allowed = ask(&server, &asked);
    let id = allowed["id"].as_str().unwrap_or_else(|| panic!("{allowed}"));
    let settle = |cost: u64| {
        let body = json!({"id": id, "cost": cost}).to_string();
        answer(&server.client().send(&Request::post("/check/settle", body)))
    };
    assert_eq!(ask(&server, &asked)["decision"], "deny");
    for cost in [10, 10] {
        assert_eq!(settle(cost), json!({"result": "settled", "cost": 10, "charged": 10}));
    }
    assert_eq!(settle(11), json!({"result": "conflict", "cost": 10}));
    assert_eq!(ask(&server, &asked)["decision"], "allow", "50 were given back");
    let foreign = json!({"id": "AAAA", "cost": 1}).to_string();
    problem(&server.client().send(&Request::post("/check/settle", foreign)), 400);
}

#[test]
fn an_operator_changes_the_policy_tenants_and_keys() {
    let policy = json!({"version": 1, "tenant": {"header": "x-tenant"}, "rules": [
        {"name": "each", "key": [{"header": "x-tenant"}], "quotas": [year("year", 1)]}]});
    let server = Setup::new(policy).operated().start();
    let mut asked = json!({"method": "GET", "path": "/", "headers": {"x-tenant": "a"}});
    let mut decision = |tenant: &str| {
        asked["headers"]["x-tenant"] = json!(tenant);
        ask(&server, &asked)["decision"].as_str().expect("a word").to_owned()
    };
    assert_eq!((decision("a"), decision("a")), ("allow".into(), "deny".into()));
    // One key is reset, read, blocked.
    let key = json!({"rule": "each", "key": ["a"]}).to_string();
    let state = server.operate("GET", "admin/keys?rule=each&key=a", "", &[]);
    assert!(state.text().contains("\"used\":1"), "{}", state.text());
    assert_eq!(server.operate("POST", "admin/keys/reset", &key, &[]).status, 204);
    assert_eq!((decision("a"), decision("a")), ("allow".into(), "deny".into()));
    // The policy is changed: it is in force when the response arrives.
    let read = server.operate("GET", "admin/policy", "", &[]);
    let tag = read.header("etag").expect("a tag");
    let mut changed: Value = serde_json::from_slice(&read.body).expect("a policy");
    changed["rules"][0]["quotas"][0]["limit"] = json!(3);
    let changed = changed.to_string();
    let put = server.operate("PUT", "admin/policy", &changed, &[("if-match", &tag)]);
    assert!(put.status < 300, "{}", put.text());
    assert_eq!(
        (decision("a"), decision("a"), decision("a")),
        ("allow".into(), "allow".into(), "deny".into())
    );
    let stale = server.operate("PUT", "admin/policy", &changed, &[("if-match", &tag)]);
    problem(&stale, 412);
    let bad = server.operate("PUT", "admin/policy", "{\"version\":9}", &[("if-match", "*")]);
    assert!(bad.status == 422 && decision("b") == "allow", "{}", bad.text());
    // A tenant is written, and the next request sees it.
    let entry = json!({"quotas": {"each": [year("own", 2)]}}).to_string();
    let put = server.operate("PUT", "admin/tenants/c", &entry, &[("if-none-match", "*")]);
    assert!(put.status < 300, "{}", put.text());
    assert_eq!(
        (decision("c"), decision("c"), decision("c")),
        ("allow".into(), "allow".into(), "deny".into())
    );
    let metrics = server.operate("GET", "metrics", "", &[]).text();
    assert!(metrics.contains("tollgate_requests_total{answer=\"passed\"} "), "{metrics}");
    assert!(metrics.contains("\ntollgate_keys 3\n"), "{metrics}");
    assert!(!server.server.log().contains(ADMIN_TOKEN));
    assert_eq!(server.events("key_changed").len(), 1);
}

#[test]
fn a_file_that_is_read_again_is_in_force_and_a_wrong_one_is_not() {
    let server = server(by_client(1)).start();
    let asked = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
    assert_eq!(ask(&server, &asked)["decision"], "allow");
    assert_eq!(ask(&server, &asked)["decision"], "deny");
    std::fs::write(server.file("policy.json"), "{\"version\": 1, \"rules\": 3}").expect("written");
    server.signal(rustix::process::Signal::HUP);
    server.wait_for_events("policy_refused", 1);
    assert_eq!(ask(&server, &asked)["decision"], "deny");
    let more = json!({"version": 1, "rules": by_client(2)}).to_string();
    std::fs::write(server.file("policy.json"), more).expect("written");
    server.signal(rustix::process::Signal::HUP);
    server.wait_for_events("policy_reloaded", 1);
    assert_eq!(ask(&server, &asked)["decision"], "allow");
    assert_eq!(ask(&server, &asked)["decision"], "deny");
}

#[test]
fn probes_tell_live_from_ready_and_refusals_are_lines_of_json() {
    let server = server(by_client(1)).set("log_sample", "1").start();
    assert_eq!((server.probe("/live"), server.probe("/ready"), server.probe("/")), (200, 200, 404));
    for _ in 0..3 {
        ask(&server, &json!({"method": "GET", "path": "/secret", "client_ip": "192.0.2.1"}));
    }
    let lines = wait_until("two lines", Duration::from_secs(60), || {
        Some(server.events("refused")).filter(|lines| lines.len() == 2)
    });
    assert_eq!(lines[0]["rule"], "each");
    let log = server.server.log();
    assert!(!log.contains("192.0.2.1") && !log.contains("secret"), "{log}");
}
