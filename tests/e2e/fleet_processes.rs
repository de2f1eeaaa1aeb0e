//! Several `tollgate-server` processes on one real Redis: one budget, and rules that are put to one
//! of them apply on all.

#[allow(dead_code, reason = "the tests of the filter use the rest")]
mod envoy_server;
mod fleet_policy;
#[allow(dead_code, reason = "the tests of the Worker use the rest")]
mod following_envoys;
#[path = "fleet_engine_redis.rs"]
#[allow(dead_code, reason = "the other tests of a shared engine use the rest")]
mod fleet_engine_redis;
#[path = "fleet_budget.rs"]
mod fleet_budget;
#[path = "fleet_cluster.rs"]
mod fleet_cluster;
#[path = "fleet_denials.rs"]
mod fleet_denials;
mod fleet_in_flight;
mod fleet_penalty;
#[path = "fleet_losses.rs"]
mod fleet_losses;
#[path = "fleet_replicas.rs"]
mod fleet_replicas;
#[path = "fleet_reported.rs"]
mod fleet_reported;
#[path = "fleet_settle.rs"]
mod fleet_settle;
#[path = "fleet_usage.rs"]
mod fleet_usage;
#[path = "fleet_whole.rs"]
mod fleet_whole;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fleet_engine_redis::{Kind, Redis};
use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate_e2e::collector::{Collector, Manner};
use tollgate_e2e::envoy_messages::{RateLimitRequest, RateLimitResponse, descriptor};
use tollgate_e2e::grpc::{framed, unary};
use tollgate_e2e::http::Request;
use tollgate_e2e::http2::{self, Sent};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::{answer, check_request};

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const SOON: Duration = Duration::from_secs(30);

fn policy(limit: u64) -> Value {
    json!({"version": 1, "tenant": {"header": "x-tenant"}, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": limit, "window": "366d"}]},
        {"name": "all", "key": [], "quotas": [{"limit": 100_000, "window": "366d"}]}]})
}

fn server(redis: &Redis, policy: &Value) -> TollgateServer {
    let server = Setup::new(policy).operated().set("store", redis.address());
    server.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
}

fn decision(server: &TollgateServer, client_ip: &str) -> String {
    let answered = answer(&server.client().send(&check_request("GET", "/", client_ip)));
    answered["decision"].as_str().expect("a decision").to_owned()
}

