//! The real day through the running Envoy, as fast as possible.

use std::collections::HashMap;
use std::thread;
use std::time::Instant;

use serde_json::json;
use tollgate_e2e::day::{Hit, day};
use tollgate_e2e::http::Request;

use crate::envoy_server::Setup;

// No error, and every count adds up: each client's, the responses' and the filter's own.
#[test]
fn the_real_day_adds_up() {
    const LIMIT: usize = 10;
    const CONNECTIONS: usize = 16;
    let policy = json!({"version": 1, "rules": [{
        "name": "client",
        "key": [{"header": "x-client"}],
        "quotas": [{"name": "client", "limit": LIMIT, "window": "366d"}],
    }]});
    let envoy = Setup::policy(2, &policy).start();
    let hits = day();
    let started = Instant::now();
    let one_connection = |share: &[Hit]| {
        let mut client = envoy.client();
        let mut admitted: HashMap<String, usize> = HashMap::new();
        for hit in share {
            let request = Request::new(&hit.method, &hit.target);
            let answer = client.send(&request.header("x-client", &hit.client));
            assert!([200, 429].contains(&answer.status), "{answer:?}");
            *admitted.entry(hit.client.clone()).or_default() += usize::from(answer.status == 200);
        }
        admitted
    };
    let shares = hits.chunks(hits.len().div_ceil(CONNECTIONS));
    let mut admitted: HashMap<String, usize> = HashMap::new();
    thread::scope(|scope| {
        let running: Vec<_> = shares.map(|share| scope.spawn(|| one_connection(share))).collect();
        for (client, count) in running.into_iter().flat_map(|r| r.join().expect("a connection")) {
            *admitted.entry(client).or_default() += count;
        }
    });
    // One unit is returned every five weeks: none while this test runs.
    let mut asked: HashMap<&str, usize> = HashMap::new();
    hits.iter().for_each(|hit| *asked.entry(&hit.client).or_default() += 1);
    for (client, asked) in &asked {
        assert_eq!(admitted[*client], (*asked).min(LIMIT), "{client} asked {asked} times");
    }
    let admitted: usize = admitted.values().sum();
    assert_eq!(envoy.decisions("client", "allowed"), admitted as u64);
    assert_eq!(envoy.decisions("client", "denied"), (hits.len() - admitted) as u64);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
    println!("{} requests in {:?}, {admitted} admitted", hits.len(), started.elapsed());
}
