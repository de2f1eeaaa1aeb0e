//! Shards of a hot key in a real workerd: never more than the limit, whichever process is killed,
//! and how much of it is used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

const CLIENTS: u64 = 24;
/// After this time a lease of a shard and the clock's error are over.
const ALL_LEASES: Duration = Duration::from_millis(3_500);
/// An isolate remembers no denial for longer.
const REMEMBERED: Duration = Duration::from_millis(1_100);

fn policy(limit: u64) -> Value {
    let quota = json!({"name": "q", "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    json!({"version": 1, "rules": [{"name": "site", "key": [], "shards": 8, "quotas": [quota]}]})
}

/// Allowed so far, by any race.
static ADMITTED: AtomicU64 = AtomicU64::new(0);

/// How many of about this number of requests, sent by `CLIENTS` connections, are allowed. A client
/// that loses its connection stops.
fn race(port: u16, requests: u64) -> u64 {
    let left = AtomicU64::new(requests);
    let is_left = |left: u64| left.checked_sub(1);
    let each = || {
        let Ok(mut client) = Client::try_connect(port) else { return 0 };
        let request = check_request("GET", "/", "192.0.2.1");
        let mut admitted = 0;
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_ok() {
            match client.try_send(&request) {
                Ok(response) => {
                    let answer = answer(&response);
                    assert!(answer["failed"].is_null() || answer["failed"] == false, "{answer}");
                    let is_admitted = u64::from(answer["decision"] == "allow");
                    ADMITTED.fetch_add(is_admitted, Ordering::Relaxed);
                    admitted += is_admitted;
                }
                Err(_) => break,
            }
        }
        admitted
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(each)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client failed")).sum()
    })
}

// Guards: a shard that spends units which are not reserved, and units that no shard finds when
// others request them: the rest is returned, so in the end all of the limit is used.
#[test]
fn eight_shards_admit_all_of_a_limit_and_no_more() {
    for limit in [10, 100, 1_000] {
        let worker = Setup::new(policy(limit)).start();
        let at_once = race(worker.port, 3 * limit + 300);
        thread::sleep(ALL_LEASES);
        let in_the_end = at_once + race(worker.port, 300);
        println!("shards: limit {limit}: {at_once} at once, {in_the_end} in the end");
        assert!(at_once <= limit, "{at_once} of {limit}");
        // A slow machine strands the units that are not returned in time.
        assert!((limit / 2..=limit).contains(&in_the_end), "{in_the_end} of {limit}");
    }
}

// Guards: the units that shards held in memory when the process was killed. They may have been
// spent, so they count as spent; the reservation of the key's object must be on disk before a shard
// spends it.
#[test]
fn shards_that_are_killed_let_nobody_spend_twice() {
    for limit in [100, 1_000] {
        let mut worker = Setup::new(policy(limit)).start();
        let mut admitted = 0;
        for _ in 0..3 {
            let port = worker.port;
            let before = ADMITTED.load(Ordering::Relaxed);
            admitted += thread::scope(|scope| {
                let racing = scope.spawn(move || race(port, limit));
                // In the middle of the work, when shards hold units.
                wait_until("admissions", Duration::from_secs(60), || {
                    let admitted = ADMITTED.load(Ordering::Relaxed) - before;
                    (admitted > limit / 6).then_some(())
                });
                worker.kill();
                racing.join().expect("nobody panics")
            });
            worker.restart();
        }
        // At once, while the lost units are still reserved, and when they are charged.
        admitted += race(worker.port, limit + 300);
        thread::sleep(ALL_LEASES);
        admitted += race(worker.port, limit + 300);
        println!("shards killed three times: {admitted} of {limit} admitted");
        assert!(admitted <= limit, "{admitted} of {limit}");
        // (Requests that were allowed without a response are not included.)
        assert!(admitted >= limit / 4, "{admitted} of {limit}");
    }
}

const ADMIN: &str = "/.well-known/tollgate/admin";

fn operator(worker: &Workerd, request: Request) -> (u16, Value) {
    let request = request.header("authorization", "Bearer secret-of-the-operator");
    let response = worker.client().send(&request);
    (response.status, serde_json::from_str(&response.text()).unwrap_or_default())
}

fn change(worker: &Workerd, what: &str, until_ms: Option<u64>) -> u16 {
    let mut body = json!({"rule": "site", "key": []});
    if let Some(until_ms) = until_ms {
        body["until_ms"] = json!(until_ms);
    }
    let post = Request::post(&format!("{ADMIN}/keys/{what}"), body.to_string());
    operator(worker, post.header("content-type", "application/json")).0
}

// Guards: an operator whose reset or block misses a shard that holds units.
#[test]
fn an_operator_reaches_every_shard() {
    let limit = 1_000;
    let setup =
        Setup::new(policy(limit)).operated().binding("ADMIN_TOKEN", "secret-of-the-operator");
    let worker = setup.start();
    let admitted = race(worker.port, 400);
    assert_eq!(admitted, 400);
    let (status, told) = operator(&worker, Request::get(&format!("{ADMIN}/keys?rule=site")));
    println!("{told}");
    assert_eq!(status, 200, "{told}");
    let in_an_hour = told["at_ms"].as_u64().expect("a time") + 3_600_000;
    // More is used than was allowed only on a machine so slow that leases end before their rest is
    // returned: the units are no longer the shards', and they lease nothing for them.
    let left = told["quotas"][0]["remaining"].as_u64().expect("what is left");
    assert!((limit - 450..=limit - 400).contains(&left), "{told}");
    let admitted = admitted + race(worker.port, 100);
    assert_eq!(change(&worker, "block", Some(in_an_hour)), 204);
    assert_eq!(race(worker.port, 200), 0, "it is blocked");
    assert_eq!(change(&worker, "unblock", None), 204);
    thread::sleep(REMEMBERED);
    let after = race(worker.port, limit);
    assert!(after <= limit - admitted, "{after}");
    assert_eq!(change(&worker, "reset", None), 204);
    thread::sleep(REMEMBERED);
    // When a denial expires, one of the requests calls the object, and the others are denied until
    // it has responded: a few come first.
    let again = race(worker.port, 100);
    let again = again + race(worker.port, 3 * limit);
    println!("after the reset: {again}");
    assert!(again <= limit, "{again}");
    thread::sleep(ALL_LEASES);
    let again = again + race(worker.port, 300);
    assert!((limit / 2..=limit).contains(&again), "{again}");
}

// Guards: units of a shard that stay taken although another key of the request denied it.
#[test]
fn a_shard_gets_back_what_another_key_refused() {
    let quota = |limit: u64| json!([{"name": "q", "algorithm": "sliding-log", "limit": limit, "window": "366d"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "site", "key": [], "shards": 4, "quotas": quota(100)},
        {"name": "path", "key": [{"path_param": "id"}], "when": {"paths": ["/{id}"]}, "quotas": quota(60)},
        {"name": "client", "key": ["client_ip"], "quotas": quota(90)},
    ]});
    let worker = Setup::new(policy).start();
    let mut client = worker.client();
    let mut ask = |path: &str| {
        let request = check_request("GET", path, "192.0.2.1");
        let answers = (0..100).map(|_| answer(&client.send(&request))["decision"] == "allow");
        answers.filter(|is_admitted| *is_admitted).count()
    };
    assert_eq!(ask("/a"), 60);
    // 40 requests were denied by their path: neither the client nor the site was charged for them.
    assert_eq!(ask("/b"), 30);
    let mut other = worker.client();
    let request = check_request("GET", "/c", "192.0.2.2");
    let admitted = (0..40).filter(|_| answer(&other.send(&request))["decision"] == "allow").count();
    thread::sleep(ALL_LEASES);
    let late = (0..40).filter(|_| answer(&other.send(&request))["decision"] == "allow").count();
    assert_eq!(admitted + late, 10);
}

