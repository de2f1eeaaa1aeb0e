//! `durability: relaxed`: exact while the object lives, written soon and together, and a crash
//! loses only the admissions just before it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::Client;
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

use crate::worker_durable::{RINGS_SOON, tables};

const LIMIT: u64 = 1_000_000;

/// The code writes 50 ms after an admission; the rest is for a busy machine and its disk.
const SAVED_WITHIN: Duration = Duration::from_millis(1_000);

fn start(durability: &str, limit: u64) -> Workerd {
    let quota = json!({"name": "q", "algorithm": "fixed-window", "limit": limit, "window": "366d"});
    let rule =
        json!({"name": "all", "key": ["client_ip"], "quotas": [quota], "durability": durability});
    Setup::new(json!({"version": 1, "rules": [rule]})).start()
}

fn ask(client: &mut Client) -> Value {
    answer(&client.send(&check_request("GET", "/", "192.0.2.1")))
}

/// The number of requests allowed before this one, from its response.
fn counted_before(worker: &Workerd) -> u64 {
    let answer = ask(&mut worker.client());
    let field = answer["headers"]["ratelimit"].as_str().expect("a ratelimit field").to_owned();
    let r = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    let r: u64 = r.and_then(|r| r.parse().ok()).unwrap_or_else(|| panic!("no r in {field}"));
    LIMIT - r - 1
}

// Guards: a relaxed count that is only roughly right. Without a crash it is exact, for simultaneous
// requests too, and written counts survive one.
#[test]
fn relaxed_counts_are_exact_and_saved_soon() {
    let mut worker = start("relaxed", 20);
    let port = worker.port;
    let admitted: usize = thread::scope(|scope| {
        let client = || {
            let mut client = Client::connect(port);
            (0..10).filter(|_| ask(&mut client)["decision"] == "allow").count()
        };
        let running: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        running.into_iter().map(|one| one.join().expect("a client")).sum()
    });
    assert_eq!(admitted, 20);
    thread::sleep(SAVED_WITHIN);
    worker.kill();
    worker.restart();
    assert_eq!(ask(&mut worker.client())["decision"], "deny");
}

// Guards: documents that disagree about how much a crash loses.
#[test]
fn the_documents_say_when_relaxed_counts_are_written() {
    let entry = include_str!("../../crates/tollgate-worker/entry.mjs");
    let (_, rest) = entry.split_once("const SAVE_AFTER_MS = ").expect("the constant");
    let sentence = format!("{} ms after", rest.split(';').next().expect("a number"));
    let worker = include_str!("../../docs/worker.md");
    let policy = include_str!("../../docs/policy/state.md");
    let schema = include_str!("../../docs/policy.schema.json");
    for (name, text) in [("worker.md", worker), ("policy/state.md", policy), ("schema", schema)] {
        assert!(text.contains(&sentence), "{name} does not say {sentence:?}");
    }
}

// Guards: a write that is delayed again and again by new requests: under constant load a crash
// loses the last admissions, not everything; and it never invents admissions.
#[test]
fn a_crash_forgets_only_the_last_moment() {
    let mut worker = start("relaxed", LIMIT);
    let mut total = 0;
    for _ in 0..3 {
        let mut client = worker.client();
        let started = Instant::now();
        let mut admitted = vec![];
        while started.elapsed() < 2 * SAVED_WITHIN {
            assert_eq!(ask(&mut client)["decision"], "allow");
            admitted.push(Instant::now());
        }
        worker.kill();
        let killed = Instant::now();
        worker.restart();
        let old = admitted.iter().filter(|at| killed - **at > SAVED_WITHIN).count() as u64;
        let counted = counted_before(&worker);
        let (least, most) = (total + old, total + admitted.len() as u64);
        println!("least {least} <= counted {counted} <= admitted {most}");
        assert!(old > 0 && least <= counted && counted <= most, "{least} {counted} {most}");
        total = counted + 1;
        thread::sleep(SAVED_WITHIN); // that one is written too
    }
}

// Guards: `relaxed` that costs what `strict` costs: many admissions are one write.
#[test]
fn many_relaxed_admissions_are_one_write() {
    let written = |durability: &str| {
        let worker = start(durability, LIMIT);
        let mut client = worker.client();
        (0..100).for_each(|_| drop(ask(&mut client)));
        thread::sleep(SAVED_WITHIN);
        let logs = worker.databases().into_iter().map(|path| path.with_extension("sqlite-wal"));
        logs.map(|log| fs::metadata(log).map_or(0, |file| file.len())).sum::<u64>()
    };
    let (strict, relaxed) = (written("strict"), written("relaxed"));
    println!("bytes written: strict {strict}, relaxed {relaxed}");
    assert!(relaxed > 0 && relaxed < strict / 3, "strict {strict}, relaxed {relaxed}");
}

// Guards: two rules of one key, one of which is strict: its counts are never delayed.
#[test]
fn one_strict_rule_makes_its_key_strict() {
    let rule = |name: &str, durability: &str| {
        let quota =
            json!({"name": name, "algorithm": "fixed-window", "limit": 1, "window": "366d"});
        json!({"name": name, "key": ["client_ip"], "quotas": [quota], "durability": durability})
    };
    let rules = [rule("a", "relaxed"), rule("b", "strict")];
    let mut worker = Setup::new(json!({"version": 1, "rules": rules})).start();
    assert_eq!(ask(&mut worker.client())["decision"], "allow");
    worker.kill();
    worker.restart();
    assert_eq!(ask(&mut worker.client())["violated"], json!(["a", "b"]));
}

// Guards: relaxed objects that stay for ever, since their alarm is set later than their response is
// sent: it is set with the write, and deletes idle state.
#[test]
fn the_alarm_deletes_idle_relaxed_storage() {
    let quota = json!({"name": "q", "limit": 2, "window": "1s"});
    let rule =
        json!({"name": "all", "key": ["client_ip"], "quotas": [quota], "durability": "relaxed"});
    let policy = json!({"version": 1, "rules": [rule]});
    let worker = Setup::new(policy).front(RINGS_SOON).start();
    assert_eq!(ask(&mut worker.client())["decision"], "allow");
    wait_until("the write", SAVED_WITHIN, || (tables(&worker) == 1).then_some(()));
    wait_until("the deletion", Duration::from_secs(30), || (tables(&worker) == 0).then_some(()));
    assert_eq!(ask(&mut worker.client())["decision"], "allow");
}
