//! Exactness under concurrency.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use tollgate_e2e::http::Request;
use tollgate_e2e::server::Setup;
use tollgate_e2e::workerd::{answer, check_request};

// Guards: requests that race on all worker threads of the server.
#[test]
fn four_threads_and_20_000_requests_on_one_key_are_admitted_exactly_the_limit() {
    let policy = json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "quotas": [
        {"algorithm": "fixed-window", "limit": 7_000, "window": "366d"}]}]});
    let server = Setup::new(policy).set("threads", 4).start();
    let one = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
    let batch = json!({"requests": vec![one; 20]}).to_string();
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                for i in 0..2_500 / 10 {
                    let text = if i % 2 == 0 {
                        client.send(&Request::post("/check", batch.as_str())).text()
                    } else {
                        let mut all = String::new();
                        for _ in 0..20 {
                            all += &client.send(&check_request("GET", "/", "192.0.2.1")).text();
                        }
                        all
                    };
                    let passed = text.matches("\"decision\":\"allow\"").count();
                    admitted.fetch_add(u64::try_from(passed).expect("few"), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 7_000);
}

// Guards: of two keys, the count of one when the other one denies, while others race.
#[test]
fn what_one_key_refuses_is_not_charged_to_the_other() {
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"algorithm": "fixed-window", "limit": 100, "window": "366d"}]},
        {"name": "all", "key": [], "quotas": [{"algorithm": "fixed-window", "limit": 1_000, "window": "366d"}]},
    ]});
    let server = Setup::new(policy).set("threads", 4).start();
    // One client floods; the others together use the units that it must not have taken.
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (server, admitted) = (&server, &admitted);
            scope.spawn(move || {
                let mut client = server.client();
                for i in 0..1_000 {
                    let ip = if i % 2 == 0 {
                        "192.0.2.1".to_owned()
                    } else {
                        format!("198.51.{thread}.{}", i % 250)
                    };
                    let decision = answer(&client.send(&check_request("GET", "/", &ip)));
                    admitted
                        .fetch_add(u64::from(decision["decision"] == "allow"), Ordering::Relaxed);
                }
            });
        }
    });
    // 100 of the flood; the others sent 2,000, and 900 units were left.
    assert_eq!(admitted.into_inner(), 1_000);
}
