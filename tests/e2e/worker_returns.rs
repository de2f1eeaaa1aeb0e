//! Clients that come back: to objects that were evicted, and at the very moment at which an alarm
//! deletes their state. Never a fresh count too early, never one that stays.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, answer, check_request};

use crate::worker_admin::{ADMIN, asks, operated};
use crate::worker_durable::{RINGS_SOON, tables};

/// Only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

// Guards: an operator's action that is in memory only. The objects of a blocked key, of a relaxed
// count and of a tenant are evicted; all of it applies when they come back.
#[test]
fn what_was_evicted_comes_back_with_blocks_tenants_and_relaxed_counts() {
    let quota = |limit: u64| json!([{"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    let policy = json!({"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "client", "key": ["client_ip"], "durability": "relaxed", "quotas": quota(3)},
        {"name": "org", "key": [{"header": "x-org"}], "on_missing": "skip", "quotas": quota(2),
         "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": quota(9)}]}]});
    let worker = operated(&policy).start();
    let ask = |ip: &str, org: Option<&str>| {
        let mut asked = json!({"method": "GET", "path": "/", "headers": {}, "client_ip": ip});
        if let Some(org) = org {
            asked["headers"]["x-org"] = json!(org);
        }
        let request = check_request("GET", "/", ip).body(asked.to_string());
        answer(&worker.client().send(&request))
    };
    let operator = |request: Request| worker.client().send(&request).status;
    let until =
        std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time").as_millis() + 3_600_000;
    let until = u64::try_from(until).expect("a time");
    let block = json!({"rule": "client", "key": ["192.0.2.1"], "tenant": null, "until_ms": until});
    let path = "/.well-known/tollgate/admin/keys/block";
    assert_eq!(operator(asks(ADMIN, "POST", path, &block.to_string())), 204);
    let tenant = "/.well-known/tollgate/admin/tenants/acme";
    let put = asks(ADMIN, "PUT", tenant, r#"{"tier": "gold"}"#).header("if-none-match", "*");
    assert_eq!(operator(put), 201);
    assert_eq!(ask("192.0.2.1", None)["decision"], "deny");
    assert_eq!(ask("192.0.2.2", None)["decision"], "allow");
    assert_eq!(ask("192.0.2.2", None)["decision"], "allow");
    assert!(ask("192.0.2.3", Some("acme")).to_string().contains(";q=9;"));
    assert!(worker.objects_in_memory() >= 3);
    wait_until("the eviction of idle objects", PATIENCE, || {
        (worker.objects_in_memory() == 0).then_some(())
    });
    assert_eq!(ask("192.0.2.1", None)["decision"], "deny", "blocked");
    let decisions = [ask("192.0.2.2", None), ask("192.0.2.2", None)];
    assert_eq!(decisions.each_ref().map(|it| it["decision"].clone()), ["allow", "deny"]);
    let gold = ask("192.0.2.4", Some("acme"));
    let left = gold["headers"]["ratelimit"].as_str().unwrap_or_default();
    assert!(gold.to_string().contains(";q=9;") && left.contains("r=7"), "{gold}");
}

const KEYS: usize = 240;
const CLIENTS: usize = 8;
const LIMIT: usize = 3;
/// Half of the shortest time to an alarm.
const WINDOW: Duration = Duration::from_secs(5);
/// The time from a commit to its alarm, made short: [`RINGS_SOON`].
const ALARM_AFTER: Duration = Duration::from_secs(10);

/// The times at which a key's allowed requests were sent and their responses received.
type Admissions = Vec<(Instant, Instant)>;

// Guards: an alarm that deletes the count of a client which comes back at that moment, or that is
// set and lost. Each key of a sliding log is used up. Half of them send requests without a pause
// from before the end of the window until after the alarm; the others come back just when it rings,
// repeatedly. In no window is more than the limit allowed, every key is allowed again, and in the
// end every storage is empty.
#[test]
fn alarms_and_returning_clients_never_make_or_keep_a_count() {
    let policy = json!({"version": 1, "rules": [{"name": "r", "key": ["client_ip"], "quotas":
        [{"name": "q", "algorithm": "sliding-log", "limit": LIMIT, "window": "5s"}]}]});
    let worker = Setup::new(policy).front(RINGS_SOON).files_in_memory().start();
    let worker = &worker;
    let play = &|number: usize| {
        let mut client = Client::connect(worker.port);
        let mut keys: Vec<(usize, Admissions)> =
            (number..KEYS).step_by(CLIENTS).map(|key| (key, vec![])).collect();
        let mut ask = |key: usize, admissions: &mut Admissions| {
            let sent = Instant::now();
            let request = check_request("GET", "/", &format!("198.51.100.{key}"));
            if answer(&client.send(&request))["decision"] == "allow" {
                admissions.push((sent, Instant::now()));
            }
        };
        for (key, admissions) in &mut keys {
            (0..=LIMIT).for_each(|_| ask(*key, admissions));
            assert_eq!(admissions.len(), LIMIT, "{key}");
        }
        // Until a little after the last alarm would have rung.
        let last = keys.last().map(|(_, admissions)| admissions[0].1).expect("a key");
        let (near, far) = (Duration::from_millis(150), Duration::from_millis(400));
        while Instant::now() < last + ALARM_AFTER + far {
            let mut has_asked = false;
            for (key, admissions) in &mut keys {
                let since = admissions[0].0.elapsed();
                let hammers = *key % 2 == 0 && since > WINDOW - near;
                if hammers || (since > ALARM_AFTER - near && since < ALARM_AFTER + far) {
                    has_asked = true;
                    ask(*key, admissions);
                }
            }
            if !has_asked {
                thread::sleep(Duration::from_millis(5));
            }
        }
        // Keys that a busy machine kept from coming at their time.
        for (key, admissions) in keys.iter_mut().filter(|(_, them)| them.len() == LIMIT) {
            ask(*key, admissions);
        }
        keys
    };
    let all: Vec<(usize, Admissions)> = thread::scope(|scope| {
        let running: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || play(number))).collect();
        running.into_iter().flat_map(|client| client.join().expect("it ends")).collect()
    });
    let mut admitted = [0, 0];
    for (key, admissions) in &all {
        admitted[key % 2] += admissions.len();
        for some in admissions.windows(LIMIT + 1) {
            let (first, last) = (some[0].0, some[LIMIT].1);
            assert!(last - first >= WINDOW, "{key}: {:?} is too early", last - first);
        }
        assert!(admissions.len() > LIMIT, "{key}: nobody was let through again");
    }
    println!("{} keys: {admitted:?} let through, none too early", all.len());
    wait_until("every storage is empty", PATIENCE, || {
        thread::sleep(Duration::from_millis(200));
        (tables(worker) == 0).then_some(())
    });
    let mut client = worker.client();
    for key in [0, 1, KEYS - 1] {
        let request = check_request("GET", "/", &format!("198.51.100.{key}"));
        let decisions: Vec<_> =
            (0..=LIMIT).map(|_| answer(&client.send(&request))["decision"].clone()).collect();
        assert_eq!(decisions, ["allow", "allow", "allow", "deny"], "{key}");
    }
}