// Guards: processes that race with each other, and their refunds of the rule that all share.
#[test]
fn four_servers_admit_what_one_would_and_a_killed_one_costs_nobody() {
    let redis = Redis::start(Kind::Plain);
    let policy = policy(1_000);
    let mut servers: Vec<_> = (0..4).map(|_| server(&redis, &policy)).collect();
    let (admitted, denied) = (AtomicU64::new(0), AtomicU64::new(0));
    let ask = |server: &TollgateServer, requests: usize| {
        let one = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
        let batch = json!({"requests": vec![one; 10]}).to_string();
        let mut client = server.client();
        for _ in 0..requests / 10 {
            let text = client.send(&Request::post("/check", batch.as_str())).text();
            let count = |word: &str| text.matches(word).count() as u64;
            admitted.fetch_add(count("\"decision\":\"allow\""), Ordering::Relaxed);
            denied.fetch_add(count("\"decision\":\"deny\""), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for server in &servers {
            for _ in 0..2 {
                scope.spawn(|| ask(server, 200));
            }
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), 1_000);
    assert_eq!(denied.load(Ordering::Relaxed), 600);
    // `all` was charged exactly for the allowed requests.
    let left = redis.command(&["DBSIZE"]);
    assert_eq!(left, ":4", "two keys, the rules and the marker");
    servers[0].server.kill();
    for server in &servers[1..] {
        assert_eq!(decision(server, "192.0.2.1"), "deny");
        assert_eq!(decision(server, "192.0.2.2"), "allow");
    }
    servers[0].crash();
    assert_eq!(decision(&servers[0], "192.0.2.1"), "deny", "a server has nothing to lose");
}

// Guards: two histories with the same numbers.
#[test]
fn rules_put_to_one_server_hold_on_all_and_after_restarts() {
    let redis = Redis::start(Kind::Plain);
    let mut servers: Vec<_> = (0..3).map(|_| server(&redis, &policy(1))).collect();
    assert_eq!(decision(&servers[0], "192.0.2.1"), "allow");
    assert_eq!(decision(&servers[1], "192.0.2.1"), "deny");
    let tag = |server: &TollgateServer| {
        server.operate("GET", "admin/policy", "", &[]).header("etag").expect("a tag").to_string()
    };
    let before = tag(&servers[0]);
    assert_eq!(before, tag(&servers[2]));
    let put = |server: &TollgateServer, limit, tag: &str| {
        server
            .operate("PUT", "admin/policy", &policy(limit).to_string(), &[("if-match", tag)])
            .status
    };
    assert!(put(&servers[0], 3, &before) < 300);
    assert_eq!(put(&servers[1], 9, &before), 412, "somebody was faster");
    let after = tag(&servers[1]);
    assert_ne!(after, before);
    for server in &servers[1..] {
        wait_until("it follows", SOON, || {
            let health = server.operate("GET", "admin/policy", "", &[]).text();
            health.contains("\"limit\":3").then_some(())
        });
    }
    wait_until("the second request is allowed everywhere", SOON, || {
        (decision(&servers[2], "192.0.2.1") == "allow").then_some(())
    });
    // Four servers put tenants at the same time: each server then has all of them.
    let entry = r#"{"quotas": {"each": [{"limit": 5, "window": "1h"}]}}"#;
    thread::scope(|scope| {
        for (i, server) in servers.iter().enumerate() {
            scope.spawn(move || {
                for n in 0..20 {
                    let path = format!("admin/tenants/t{i}-{n}");
                    let fields = [("if-none-match", "*")];
                    let put = server.operate("PUT", &path, entry, &fields);
                    assert!(put.status < 300, "{}", put.text());
                }
            });
        }
    });
    servers[2].crash();
    for server in &servers {
        for i in 0..3 {
            let path = format!("admin/tenants/t{i}-19");
            assert_eq!(server.operate("GET", &path, "", &[]).status, 200, "{path}");
        }
        assert_eq!(tag(server), after);
    }
}

// Guards: two operators who both believe that their change is in force, and a roll-back that only
// one server knows.
#[test]
fn of_operators_who_race_one_succeeds_and_a_roll_back_is_everybodys() {
    let redis = Redis::start(Kind::Plain);
    let servers: Vec<_> = (0..3).map(|_| server(&redis, &policy(1))).collect();
    let read = |server: &TollgateServer| server.operate("GET", "admin/policy", "", &[]);
    let version = |server: &TollgateServer| {
        let said = read(server).header("tollgate-policy-version").expect("a version");
        said.parse::<u64>().expect("a number")
    };
    for round in 0..20 {
        let tag = read(&servers[round % 3]).header("etag").expect("a tag");
        let before = version(&servers[0]);
        let statuses = thread::scope(|scope| {
            let put = |i: usize| {
                let (server, tag) = (&servers[i % 3], &tag);
                let policy = policy(10 + (round * 6 + i) as u64).to_string();
                scope.spawn(move || {
                    server.operate("PUT", "admin/policy", &policy, &[("if-match", tag)]).status
                })
            };
            let all: Vec<_> = (0..6).map(put).collect();
            all.into_iter().map(|one| one.join().expect("answered")).collect::<Vec<_>>()
        });
        let good = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(good, 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 409, 412].contains(status)), "{statuses:?}");
        assert!(servers.iter().all(|server| version(server) == before + 1));
    }
    let limit = |server: &TollgateServer| {
        let text = read(server).text();
        let policy: Value = serde_json::from_str(&text).expect("JSON");
        policy["rules"][0]["quotas"][0]["limit"].as_u64().expect("a limit")
    };
    let last = limit(&servers[0]);
    let now = version(&servers[0]);
    let to = json!({"to": now - 1}).to_string();
    let back = servers[1].operate("POST", "admin/policy/rollback", &to, &[("if-match", "*")]);
    assert_eq!(back.status, 200, "{}", back.text());
    for server in &servers {
        assert_eq!(version(server), now + 1);
        assert_ne!(limit(server), last);
        let history = server.operate("GET", "admin/policy/history?limit=1", "", &[]).text();
        assert!(history.contains("\"kind\":\"rollback\""), "{history}");
        let enforced = limit(server);
        wait_until("it decides by it", SOON, || {
            let field = server.client().send(&check_request("GET", "/", "192.0.2.77")).text();
            field.contains(&format!("q={enforced};")).then_some(())
        });
    }
}

