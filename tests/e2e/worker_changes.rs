//! Random requests with changes of the policy in between: every decision in workerd is the one that
//! the core makes, whose state is carried to the new quota when its key is asked next.

use std::collections::HashMap;
use std::thread;
use std::time::SystemTime;

use serde_json::{Value, json};
use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_e2e::http::Client;
use tollgate_e2e::workerd::{answer, check_request};

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
/// Isolates, each with objects of its own.
const ISOLATES: u64 = 4;
const CHANGES: usize = 40;
/// Between two changes, of an isolate.
const REQUESTS: usize = 100;
const KEYS: u64 = 6;

/// A small generator: xorshift, so that a seed is a test.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn policy(random: &mut Random) -> (Value, Limiter) {
    let place = usize::try_from(random.below(ALGORITHMS.len() as u64)).expect("few");
    let (name, algorithm) = ALGORITHMS[place];
    let (limit, window) = (1 + random.below(12), [10, 60, 60, 3600][random.below(4) as usize]);
    let quota =
        json!({"name": "q", "algorithm": name, "limit": limit, "window": format!("{window}s")});
    let rule = json!({"name": "r", "key": ["client_ip"], "quotas": [quota]});
    let quota = Quota::new(limit, Span::from_secs(window)).expect("a quota");
    (json!({"version": 1, "rules": [rule]}), Limiter::new(algorithm, quota).expect("a limiter"))
}

// Guards: a count that a change of the policy makes larger or smaller than the core's, by the
// objects' rows, by what isolates remember, or by a request that is planned under another version.
#[test]
fn every_decision_across_changes_is_the_cores() {
    let first = policy(&mut Random(1)).0;
    let setup = (1..ISOLATES).fold(operated(&first), |setup, _| setup.also(&first));
    let worker = setup.front(CLOCK).files_in_memory().start();
    let start = SystemTime::UNIX_EPOCH.elapsed().expect("a time").as_millis();
    let start = u64::try_from(start).expect("a time of this age");
    let play = |port: u16, seed: u64| {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        let mut client = Client::connect(port);
        let mut states: HashMap<u64, (Limiter, Vec<u8>)> = HashMap::new();
        // Ahead of the real clock, so that no alarm rings.
        let (mut now, mut counts) = (start, [0, 0]);
        for change in 0..CHANGES {
            let (text, limiter) = policy(&mut random);
            let put = asks(ADMIN, "PUT", POLICY, &text.to_string()).header("if-match", "*");
            let response = client.send(&put.header("x-at", now.to_string()));
            assert_eq!(response.status, 200, "{}", response.text());
            for request in 0..REQUESTS {
                now += [0, 1, 40, 900, 2_500, 20_000][random.below(6) as usize];
                let (key, at) = (random.below(KEYS), Timestamp::from_millis(now));
                let (known, state) =
                    states.entry(key).or_insert_with(|| (limiter, vec![0; limiter.state_len()]));
                if *known != limiter {
                    let mut carried = vec![0; limiter.state_len()];
                    limiter.carry(known, state, at, &mut carried);
                    (*known, *state) = (limiter, carried);
                }
                let expected = limiter.check(state, at, 1).is_admitted();
                let asked = check_request("GET", "/", &format!("192.0.2.{key}"));
                let answer = answer(&client.send(&asked.header("x-at", now.to_string())));
                let place = format!("seed {seed}, change {change}, request {request}, {text}");
                assert_eq!(answer["decision"] == "allow", expected, "{place}: {answer}");
                counts[usize::from(expected)] += 1;
            }
        }
        counts
    };
    let counts: Vec<[usize; 2]> = thread::scope(|scope| {
        let play = &play;
        let running: Vec<_> = (worker.ports.iter().copied().zip(1..))
            .map(|(port, seed)| scope.spawn(move || play(port, seed)))
            .collect();
        running.into_iter().map(|one| one.join().expect("no difference")).collect()
    });
    let sum = |place: usize| counts.iter().map(|counts| counts[place]).sum::<usize>();
    println!(
        "{} refused, {} let through, {} changes: 0 differences",
        sum(0),
        sum(1),
        counts.len() * CHANGES
    );
    assert!(sum(0) > 1_000 && sum(1) > 1_000);
}
