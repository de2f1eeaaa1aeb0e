//! Costs that are corrected afterwards, counted in a real Redis: by two servers, across a restart
//! of each and of the engine.
//!
//! Guards: a cost that is settled twice because another server, or a new one, does not know of the
//! first settlement.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::answer;

use crate::fleet_engine_redis::{Kind, Redis};

const LIMIT: u64 = 100;
const SECRET: &str = "only-for-tests-names-of-keys";

fn server(redis: &Redis) -> TollgateServer {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": LIMIT, "window": "366d"});
    let policy = json!({"version": 1, "rules": [{"name": "tokens", "key": [{"header": "x-key"}],
        "quotas": [quota], "cost": {"header": "x-cost", "max": 50}}]});
    let server = Setup::new(policy).variable("TOLLGATE_HASH_KEY", SECRET);
    let server = server.set("store", redis.address());
    server.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
}

fn check(server: &TollgateServer, key: &str, cost: u64) -> Value {
    let asked = json!({"method": "POST", "path": "/", "client_ip": "192.0.2.1", "settle": true,
        "headers": {"x-key": key, "x-cost": cost.to_string()}});
    answer(&server.client().send(&Request::post("/check", asked.to_string())))
}

fn id(server: &TollgateServer, key: &str, cost: u64) -> String {
    let answer = check(server, key, cost);
    assert_eq!(answer["decision"], "allow", "{answer}");
    answer["id"].as_str().unwrap_or_else(|| panic!("no id: {answer}")).to_owned()
}

fn send(server: &TollgateServer, id: &str, cost: u64) -> Response {
    let body = json!({"id": id, "cost": cost}).to_string();
    server.client().send(&Request::post("/check/settle", body))
}

fn settle(server: &TollgateServer, id: &str, cost: u64) -> Value {
    answer(&send(server, id, cost))
}

fn settled(cost: u64, charged: u64) -> Value {
    json!({"result": "settled", "cost": cost, "charged": charged})
}

/// The remaining units of a key, by a request that costs one.
fn left(server: &TollgateServer, key: &str) -> u64 {
    let answer = check(server, key, 1);
    let field = answer["headers"]["ratelimit"].as_str().expect("a field").to_owned();
    let left = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    left.and_then(|left| left.parse().ok()).expect("a number")
}

#[test]
fn a_cost_is_settled_once_whichever_server_hears_of_it() {
    let mut redis = Redis::start(Kind::Durable);
    let mut servers = [server(&redis), server(&redis)];
    let lower = id(&servers[0], "a", 30);
    // The server that did not charge it settles it; both know of it from then on.
    assert_eq!(settle(&servers[1], &lower, 10), settled(10, 10));
    for server in &servers {
        assert_eq!(settle(server, &lower, 10), settled(10, 10), "repeated");
        let other = json!({"result": "conflict", "cost": 10});
        assert_eq!(settle(server, &lower, 11), other, "higher than what was settled");
        assert_eq!(settle(server, &lower, 0), other, "lower than what was settled");
    }
    assert_eq!(left(&servers[0], "a"), LIMIT - 10 - 1);
    let higher = id(&servers[1], "a", 30);
    assert_eq!(settle(&servers[0], &higher, 45), settled(45, 45));
    assert_eq!(left(&servers[1], "a"), LIMIT - 10 - 1 - 45 - 1);

    // A new server, and an engine that was restarted with its data, also know it.
    servers[0].crash();
    redis.restart();
    let fresh = server(&redis);
    for server in [&servers[1], &fresh] {
        // The first request may find the connection cut: it fails, and is sent again.
        let mut said = send(server, &higher, 45);
        for _ in 0..100 {
            if said.status == 200 {
                break;
            }
            assert_eq!(said.status, 503, "{}", said.text());
            std::thread::sleep(std::time::Duration::from_millis(50));
            said = send(server, &higher, 45);
        }
        assert_eq!(answer(&said), settled(45, 45));
        assert_eq!(settle(server, &lower, 10), settled(10, 10));
        assert_eq!(settle(server, &higher, 1), json!({"result": "conflict", "cost": 45}));
    }
    assert_eq!(left(&fresh, "a"), LIMIT - 10 - 1 - 45 - 1 - 1);
}

#[test]
fn what_does_not_fit_is_charged_once_and_ids_of_others_are_refused() {
    let redis = Redis::start(Kind::Plain);
    let servers = [server(&redis), server(&redis)];
    let most = id(&servers[0], "a", 30);
    for server in servers.iter().cycle().take(4) {
        assert_eq!(settle(server, &most, 1_000_000_000), settled(1_000_000_000, 1_000_000_000));
    }
    assert_eq!(check(&servers[1], "a", 1)["decision"], "deny");
    let mut forged = id(&servers[0], "b", 30);
    let last = forged.pop().expect("a digit");
    forged.push(if last == 'A' { 'B' } else { 'A' });
    for id in [forged.as_str(), "", "A", &"A".repeat(60_000)] {
        let refused = send(&servers[1], id, 1);
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    assert_eq!(left(&servers[0], "b"), LIMIT - 30 - 1, "and nothing came back");
    // An id of the same secret, whose count is gone: nothing is refunded, a higher cost is charged.
    let gone = id(&servers[0], "c", 30);
    assert_eq!(redis.command(&["FLUSHALL"]), "+OK");
    assert_eq!(settle(&servers[0], &gone, 10)["result"], "settled");
    assert_eq!(left(&servers[1], "c"), LIMIT - 1, "not more than the limit");
}

// Guards: two servers that settle the same id at the same time.
#[test]
fn settled_at_once_by_all_it_is_settled_once() {
    let redis = Redis::start(Kind::Plain);
    let servers = [server(&redis), server(&redis)];
    let ids: Vec<String> = (0..3).map(|_| id(&servers[0], "a", 30)).collect();
    std::thread::scope(|scope| {
        for i in 0..8 {
            let (server, ids) = (&servers[i % 2], &ids);
            scope.spawn(move || {
                for id in ids {
                    assert_eq!(settle(server, id, 5), settled(5, 5));
                }
            });
        }
    });
    assert_eq!(left(&servers[0], "a"), LIMIT - 3 * 5 - 1);
}
