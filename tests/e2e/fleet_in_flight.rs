//! Requests in flight that callers of `/check` confirm and end: of one server in memory, and of two
//! that share a Redis.

use std::thread;
use std::time::Duration;

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::in_flight::{LIMIT, counted, done, fill, id, policy, renew};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{Setup, TollgateServer};

use crate::fleet_engine_redis::{Kind, Redis};

const SECRET: &str = "only-for-tests-names-of-keys";
const CLIENT: &str = "192.0.2.1";
const SOON: Duration = Duration::from_secs(60);

fn shared(redis: &Redis, max_age: &str) -> Setup {
    let setup = Setup::new(policy(max_age)).operated().variable("TOLLGATE_HASH_KEY", SECRET);
    let setup = setup.set("store", redis.address());
    setup.set("store_timeout", 5_000).set("store_tolerance", 2_000)
}

/// The ids of what is allowed of 200 requests at the same time.
fn race(servers: &[TollgateServer]) -> Vec<String> {
    thread::scope(|scope| {
        let each = |server: &TollgateServer| {
            let mut caller = server.client();
            scope.spawn(move || (0..5).filter_map(|_| id(&mut caller, CLIENT)).collect::<Vec<_>>())
        };
        let racing: Vec<_> = servers.iter().cycle().take(40).map(each).collect();
        racing.into_iter().flat_map(|it| it.join().expect("ids")).collect()
    })
}

/// Exactly the limit is allowed, and each end frees one.
fn counts_what_runs(servers: &[TollgateServer]) {
    let mut callers: Vec<Client> = servers.iter().map(TollgateServer::client).collect();
    let (first, last) = (&servers[0], servers.last().expect("a server"));
    let other = callers.len() - 1;
    let mut ids = race(servers);
    assert_eq!((ids.len(), counted(first, CLIENT)), (LIMIT, LIMIT));
    // It is seen at once, whichever server gets the report.
    for _ in 0..3 {
        let ended = ids.pop().expect("an id");
        for i in [0, other, other, 0] {
            done(&mut callers[i], &ended);
        }
        assert_eq!(counted(last, CLIENT), LIMIT - 1, "one end frees one");
        assert_eq!(renew(&mut callers[other], &ended), json!({"result": "expired"}));
        for caller in [0, other] {
            let next = fill(&mut callers[caller], CLIENT);
            assert_eq!(next.len(), 1);
            done(&mut callers[other - caller], &next[0]);
        }
        ids.extend(fill(&mut callers[other], CLIENT));
        assert_eq!(ids.len(), LIMIT);
    }
    // As many ends at the same time as callers repeat them.
    thread::scope(|scope| {
        for server in servers.iter().cycle().take(8) {
            let mut caller = server.client();
            let ids = &ids;
            scope.spawn(move || {
                for id in &ids[..LIMIT / 2] {
                    renew(&mut caller, id);
                    done(&mut caller, id);
                }
            });
        }
    });
    assert_eq!(counted(last, CLIENT), LIMIT - LIMIT / 2);
    assert_eq!(race(servers).len(), LIMIT / 2);
    // An operator ends all of them, and what is confirmed is counted again.
    let key = json!({"rule": "each", "key": [CLIENT]}).to_string();
    assert_eq!(last.operate("POST", "admin/keys/reset", &key, &[]).status, 204);
    assert_eq!(counted(first, CLIENT), 0);
    assert_eq!(renew(&mut callers[0], ids.last().expect("an id"))["result"], "renewed");
    assert_eq!(counted(last, CLIENT), 1);
}

// Guards: callers that race, and more that run than the limit.
#[test]
fn what_runs_is_counted_in_memory() {
    let server = Setup::new(policy("1h")).operated().start();
    counts_what_runs(&[server]);
}

// Guards: servers that count for themselves; an end that another server does not see, or that a
// server which does not know of it repeats; and a denial that is remembered.
#[test]
fn servers_that_share_a_store_count_together() {
    let redis = Redis::start(Kind::Plain);
    let start = || shared(&redis, "1h").start();
    counts_what_runs(&[start(), start()]);
}