/// Counts the calls of each class of objects: `x-calls` returns the counts and nothing else.
const COUNTS_CALLS: &str = r#"
import Tollgate, { Limiter as Shipped } from "./entry.mjs";

let [own, shards] = [0, 0];

export class Limiter extends Shipped {
  check(request) {
    own++;
    return super.check(request);
  }
  spend(name, request) {
    shards++;
    return super.spend(name, request);
  }
}

export default class extends Tollgate {
  fetch(request) {
    return request.headers.has("x-calls") ? new Response(JSON.stringify({ own, shards })) : super.fetch(request);
  }
}
"#;

// Guards: shards that call the key's own object for most requests, so that it has as many as
// without them. The speed of both is printed, and not asserted.
#[test]
fn a_busy_key_is_spared_by_its_shards() {
    let quota = json!({"name": "q", "limit": 1_000_000, "window": "1h", "burst": 500_000});
    let policy = |shards: Value| {
        let mut rule = json!({"name": "site", "key": [], "quotas": [quota]});
        if !shards.is_null() {
            rule["shards"] = shards;
        }
        Setup::new(json!({"version": 1, "rules": [rule]})).front(COUNTS_CALLS).start()
    };
    let (one, eight) = (policy(Value::Null), policy(json!(8)));
    let requests = 4_000;
    let mut took = [Duration::ZERO; 2];
    for _ in 0..3 {
        for (worker, took) in [&one, &eight].into_iter().zip(&mut took) {
            let start = Instant::now();
            assert_eq!(race(worker.port, requests), requests);
            *took += start.elapsed();
        }
    }
    let calls = |worker: &Workerd| {
        let response = worker.client().send(&Request::get("/").header("x-calls", "1"));
        serde_json::from_str::<Value>(&response.text()).expect("numbers")
    };
    let (of_one, of_eight) = (calls(&one), calls(&eight));
    println!(
        "a busy key, {} requests: alone {of_one} in {:?}, sharded {of_eight} in {:?}",
        3 * requests,
        took[0],
        took[1]
    );
    let own = |calls: &Value| calls["own"].as_u64().expect("a number");
    assert_eq!(own(&of_one), 3 * requests);
    assert_eq!(of_eight["shards"], json!(3 * requests));
    assert!(own(&of_eight) < 3 * requests / 3, "{of_eight}");
}
