//! Durability: an allowed request is never lost, and idle state is deleted.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::Client;
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

const CLIENT: &str = "192.0.2.1";

fn policy(quota: Value) -> Value {
    json!({"version": 1, "rules": [{"name": "all", "key": ["client_ip"], "quotas": [quota]}]})
}

/// The rest of the only quota, from the response to one more request.
fn remaining_after_one(client: &mut Client, client_ip: &str) -> u64 {
    let answer = answer(&client.send(&check_request("GET", "/", client_ip)));
    let field = answer["headers"]["ratelimit"].as_str().expect("a ratelimit field").to_owned();
    let r = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    r.and_then(|r| r.parse().ok()).unwrap_or_else(|| panic!("no r in {field}"))
}

const ROUNDS: u64 = 6;
const LIMIT: u64 = 1_000_000;

// Guards: an admission that was reported before it was on disk. workerd is killed at a moment that
// differs from round to round, while four clients are being allowed; after the restart the object
// must have every admission that a client saw, and no more than were sent.
#[test]
fn kill_9_forgets_no_acknowledged_admission() {
    let quota = json!({"name": "q", "algorithm": "fixed-window", "limit": LIMIT, "window": "366d"});
    let mut worker = Setup::new(policy(quota)).start();
    let (sent, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let port = worker.port;
        let client = || {
            let Ok(mut client) = Client::try_connect(port) else { return };
            let request = check_request("GET", "/", CLIENT);
            while !stop.load(Ordering::Relaxed) {
                sent.fetch_add(1, Ordering::Relaxed);
                match client.try_send(&request) {
                    Ok(response) => {
                        assert_eq!(answer(&response)["decision"], "allow");
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => return,
                }
            }
        };
        let before = acknowledged.load(Ordering::Relaxed);
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(client)));
            // Somewhere in the middle of the work, at another point each round.
            wait_until("admissions", Duration::from_secs(20), || {
                (acknowledged.load(Ordering::Relaxed) > before + 40 + 37 * round).then_some(())
            });
            worker.kill();
            stop.store(true, Ordering::Relaxed);
        });
        worker.restart();
        sent.fetch_add(1, Ordering::Relaxed);
        let used = LIMIT - remaining_after_one(&mut worker.client(), CLIENT);
        acknowledged.fetch_add(1, Ordering::Relaxed);
        let (sent, acknowledged) =
            (sent.load(Ordering::Relaxed), acknowledged.load(Ordering::Relaxed));
        println!("round {round}: acknowledged {acknowledged} <= counted {used} <= sent {sent}");
        assert!(acknowledged <= used, "{acknowledged} acknowledged, only {used} counted");
        assert!(used <= sent, "{used} counted, only {sent} sent");
    }
}

// Guards: state that is in memory only. The platform evicts an object after about ten seconds
// without requests, which is visible when its database is closed. It must come back with its
// counts.
#[test]
fn an_object_evicted_from_memory_comes_back_with_its_counts() {
    let quota = json!({"name": "q", "algorithm": "sliding-window", "limit": 5, "window": "366d"});
    let worker = Setup::new(policy(quota)).start();
    let decide =
        || answer(&worker.client().send(&check_request("GET", "/", CLIENT)))["decision"].clone();
    for _ in 0..3 {
        assert_eq!(decide(), "allow");
    }
    assert_eq!(worker.objects_in_memory(), 1);
    wait_for_eviction(&worker);
    assert_eq!([decide(), decide(), decide()], ["allow", "allow", "deny"]);
}

fn wait_for_eviction(worker: &Workerd) {
    wait_until("the eviction of idle objects", Duration::from_secs(60), || {
        (worker.objects_in_memory() == 0).then_some(())
    });
}

/// Alarms that ring after ten seconds, as if a day were no longer: the alarm's own code is the
/// object's.
pub const RINGS_SOON: &str = r#"
import Tollgate, { Limiter as Shipped } from "./entry.mjs";
export default Tollgate;

const SOON_MS = 10_000;
const DAY_MS = 86_400_000;

const soon = (storage) => ({
  sql: { exec: (...query) => storage.sql.exec(...query) },
  // What is set for later than a day is for a count that lives: rung early, it would keep ringing.
  setAlarm: (at) =>
    storage.setAlarm(Number(at) - Date.now() > DAY_MS + 1_000 ? at : Date.now() + SOON_MS),
  deleteAll: () => storage.deleteAll(),
});

export class Limiter extends Shipped {
  constructor(ctx, env) {
    super(ctx, env);
    Object.defineProperty(this, "ctx", { value: { storage: soon(ctx.storage) } });
  }
}
"#;

