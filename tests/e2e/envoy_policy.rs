//! The effects of rules other than denial, in a real Envoy: charge by response, mark, respond,
//! delay, shadow.
//!
//! The test plays the origin: it responds with the status in the path, and with the request as
//! received.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// A policy of one rule `r` with one quota and `more` fields.
fn policy(limit: u32, window: &str, more: &Value) -> Value {
    let mut rule = json!({
        "name": "r",
        "key": [{"header": "x-key"}],
        "quotas": [{"name": "q", "limit": limit, "window": window}],
    });
    let more = more.as_object().expect("fields of a rule").clone();
    rule.as_object_mut().expect("an object").extend(more);
    json!({"version": 1, "rules": [rule]})
}

/// Responds to `/404/...` with 404, and to any other path with 200; the body is the request's head.
fn serve(connection: TcpStream) -> Option<()> {
    let mut connection = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lines = head.to_ascii_lowercase();
    let announced = lines.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; announced.map_or(0, |length| length.parse().unwrap_or(0))];
    connection.read_exact(&mut body).ok()?;
    let status = head.split('/').nth(1).and_then(|word| word.get(..3)?.parse().ok());
    let (status, length): (u16, _) = (status.unwrap_or(200), head.len());
    let answer = format!(
        "HTTP/1.1 {status} Played\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{head}"
    );
    connection.get_mut().write_all(answer.as_bytes()).ok()
}

fn origin() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the origin");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || serve(connection));
        }
    });
    port
}

/// Two workers with the policy, and the origin behind them.
fn start(policy: &Value) -> Envoy {
    let filters = vec![tollgate(policy, "vm", As::Text)];
    let mut setup = Setup::new(2, vec![Listener::new("main", filters).behind_origin()]);
    setup.origin = origin();
    setup.start()
}

fn of(key: &str, target: &str) -> Request {
    Request::get(target).header("x-key", key)
}

fn statuses<const N: usize>(client: &mut Client, request: &Request) -> [u16; N] {
    [(); N].map(|()| client.send(request).status)
}

/// Names of all rate limit fields of the response.
fn told(response: &Response) -> Vec<&str> {
    let names = response.headers.iter().map(|(name, _)| name.as_str());
    names.filter(|name| name.contains("ratelimit") || *name == "retry-after").collect()
}

