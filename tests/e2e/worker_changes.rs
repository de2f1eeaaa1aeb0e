//! Random requests with changes of the policy in between: every decision in workerd is the core's
//! own, whose state is carried to the new quota at the next request of its key.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::SystemTime;

use serde_json::{Value, json};
use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::workerd::answer;
use tollgate_test_support::Random;

use crate::worker_admin::{ADMIN, POLICY, asks, operated};

/// The test's clock.
const CLOCK: &str = r#"
import Tollgate from "./entry.mjs";
export { Limiter, Policies, Tenants, Metrics } from "./entry.mjs";
const realNow = Date.now;
let now;
Date.now = () => now ?? realNow();
export default class extends Tollgate {
  fetch(request) {
    const at = request.headers.get("x-at");
    if (at !== null) now = Number(at);
    return super.fetch(request);
  }
}
"#;

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("gcra", Algorithm::Gcra),
    ("token-bucket", Algorithm::TokenBucket),
    ("leaky-bucket", Algorithm::LeakyBucket),
    ("fixed-window", Algorithm::FixedWindow),
    ("sliding-window", Algorithm::SlidingWindow),
    ("sliding-log", Algorithm::SlidingLog),
];
/// Processes, each with objects of its own: one uses at most one processor.
const PROCESSES: u64 = 2;
/// Decisions of all of them together, unless `TOLLGATE_DECISIONS` sets the number.
const DECISIONS: u64 = 12_000;
/// Requests of a batch, which arrive at one time.
const BATCH: u64 = 100;
/// Batches between two changes.
const BATCHES: u64 = 2;
const KEYS: u64 = 25;

fn policy(random: &mut Random, durability: &str) -> (Value, Limiter) {
    let (name, algorithm) = *random.pick(&ALGORITHMS);
    let (limit, window) = (1 + random.below(40), *random.pick(&[10, 60, 60, 3600]));
    let quota =
        json!({"name": "q", "algorithm": name, "limit": limit, "window": format!("{window}s")});
    let rule =
        json!({"name": "r", "key": ["client_ip"], "durability": durability, "quotas": [quota]});
    let quota = Quota::new(limit, Span::from_secs(window)).expect("a quota");
    (json!({"version": 1, "rules": [rule]}), Limiter::new(algorithm, quota).expect("a limiter"))
}

/// The number of decisions for each process.
fn each() -> u64 {
    let asked = std::env::var("TOLLGATE_DECISIONS").ok();
    let asked = asked.map(|text| text.parse().expect("TOLLGATE_DECISIONS is a number"));
    asked.unwrap_or(DECISIONS).div_ceil(PROCESSES)
}

// Guards: a count that a change of the policy makes larger or smaller than the core's: by the
// objects' rows, by the memory of isolates, or by a request that is planned under another version.
#[test]
fn every_decision_across_changes_is_the_cores() {
    let counts: Vec<[u64; 3]> = thread::scope(|scope| {
        let running: Vec<_> = ["strict", "relaxed"]
            .into_iter()
            .zip(1..=PROCESSES)
            .map(|(durability, seed)| scope.spawn(move || play(durability, seed)))
            .collect();
        running.into_iter().map(|one| one.join().expect("no difference")).collect()
    });
    let [refused, passed, changes] =
        [0, 1, 2].map(|place| counts.iter().map(|counts| counts[place]).sum::<u64>());
    println!("{refused} refused, {passed} let through, {changes} changes: 0 differences");
    assert!(refused > each() / 10 && passed > each() / 10);
}

/// The numbers of denied and allowed requests, and of changes of the policy.
fn play(durability: &str, seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let worker = operated(policy(&mut random, durability).0).front(CLOCK).files_in_memory().start();
    let mut client = worker.client();
    let mut states: HashMap<u64, (Limiter, Vec<u8>)> = HashMap::new();
    // Ahead of the real clock, so that no alarm rings.
    let start = SystemTime::UNIX_EPOCH.elapsed().expect("a time").as_millis();
    let (mut now, mut counts) = (u64::try_from(start).expect("a time of this age"), [0; 3]);
    for change in 0..each().div_ceil(BATCH * BATCHES) {
        let (text, limiter) = policy(&mut random, durability);
        let put = asks(ADMIN, "PUT", POLICY, &text.to_string()).header("if-match", "*");
        let response = client.send(&put.header("x-at", now.to_string()));
        assert_eq!(response.status, 200, "{}", response.text());
        counts[2] += 1;
        for batch in 0..BATCHES {
            now += *random.pick(&[0, 1, 40, 900, 2_500, 20_000]);
            let at = Timestamp::from_millis(now);
            let keys: Vec<u64> = (0..BATCH).map(|_| random.below(KEYS)).collect();
            // They arrive at one time, so for one key the number allowed is the same in any order.
            let mut expected: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
            for key in &keys {
                let (known, state) =
                    states.entry(*key).or_insert_with(|| (limiter, vec![0; limiter.state_len()]));
                if *known != limiter {
                    let mut carried = vec![0; limiter.state_len()];
                    limiter.carry(known, state, at, &mut carried);
                    (*known, *state) = (limiter, carried);
                }
                let is_admitted = limiter.check(state, at, 1).is_admitted();
                expected.entry(*key).or_default()[usize::from(is_admitted)] += 1;
            }
            let mut found: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
            let answers = batch_of(&mut client, &keys, now);
            for (key, answer) in keys.iter().zip(answers.as_array().expect("answers")) {
                let is_allowed = answer["decision"] == "allow";
                assert!(is_allowed || answer["decision"] == "deny", "{answer}");
                found.entry(*key).or_default()[usize::from(is_allowed)] += 1;
                counts[usize::from(is_allowed)] += 1;
            }
            assert_eq!(found, expected, "seed {seed}, change {change}, batch {batch}, {text}");
        }
    }
    counts
}

/// The responses to one request of each of `keys`, in order.
fn batch_of(client: &mut Client, keys: &[u64], now: u64) -> Value {
    let of = |key: &u64| json!({"method": "GET", "path": "/", "headers": {}, "client_ip": format!("192.0.2.{key}")});
    let requests: Vec<Value> = keys.iter().map(of).collect();
    let request = Request::post("/check", json!({"requests": requests}).to_string());
    let answer = answer(&client.send(&request.header("x-at", now.to_string())));
    assert_eq!(answer["answers"].as_array().map(Vec::len), Some(keys.len()), "{answer}");
    answer["answers"].clone()
}