/// Requests that nothing confirms are counted for `max_age` and no longer; one that is confirmed
/// stays counted.
fn forgets_what_is_not_confirmed(server: &TollgateServer) {
    let mut caller = server.client();
    let mut ids: Vec<_> = (0..LIMIT).filter_map(|_| id(&mut caller, CLIENT)).collect();
    wait_until("the places of a killed caller are free", SOON, || {
        (counted(server, CLIENT) == 0).then_some(())
    });
    // By its own id nothing happens any more, to it or to another.
    let dead = ids.remove(0);
    assert_eq!(renew(&mut caller, &dead), json!({"result": "expired"}));
    done(&mut caller, &dead);
    assert_eq!(server.metric("tollgate_in_flight_late_total"), 1);
    assert_eq!(server.metric("tollgate_in_flight_reports_total{report=\"done\"}"), 1);
    assert!(id(&mut caller, CLIENT).is_some());
}

#[test]
fn a_killed_caller_costs_its_places_for_max_age_in_memory() {
    forgets_what_is_not_confirmed(&Setup::new(policy("1s")).operated().start());
}

// Guards: ids that end with the server that gave them out.
#[test]
fn a_killed_server_costs_no_place_that_its_callers_report() {
    let redis = Redis::start(Kind::Plain);
    let mut servers = [shared(&redis, "1h").start(), shared(&redis, "1h").start()];
    let ids = fill(&mut servers[0].client(), CLIENT);
    assert_eq!(ids.len(), LIMIT);
    servers[0].crash();
    let mut caller = servers[1].client();
    for id in &ids {
        let renewed = renew(&mut caller, id);
        assert_eq!(renewed["renew_after_ms"], 1_200_000);
        done(&mut caller, renewed["id"].as_str().expect("an id"));
    }
    assert_eq!(counted(&servers[1], CLIENT), 0);
    forgets_what_is_not_confirmed(&shared(&redis, "1s").start());
}

// Guards: places that stay taken of requests that another key denied: their count is charged first,
// or meanwhile.
#[test]
fn a_request_that_another_key_denies_keeps_no_place() {
    let redis = Redis::start(Kind::Plain);
    let mut rules = policy("1h");
    rules["rules"].as_array_mut().expect("rules").push(json!({"name": "all", "key": [],
        "concurrency": {"limit": 3, "max_age": "1h"}}));
    let start = || {
        let setup = Setup::new(&rules).operated().variable("TOLLGATE_HASH_KEY", SECRET);
        let setup = setup.set("store", redis.address());
        setup.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
    };
    let servers = [start(), start()];
    let ids = race(&servers);
    assert!(ids.len() <= 3, "{} run", ids.len());
    assert_eq!(counted(&servers[0], CLIENT), ids.len(), "of the client, too");
    // Of two at the same time one may have been denied by the other's charge, which was refunded.
    let mut caller = servers[1].client();
    let ids = [ids, fill(&mut caller, CLIENT)].concat();
    assert_eq!((ids.len(), counted(&servers[0], CLIENT)), (3, 3));
    for (ended, id) in ids.iter().enumerate() {
        done(&mut caller, id);
        assert_eq!(counted(&servers[0], CLIENT), 2 - ended, "one report is for both");
    }
    assert_eq!(fill(&mut caller, CLIENT).len(), 3);
}

// Guards: a request by a protocol that reports no end, and takes a place for max_age.
#[test]
fn what_cannot_be_ended_is_refused_by_name() {
    let server = Setup::new(json!({"version": 1, "rules": []})).operated();
    let server = server.set("protocols", "nginx").start();
    let response =
        server.operate("PUT", "admin/policy", &policy("60s").to_string(), &[("if-match", "*")]);
    let said = response.text();
    assert_eq!(response.status, 422, "{said}");
    assert!(said.contains("rules[0].concurrency") && said.contains("with nginx"), "{said}");
    // Without a secret that servers share there are no ids.
    let redis = Redis::start(Kind::Plain);
    let setup = Setup::new(json!({"version": 1, "rules": []})).operated();
    let server = setup.set("store", redis.address()).start();
    let put = policy("60s").to_string();
    let response = server.operate("PUT", "admin/policy", &put, &[("if-match", "*")]);
    let said = response.text();
    assert_eq!(response.status, 422, "{said}");
    assert!(said.contains("needs hash_key"), "{said}");
    let post = server.client().send(&Request::post("/check/done", r#"{"id": "AA"}"#));
    assert_eq!(post.status, 404, "{}", post.text());
}
