//! A queue of the fleet in real Envoys: it gives places and not units, so it is never leased, and
//! each request is sent to the authority.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};

use crate::envoy_server::Envoy;
use crate::leasing_envoys::{envoy, fleet_stat, policy};
use crate::server;

fn queue(name: &str, burst: u64, limit: u64, window: &str) -> Value {
    json!({
        "name": name, "key": [{"header": format!("x-{name}")}], "on_missing": "skip",
        "scope": "fleet", "action": "deny", "on_failure": "deny",
        "quotas": [{"algorithm": "leaky-queue", "limit": limit, "window": window, "burst": burst}],
    })
}

fn ask(name: &str, key: usize) -> Request {
    Request::get("/").header(format!("x-{name}"), key.to_string())
}

// Guards: places of a queue that two proxies give on their own: twice the places, and two requests
// at the time of one.
#[test]
fn the_places_of_a_queue_are_given_once_in_two_proxies() {
    const KEYS: usize = 40;
    // One place, which is returned in a year; and three, each two seconds after the one before it.
    let policy = policy(&json!([queue("one", 1, 1, "366d"), queue("paced", 3, 1, "2s")]));
    let server = server(&policy);
    let fleet = json!({"timeout": "10s"});
    let envoys = [envoy(&policy, server.port, &fleet), envoy(&policy, server.port, &fleet)];
    let asked: Vec<Vec<u16>> = thread::scope(|scope| {
        let all = |envoy: &Envoy| -> Vec<u16> {
            let mut client = envoy.client();
            (0..KEYS).map(|key| client.send(&ask("one", key)).status).collect()
        };
        let running: Vec<_> =
            envoys.iter().cycle().take(6).map(|envoy| scope.spawn(move || all(envoy))).collect();
        running.into_iter().map(|it| it.join().expect("a client")).collect()
    });
    for key in 0..KEYS {
        let mut statuses: Vec<u16> = asked.iter().map(|of_client| of_client[key]).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 429, 429, 429, 429, 429], "{key}");
    }
    let began = Instant::now();
    let mut clients: Vec<Client> = envoys.iter().cycle().take(3).map(Envoy::client).collect();
    for client in &mut clients {
        client.start(&ask("paced", 0)).expect("Envoy takes it");
    }
    let statuses: Vec<u16> =
        clients.iter_mut().map(|it| it.finish(false).expect("an answer").status).collect();
    assert_eq!(statuses, [200; 3]);
    assert!(began.elapsed() > Duration::from_millis(3_900), "{:?}: not paced", began.elapsed());
    let sum = |name| envoys.iter().map(|envoy| fleet_stat(envoy, name)).sum::<u64>();
    assert_eq!([sum("granted"), sum("failed"), sum("paused")], [0, 0, 0]);
    assert!(sum("asked") >= KEYS as u64 + 3, "never leased");
}