// Guards: a server that waits for an unreachable engine, and one that never finds it again.
#[test]
fn an_engine_that_is_away_is_on_failure_and_is_found_again() {
    let mut redis = Redis::start(Kind::Plain);
    let mut policy = policy(5);
    policy["rules"][0]["on_failure"] = json!("deny");
    let server = server(&redis, &policy);
    assert_eq!(decision(&server, "192.0.2.1"), "allow");
    redis.kill();
    assert_eq!(decision(&server, "192.0.2.1"), "deny");
    let metrics = server.operate("GET", "metrics", "", &[]).text();
    let faults = metrics.lines().find(|line| line.contains("fault=\"unreachable\"")).expect("told");
    assert!(!faults.ends_with(" 0"), "{faults}");
    redis.restart();
    wait_until("it is found again", SOON, || {
        (decision(&server, "192.0.2.1") == "allow").then_some(())
    });
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The number of refund calls to counts.
fn refunds(server: &TollgateServer) -> u64 {
    let metrics = server.operate("GET", "metrics", "", &[]).text();
    let line = metrics.lines().find(|line| line.contains("\"refund\""));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

// Guards: quotas that are used up by requests that got no response, because their clients
// disconnected during the call to the engine; for each kind of request.
#[test]
fn a_client_that_leaves_before_its_answer_is_charged_nothing() {
    let redis = Redis::start(Kind::Plain);
    let quota = json!([{"limit": 1, "window": "366d", "algorithm": "fixed-window"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "user", "key": [{"descriptor": "user"}], "quotas": quota},
        {"name": "each", "key": ["client_ip"], "quotas": quota}]});
    let server = Setup::new(policy).operated().set("store", redis.address());
    let server = server.set("protocols", "ratelimit").set("store_timeout", 60_000);
    let server = server.set("store_tolerance", 10_000).start();
    let call = |user: &str| RateLimitRequest {
        domain: b"web".into(),
        descriptors: vec![descriptor(&[("user", user)]), descriptor(&[("user", "b")])],
        hits_addend: 1,
    };
    let limit = |user: &str| {
        let message = call(user).encode_to_vec();
        let answer = unary(server.port, LIMIT, &message, &[]).answer;
        RateLimitResponse::decode(&*answer).expect("an answer").statuses[0].code
    };
    // After this the connection to the engine is open, and all calls that do not belong to a
    // request are done.
    assert_eq!(limit("z"), 1);
    assert_eq!(refunds(&server), 0);
    redis.signal(Signal::STOP);
    let request = Request::post(LIMIT, framed(&call("a").encode_to_vec()))
        .header("content-type", "application/grpc");
    let mut checking = std::net::TcpStream::connect(("127.0.0.1", server.port)).expect("there");
    checking.write_all(&check_request("GET", "/", "192.0.2.9").to_bytes()).expect("sent");
    let calling = http2::hold(server.port, &request, Sent::Begun);
    // Both are at the engine: two descriptors and an address; b is used up, and denies at once.
    wait_until("both are asked", SOON, || {
        let metrics = server.operate("GET", "metrics", "", &[]).text();
        let line = metrics.lines().find(|line| line.starts_with("tollgate_store_calls_total "));
        let calls: u64 = line.and_then(|line| line.split(' ').nth(1)?.parse().ok())?;
        (calls >= 4).then_some(())
    });
    drop((calling, checking));
    // The server has noticed that they left.
    wait_until("they left", SOON, || {
        let metrics = server.operate("GET", "metrics", "", &[]).text();
        let line = metrics.lines().find(|line| line.starts_with("tollgate_connections "));
        let open: u64 = line.and_then(|line| line.split(' ').nth(1)?.parse().ok())?;
        (open <= 1).then_some(())
    });
    redis.signal(Signal::CONT);
    wait_until("both are given back", SOON, || (refunds(&server) >= 2).then_some(()));
    // A later request gets the units that they did not use.
    wait_until("a is whole", SOON, || (limit("a") == 1).then_some(()));
    wait_until("the address is whole", SOON, || {
        (decision(&server, "192.0.2.9") == "allow").then_some(())
    });
    assert_eq!((limit("a"), &*decision(&server, "192.0.2.9")), (2, "deny"), "and no more");
}

#[test]
fn round_trips_to_the_engine_are_spans_below_who_asked() {
    let (redis, collector) = (Redis::start(Kind::Plain), Collector::start(Manner::Takes));
    let server = Setup::new(policy(1_000)).operated().set("store", redis.address());
    let server = server.set("store_timeout", 5_000).set("store_tolerance", 2_000);
    let server = server.set("traces", format!("http://127.0.0.1:{}", collector.port)).start();
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let one = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
    let batch = json!({"requests": vec![one; 10]}).to_string();
    let request = Request::post("/check", batch).header("traceparent", parent);
    assert_eq!(server.client().send(&request).status, 200);
    // Ten requests of two keys, each of which is charged without a look before.
    let spans = wait_until("spans", SOON, || {
        let spans: Vec<_> = collector.exports().into_iter().flat_map(|(_, spans)| spans).collect();
        spans.iter().any(|span| span.name == "POST /check").then_some(spans)
    });
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (asked, trips) = (named("store"), named("store round trip"));
    assert_eq!((named("decide").len(), asked.len()), (10, 20));
    let is_asked = |id: &[u8]| asked.iter().any(|span| span.span_id == id);
    let (mut answered, mut linked) = (0, 0);
    for trip in &trips {
        assert!(is_asked(&trip.parent_span_id), "below the first that it answered");
        assert!(trip.links.iter().all(|link| is_asked(&link.span_id)));
        assert!(trip.attribute("tollgate.store.result").is_some());
        let of_trip =
            trip.attribute("tollgate.store.answered").and_then(|it| it.parse::<usize>().ok());
        assert_eq!(of_trip, Some(trip.links.len() + 1));
        answered += of_trip.unwrap_or(0);
        linked += trip.links.len();
    }
    println!("{} round trips, {answered} answers, {linked} links", trips.len());
    assert!(answered <= 20 && trips.len() < 20 && linked > 0, "a batch is one round trip");
    assert!(spans.iter().all(|span| span.trace_id[0] == 0x4b));
}
