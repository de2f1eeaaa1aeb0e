//! Denials that servers on one Redis remember: a denied client costs one call per second and
//! server, and units that come back are found whichever server gave them back.

use std::time::Instant;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{Setup, TollgateServer};

use crate::fleet_engine_redis::{Kind, Redis};
use crate::{SOON, decision};

const REMEMBERED: &str = "tollgate_remembered_denials_total";

/// One request in a year for each address, and three for all.
fn policy() -> Value {
    let year =
        |limit: u64| json!([{"algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    json!({"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": year(1)},
        {"name": "all", "key": [], "quotas": year(3)}]})
}

fn server(redis: &Redis) -> TollgateServer {
    let server = Setup::new(policy()).operated().set("store", redis.address());
    server.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
}

/// The decisions that Redis was asked for: each is one call of the script. Checks of the servers
/// and reads of the rules are other commands.
fn calls(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]);
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).and_then(|it| it.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

fn ask(client: &mut Client, ip: &str) -> (String, String) {
    let one = json!({"method": "GET", "path": "/", "client_ip": ip}).to_string();
    let answer = client.send(&Request::post("/check", one)).text();
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&answer["decision"]), text(&answer["headers"]["retry-after"]))
}

// Guards: a client that is denied for a year, and asks Redis with every request all that time; a
// site that is used up, and asks Redis for each of its clients.
#[test]
fn of_a_client_that_is_denied_redis_is_asked_once_a_second() {
    let redis = Redis::start(Kind::Plain);
    let server = server(&redis);
    let mut client = server.client();
    assert_eq!(ask(&mut client, "192.0.2.1").0, "allow");
    let (from_store, waits) = ask(&mut client, "192.0.2.1");
    assert_eq!(from_store, "deny");
    let flood = |client: &mut Client, ip: &dyn Fn(u32) -> String| {
        let (before, since) = (calls(&redis), Instant::now());
        let remembered = server.metric(REMEMBERED);
        for i in 0..300 {
            let (word, _) = ask(client, &ip(i));
            assert_eq!(word, "deny", "{i}");
        }
        // One request per second asks both counts; one more second, because the first may ask.
        let seconds = since.elapsed().as_secs() + 1;
        let calls = calls(&redis) - before;
        let remembered = server.metric(REMEMBERED) - remembered;
        println!("{calls} calls and {remembered} remembered of 300 in {seconds} s");
        assert!(calls <= 2 * seconds, "{calls} calls in {seconds} s");
        assert!(remembered >= 300 - seconds, "{remembered} of 300 in {seconds} s");
    };
    flood(&mut client, &|_| "192.0.2.1".to_owned());
    let (again, waits_again) = ask(&mut client, "192.0.2.1");
    assert_eq!(again, "deny");
    // The seconds left of a year: the wait from memory is the store's.
    let seconds = |text: &str| text.parse::<u64>().expect("seconds");
    assert!(seconds(&waits_again) <= seconds(&waits), "{waits_again} after {waits}");
    assert!(seconds(&waits) - seconds(&waits_again) <= SOON.as_secs(), "{waits_again}");
    // The site is used up; each of its clients is new.
    for ip in ["192.0.2.2", "192.0.2.3"] {
        assert_eq!(ask(&mut client, ip).0, "allow");
    }
    flood(&mut client, &|i| format!("198.51.100.{}", i % 250));
}

// Guards: an operator who resets a client at one server, and finds it denied at the others until
// its quota's window ends.
#[test]
fn a_reset_at_one_server_is_found_by_all() {
    let redis = Redis::start(Kind::Plain);
    let servers: Vec<_> = (0..2).map(|_| server(&redis)).collect();
    assert_eq!(decision(&servers[0], "192.0.2.1"), "allow");
    let reset = || {
        let body = json!({"rule": "each", "key": ["192.0.2.1"]}).to_string();
        assert_eq!(servers[0].operate("POST", "admin/keys/reset", &body, &[]).status, 204);
    };
    let deny = |server: &TollgateServer| {
        (0..20).for_each(|_| assert_eq!(decision(server, "192.0.2.1"), "deny"));
    };
    servers.iter().for_each(deny);
    assert!(servers[0].metric(REMEMBERED) > 0 && servers[1].metric(REMEMBERED) > 0);
    reset();
    assert_eq!(decision(&servers[0], "192.0.2.1"), "allow", "at once where it was reset");
    servers.iter().for_each(deny);
    reset();
    wait_until("the other server finds it", SOON, || {
        (decision(&servers[1], "192.0.2.1") == "allow").then_some(())
    });
    servers.iter().for_each(deny);
}

// Guards: a policy that is replaced, and clients that are denied by the quotas of the one before.
#[test]
fn another_policy_is_in_force_for_those_who_were_denied() {
    let redis = Redis::start(Kind::Plain);
    let server = server(&redis);
    assert_eq!(decision(&server, "192.0.2.1"), "allow");
    (0..20).for_each(|_| assert_eq!(decision(&server, "192.0.2.1"), "deny"));
    let mut more = policy();
    more["rules"][0]["quotas"][0]["limit"] = json!(2);
    let put = server.operate("PUT", "admin/policy", &more.to_string(), &[("if-match", "*")]);
    assert!(put.status < 300, "{}", put.text());
    assert_eq!(decision(&server, "192.0.2.1"), "allow", "one more, at once");
    assert_eq!(decision(&server, "192.0.2.1"), "deny");
}
