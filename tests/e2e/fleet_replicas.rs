//! A server whose charges count only when a replica of the engine has them.
//!
//! Guards: an admission that is reported although no replica has it; a charge for it that is lost;
//! and an `on_failure` that is not applied.

use rustix::process::Signal;
use serde_json::json;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::server::Setup;

use crate::fleet_engine_redis::{Kind, Redis};

#[test]
fn a_server_whose_replica_stands_still_does_what_on_failure_says() {
    let primary = Redis::start(Kind::Plain);
    let of = primary.port.to_string();
    let replica = Redis::start_with(Kind::Plain, &["--replicaof", "127.0.0.1", &of], None);
    wait_until("the replica follows", READY_WITHIN, || {
        let online = format!("port={},state=online", replica.port);
        primary.command(&["INFO", "replication"]).contains(&online).then_some(())
    });
    let rule = |name: &str| {
        json!({"name": name, "key": ["client_ip"], "when": {"paths": [format!("/{name}")]},
               "on_failure": name, "quotas": [{"limit": 3, "window": "366d"}]})
    };
    let policy = json!({"version": 1, "rules": [rule("deny"), rule("allow")]});
    let server = Setup::new(policy).operated().set("store", primary.address());
    let server = server.set("store_timeout", 5_000).set("store_tolerance", 2_000);
    let server = server.set("store_replicas", 1).set("store_replicas_timeout", 400).start();
    let mut client = server.client();
    let mut ask = |rule: &str, ip: &str| {
        let one = json!({"method": "GET", "path": format!("/{rule}"), "client_ip": ip});
        let answer = client.send(&Request::post("/check", one.to_string()));
        assert_eq!(answer.status, 200);
        let answer: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
        (answer["decision"].as_str().expect("one").to_owned(), answer["status"].as_u64())
    };
    let fault = "tollgate_store_faults_total{fault=\"replicas\"}";
    wait_until("a replica has it", READY_WITHIN, || {
        (ask("deny", "192.0.2.200").0 == "allow").then_some(())
    });
    let before = server.metric(fault);
    replica.signal(Signal::STOP);
    for _ in 0..3 {
        assert_eq!(ask("deny", "192.0.2.1"), ("deny".to_owned(), Some(503)));
        assert_eq!(ask("allow", "192.0.2.1").0, "allow");
    }
    // All units are charged, so these requests are denied; a denial needs no written data.
    assert_eq!(ask("deny", "192.0.2.1"), ("deny".to_owned(), Some(429)));
    assert_eq!(ask("allow", "192.0.2.1"), ("deny".to_owned(), Some(429)));
    assert_eq!(server.metric(fault), before + 6);
    assert_eq!(server.metric("tollgate_store_opened_total"), 0, "the engine answers");
    replica.signal(Signal::CONT);
    wait_until("it goes on", READY_WITHIN, || {
        (ask("deny", "192.0.2.201").0 == "allow").then_some(())
    });
    assert_eq!(ask("deny", "192.0.2.1"), ("deny".to_owned(), Some(429)), "the charge stays");
}