// Guards: storage that grows with every client ever seen. Once a state is idle the alarm empties
// its database; a state that is not idle stays, and after its eviction still decides.
#[test]
fn the_alarm_deletes_idle_storage_and_only_that() {
    let short = json!({"name": "short", "algorithm": "gcra", "limit": 2, "window": "1s"});
    let long = json!({"name": "long", "algorithm": "gcra", "limit": 2, "window": "366d"});
    let rule = |name: &str, quota: Value| json!({"name": name, "when": {"paths": [format!("/{name}")]}, "key": ["client_ip"], "quotas": [quota]});
    let rules = [rule("short", short), rule("long", long)];
    let policy = json!({"version": 1, "rules": rules});
    let worker = Setup::new(policy).front(RINGS_SOON).start();
    // A connection each: workerd closes idle ones.
    let decide = |path: &str, ip: &str| {
        answer(&worker.client().send(&check_request("GET", path, ip)))["decision"].clone()
    };
    assert_eq!(decide("/short", CLIENT), "allow");
    assert_eq!(tables(&worker), 1, "the admitted client's object has its table");
    // Another client that is kept busy: its alarm finds it live and is set again.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(12) {
        decide("/short", "192.0.2.2");
        decide("/long", CLIENT);
        thread::sleep(Duration::from_millis(250));
    }
    wait_until("the idle client's storage is deleted", Duration::from_secs(20), || {
        decide("/short", "192.0.2.2");
        (tables(&worker) == 2).then_some(())
    });
    wait_until("the other's too, once idle", Duration::from_secs(40), || {
        (tables(&worker) == 1).then_some(())
    });
    wait_for_eviction(&worker);
    assert_eq!(decide("/long", CLIENT), "deny", "the long state stayed");
    assert_eq!(decide("/short", CLIENT), "allow", "a deleted object works again");
}

/// Objects that never touch their storage, while the request sets a header.
const IDLE: &str = r#"
import Tollgate, { Limiter as Real } from "./entry.mjs";
let isIdle = false;
const realNow = Date.now;
let later = 0;
Date.now = () => realNow() + later;
export default class extends Tollgate {
  fetch(request) {
    later += 2_000; // no refusal is remembered so long
    isIdle = request.headers.has("x-idle");
    return super.fetch(request);
  }
}
export class Limiter extends Real {
  check(request) {
    return isIdle ? new Uint8Array(0) : super.check(request);
  }
}
"#;

// Guards: storage that a flood of denied keys fills. An object that only ever denied stores
// nothing. Plain workerd creates an empty file for each object, even one that does nothing at all,
// so nothing in the Worker can prevent it.
#[test]
fn an_object_that_only_refused_stores_nothing() {
    let rule = |name: &str, key: &str, algorithm: &str| {
        json!({"name": name, "key": [key], "quotas":
        [{"name": name, "algorithm": algorithm, "limit": 1, "window": "366d"}]})
    };
    // A queue is inquired before any key is charged.
    let rules = [rule("all", "path", "fixed-window"), rule("each", "client_ip", "leaky-queue")];
    let worker = Setup::new(json!({"version": 1, "rules": rules})).front(IDLE).start();
    let ask = |ip: u32, is_idle: bool| {
        let request = check_request("GET", "/", &format!("192.0.2.{ip}"));
        let request = if is_idle { request.header("x-idle", "yes") } else { request };
        answer(&worker.client().send(&request))["decision"].clone()
    };
    assert_eq!(ask(1, false), "allow");
    assert_eq!((worker.databases().len(), tables(&worker)), (2, 2));
    let before = worker.databases();
    for ip in 2..12 {
        assert_eq!(ask(ip, false), "deny", "the path's count is used up");
    }
    assert_eq!(
        (worker.databases().len(), tables(&worker)),
        (12, 2),
        "refused clients store nothing"
    );
    assert_eq!(ask(100, true), "allow", "a failure");
    assert_eq!(
        worker.databases().len(),
        13,
        "workerd makes a file for an object that does nothing"
    );
    let new = worker.databases().into_iter().filter(|path| !before.contains(path));
    let sizes: Vec<u64> = new.map(|path| fs::metadata(path).expect("a file").len()).collect();
    assert!(sizes.iter().all(|size| *size == sizes[0] && *size <= 4096), "{sizes:?}");
}

/// The number of databases that contain Tollgate's table.
pub fn tables(worker: &Workerd) -> usize {
    let holds_table = |path: &std::path::PathBuf| {
        let wal = path.with_extension("sqlite-wal");
        let mut bytes = fs::read(path).unwrap_or_default();
        bytes.extend(fs::read(wal).unwrap_or_default());
        bytes.windows(8).any(|window| window == b"state_v2")
    };
    worker.databases().iter().filter(|path| holds_table(path)).count()
}