// Guessing passwords: only attempts that the origin reports as wrong are charged, and then even the
// right one is denied.
#[test]
fn only_failed_logins_are_charged() {
    let more = json!({"charge": {"response_status": ["401", "5xx"]}});
    let envoy = start(&policy(4, "1h", &more));
    let mut client = envoy.client();
    assert_eq!(statuses::<8>(&mut client, &of("u", "/200")), [200; 8]);
    assert_eq!(statuses::<8>(&mut client, &of("u", "/403")), [403; 8]);
    assert_eq!(statuses::<3>(&mut client, &of("u", "/401")), [401; 3]);
    let right = client.send(&of("u", "/200"));
    assert_eq!(right.status, 200);
    let said = right.header("ratelimit").expect("the field");
    assert!(said.starts_with("\"q\";r=1;"), "three of four are used up: {said}");
    assert_eq!(client.send(&of("u", "/502")).status, 502);
    // On any connection, so on any worker.
    for mut client in envoy.clients(4) {
        assert_eq!(statuses::<2>(&mut client, &of("u", "/401")), [429; 2]);
        assert_eq!(client.send(&of("u", "/200")).status, 429);
        assert_eq!(client.send(&of("other", "/200")).status, 200);
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// A request in flight when the quota is used up still counts once it fails, and breaks nothing.
#[test]
fn failures_under_way_together_use_the_quota_up() {
    let envoy = start(&policy(4, "1h", &json!({"charge": {"response_status": ["401"]}})));
    let mut clients = envoy.clients(12);
    for client in &mut clients {
        client.start(&of("u", "/401")).expect("taken");
    }
    for client in &mut clients {
        let status = client.finish(false).expect("answered").status;
        assert!([401, 429].contains(&status), "{status}");
    }
    assert_eq!(envoy.client().send(&of("u", "/200")).status, 429);
    assert_eq!(envoy.client().send(&of("v", "/200")).status, 200);
}

// The origin trusts the mark, so only Tollgate may set it: the client's own lines of that name are
// removed.
#[test]
fn a_mark_reaches_the_origin_and_replaces_the_clients_own() {
    let more = json!({"action": {"mark": {"header": "x-over-limit", "value": "yes, 1"}}});
    let envoy = start(&policy(1, "1h", &more));
    let mut client = envoy.client();
    let marks = |response: &Response| -> Vec<String> {
        assert_eq!(response.status, 200);
        let text = response.text().to_ascii_lowercase();
        text.lines().filter(|line| line.starts_with("x-over-limit")).map(Into::into).collect()
    };
    assert_eq!(marks(&client.send(&of("k", "/"))), Vec::<String>::new());
    assert_eq!(marks(&client.send(&of("k", "/"))), ["x-over-limit: yes, 1"]);
    let own = of("k", "/").header("X-Over-Limit", "0").header("x-over-limit", "no");
    assert_eq!(marks(&client.send(&own)), ["x-over-limit: yes, 1"]);
    assert_eq!((envoy.decisions("r", "allowed"), envoy.decisions("r", "marked")), (1, 2));
}

// A bot must believe that it was served: nothing in the response may reveal a limit, and a body
// with a status that has none would be read as the next response on the connection.
#[test]
fn an_answer_in_silence_tells_nothing() {
    for (respond, status, body) in [
        (json!({"status": 201, "body": "thanks"}), 201, "thanks"),
        (json!({"status": 200, "body": ""}), 200, ""),
        (json!({"status": 204}), 204, ""),
        (json!({"status": 204, "body": "lost"}), 204, ""),
        (json!({"status": 304, "body": "lost"}), 304, ""),
    ] {
        let envoy = start(&policy(1, "1h", &json!({"action": {"respond": respond}})));
        let mut client = envoy.client();
        let served = client.send(&of("k", "/"));
        assert_eq!((served.status, told(&served)), (200, vec![]));
        for denied in 1..=2 {
            let silent = client.send(&of("k", "/"));
            assert_eq!(
                (silent.status, silent.text(), told(&silent)),
                (status, body.into(), vec![])
            );
            let kind = (!body.is_empty()).then_some("text/plain");
            assert_eq!(silent.header("content-type").as_deref(), kind, "{silent:?}");
            assert_eq!(envoy.decisions("r", "denied"), denied);
        }
    }
}

// A custom status and body, and a custom status alone, whose body is still the standard one.
#[test]
fn a_refusal_of_ones_own() {
    for (reply, body) in
        [(json!({"status": 503, "body": "busy"}), Some("busy")), (json!({"status": 420}), None)]
    {
        let envoy = start(&policy(1, "1h", &json!({"action": {"deny": reply}})));
        let mut client = envoy.client();
        assert_eq!(client.send(&of("k", "/")).status, 200);
        let denied = client.send(&of("k", "/"));
        assert_eq!(Value::from(denied.status), reply["status"]);
        assert_eq!(told(&denied), ["retry-after", "ratelimit-policy", "ratelimit"]);
        assert_eq!(denied.header("cache-control").as_deref(), Some("no-store"));
        let kind = denied.header("content-type").expect("a content type");
        if let Some(body) = body {
            assert_eq!((kind.as_str(), denied.text().as_str()), ("text/plain", body));
        } else {
            assert_eq!(kind, "application/problem+json");
            let problem: Value = serde_json::from_slice(&denied.body).expect("the body is JSON");
            assert_eq!(problem["status"], reply["status"]);
        }
    }
}

/// The time of the response to each of `count` requests that arrive at once, soonest first, and its
/// status.
fn arrive_at_once(envoy: &Envoy, count: usize) -> Vec<(Duration, u16)> {
    let mut clients = envoy.clients(count);
    let started = Instant::now();
    for client in &mut clients {
        client.start(&of("k", "/")).expect("taken");
    }
    let wait = move |mut client: Client| {
        let status = client.finish(false).expect("answered").status;
        (started.elapsed(), status)
    };
    let waiting = clients.into_iter().map(|client| thread::spawn(move || wait(client)));
    let waiting: Vec<_> = waiting.collect();
    let mut answers: Vec<_> = waiting.into_iter().map(|t| t.join().expect("a client")).collect();
    answers.sort();
    answers
}

fn delay(limit: u32, window: &str, max: &str) -> Value {
    let quota = json!({"name": "q", "limit": limit, "window": window, "burst": 1});
    policy(1, "1s", &json!({"quotas": [quota], "action": {"delay": {"max": max}}}))
}

// Shaping by a quota without a queue: each request is decided again until it fits, by either
// worker, never early.
#[test]
fn who_is_over_the_limit_waits_and_passes() {
    let envoy = start(&delay(20, "1s", "10s"));
    let answers = arrive_at_once(&envoy, 12);
    for (place, (at, status)) in (0..).zip(&answers) {
        assert_eq!(*status, 200, "{answers:?}");
        // The first arrived a little after the test's clock started: none may be earlier than that.
        let due = Duration::from_millis(50) * place;
        assert!(*at >= due, "place {place} left early: {answers:?}");
    }
    assert_eq!(envoy.decisions("r", "denied"), 0, "nobody was refused");
    // On a busy machine a request may arrive so late that it need not wait.
    let (allowed, delayed) = (envoy.decisions("r", "allowed"), envoy.decisions("r", "delayed"));
    assert_eq!(allowed + delayed, 12);
    assert!(allowed >= 1 && delayed >= 6, "{allowed} {delayed}");
}

// A client whose wait would be longer than the rule permits is denied at once, with the length of
// the wait.
#[test]
fn a_wait_that_is_too_long_is_refused_at_once() {
    // If it waited, this client's time-out would end first.
    let envoy = start(&delay(1, "1h", "5m"));
    let mut client = envoy.client();
    assert_eq!(client.send(&of("k", "/")).status, 200);
    let refused = client.send(&of("k", "/"));
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").and_then(|s| s.parse().ok()).expect("seconds");
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!((envoy.decisions("r", "allowed"), envoy.decisions("r", "denied")), (1, 1));
}

// Many wait for the same place: a request that still has none when its time is up is denied after
// all.
#[test]
fn who_waits_in_vain_is_refused() {
    let envoy = start(&delay(10, "2s", "500ms"));
    let answers = arrive_at_once(&envoy, 9);
    let passed = answers.iter().filter(|(_, status)| *status == 200).count();
    let refused = answers.iter().filter(|(_, status)| *status == 429).count();
    // At 0, 200 and 400 ms; fewer if the machine was slow.
    assert!((1..=3).contains(&passed) && passed + refused == 9, "{answers:?}");
    assert_eq!(envoy.decisions("r", "denied"), refused as u64);
    // The denied were not charged: a place is free soon.
    thread::sleep(Duration::from_millis(250));
    assert_eq!(envoy.client().send(&of("k", "/")).status, 200);
}

// After its wait a request is like any other: its body is whole, the origin sees the mark, the
// client its fields, and the response is charged.
#[test]
fn a_request_that_waited_lacks_nothing() {
    let rule = |name: &str, limit: u32, window: &str, more: &Value| {
        let mut rule = policy(limit, window, more)["rules"][0].take();
        rule["name"] = json!(name);
        rule["quotas"][0]["name"] = json!(name);
        rule
    };
    let policy = json!({"version": 1, "rules": [
        rule("slow", 1, "500ms", &json!({"action": {"delay": {"max": "5s"}}})),
        rule("marked", 1, "1h", &json!({"action": {"mark": {"header": "x-mark", "value": "1"}}})),
        rule("login", 2, "1h", &json!({"charge": {"response_status": ["401"]}})),
    ]});
    let envoy = start(&policy);
    let mut client = envoy.client();
    let post = Request::post("/401", vec![b'x'; 300_000]).header("x-key", "k");
    let first = client.send(&post);
    assert_eq!((first.status, first.text().contains("x-mark")), (401, false));
    let asked = Instant::now();
    let second = client.send(&post);
    assert!(asked.elapsed() > Duration::from_millis(300), "it did not wait");
    assert_eq!((second.status, second.text().contains("x-mark: 1\r\n")), (401, true));
    let said = second.header("ratelimit").expect("the field");
    assert!(said.contains("\"slow\";r=0;") && said.contains("\"login\";r=1;"), "{said}");
    let third = client.send(&post);
    assert_eq!(third.status, 429, "both failures were charged");
    assert_eq!(envoy.decisions("slow", "delayed"), 1);
}

// Clients leave while they wait: their turn passes unused, and the worker continues.
#[test]
fn clients_that_leave_while_they_wait_harm_nobody() {
    let envoy = start(&delay(1, "2s", "1m"));
    assert_eq!(envoy.client().send(&of("k", "/")).status, 200);
    // With their places taken the last of the four would wait for longer than its time-out.
    let mut leavers = envoy.clients(10);
    for leaver in &mut leavers {
        leaver.start(&of("k", "/")).expect("taken");
    }
    thread::sleep(Duration::from_millis(50));
    drop(leavers);
    let answers = arrive_at_once(&envoy, 4);
    assert!(answers.iter().all(|(_, status)| *status == 200), "{answers:?}");
    let mut clients = envoy.clients(4);
    for client in &mut clients {
        assert_eq!(client.send(&of("another", "/")).status, 200);
        assert_eq!(client.send(&Request::get("/")).status, 200);
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Trying a limit out: it is counted, but has no effect that a client can see.
#[test]
fn a_shadow_is_counted_and_not_felt() {
    let envoy = start(&policy(2, "1h", &json!({"mode": "shadow"})));
    let mut client = envoy.client();
    for _ in 0..6 {
        let response = client.send(&of("k", "/"));
        assert_eq!((response.status, told(&response)), (200, vec![]));
    }
    let results = ["allowed", "shadowed", "denied"].map(|result| envoy.decisions("r", result));
    assert_eq!(results, [2, 4, 0]);
}

// Plans: by the key, by a condition on the request, and the higher priority when both hold.
#[test]
fn tiers_replace_the_quotas() {
    let quotas = |name: &str, limit: u32| json!([{"name": name, "limit": limit, "window": "1h"}]);
    let tiers = json!([
        {"name": "pro", "priority": 5, "when": {"headers": {"x-plan": "pro"}}, "quotas": quotas("pro", 2)},
        {"name": "gold", "priority": 10, "key_values": ["k-123"], "quotas": quotas("gold", 3)},
    ]);
    let envoy = start(&policy(1, "1h", &json!({"tiers": tiers})));
    let check = |request: Request, name: &str, limit: usize| {
        let mut client = envoy.client();
        let first = client.send(&request);
        let policy = first.header("ratelimit-policy").expect("the field");
        assert_eq!(policy, format!("\"{name}\";q={limit};w=3600"));
        let admitted = 1 + (0..9).take_while(|_| client.send(&request).status == 200).count();
        assert_eq!(admitted, limit, "{name}");
    };
    check(of("k-1234", "/"), "q", 1);
    check(of("k-1", "/").header("x-plan", "pro"), "pro", 2);
    check(of("k-123", "/").header("x-plan", "pro"), "gold", 3);
    check(of("k-2", "/").header("x-plan", "professional"), "q", 1);
}

// One count for each route of Envoy, whatever the paths look like; a route without a name has no
// count.
#[test]
fn a_key_may_be_the_route() {
    let rule = json!({"key": ["route"]});
    let mut listener =
        Listener::new("main", vec![tollgate(&policy(1, "1h", &rule), "vm", As::Text)]);
    let route = |name: &str, prefix: &str| json!({"name": name, "match": {"prefix": prefix}, "direct_response": {"status": 200}});
    listener.routes = json!([
        route("api", "/v1/"),
        route("rest", "/v2/"),
        {"match": {"path": "/nameless"}, "direct_response": {"status": 200}},
    ]);
    let envoy = Setup::new(2, vec![listener]).start();
    let mut client = envoy.client();
    assert_eq!(statuses::<2>(&mut client, &of("k", "/v1/x")), [200, 429]);
    assert_eq!(client.send(&of("other", "/v1/y")).status, 429, "the same route");
    assert_eq!(statuses::<2>(&mut client, &of("k", "/v2/x")), [200, 429]);
    assert_eq!(statuses::<3>(&mut client, &of("k", "/nameless")), [200; 3]);
    assert_eq!(statuses::<3>(&mut client, &of("k", "/no-route-at-all")), [404; 3]);
}

// A rule for one route of Envoy: the name is the route's, whatever the path looks like.
#[test]
fn a_rule_may_be_for_one_route() {
    let filters =
        vec![tollgate(&policy(1, "1h", &json!({"when": {"routes": ["api"]}})), "vm", As::Text)];
    let mut listener = Listener::new("main", filters);
    let route = |name: &str, matches: Value| {
        let body = json!({"inline_string": name});
        json!({"name": name, "match": matches, "direct_response": {"status": 200, "body": body}})
    };
    listener.routes = json!([
        route("api", json!({"prefix": "/v1/"})),
        route("rest", json!({"prefix": "/api"})),
        {"match": {"path": "/nameless"}, "direct_response": {"status": 200}},
    ]);
    let envoy = Setup::new(2, vec![listener]).start();
    let mut client = envoy.client();
    assert_eq!(statuses::<3>(&mut client, &of("k", "/api")), [200; 3]);
    assert_eq!(statuses::<3>(&mut client, &of("k", "/nameless")), [200; 3]);
    assert_eq!(statuses::<3>(&mut client, &of("k", "/no-route-at-all")), [404; 3]);
    assert_eq!(statuses::<2>(&mut client, &of("k", "/v1/x")), [200, 429]);
    assert_eq!(client.send(&of("k", "/v1/y")).status, 429);
}
