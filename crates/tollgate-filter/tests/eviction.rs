//! Full tables: which keys leave, which stay, and how many keys a table contains.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::support::{SEED, Shared, Worker, policy, quota};
use serde_json::{Value, json};
use tollgate_core::{Algorithm, Limiter, Timestamp};
use tollgate_filter::host::shared_data::{SharedData, Stored};
use tollgate_storage::table::{Bucket, Table};
use tollgate_test_support::Random;

const SECOND: u64 = 1_000_000_000;
/// In the middle of a day: no window ends during a test of a day's quota.
const NOON: u64 = 43_200 * SECOND;

fn name(number: u64) -> Vec<u8> {
    format!("client-{number}").into_bytes()
}

/// A test's record of one key: its fingerprint, and each quota's bytes.
struct Known(NonZeroU64, Vec<(Limiter, Vec<u8>)>);

impl Known {
    fn new(worker: &mut Worker, key: u64) -> Self {
        let fingerprint = Table::fingerprint(&SEED, &worker.key_of(&name(key)));
        let limiters = worker.config.policy.quota_sets()[0].quotas().iter().map(|m| *m.limiter());
        Self(fingerprint, limiters.map(|limiter| (limiter, vec![0; limiter.state_len()])).collect())
    }

    /// Charges all quotas or none.
    fn charge(&mut self, now: Timestamp) -> bool {
        let passes =
            self.1.iter().all(|(limiter, state)| limiter.peek(state, now, 1).is_admitted());
        if passes {
            for (limiter, state) in &mut self.1 {
                limiter.check(state, now, 1);
            }
        }
        passes
    }

    /// The greatest share used, rounded up to 65,536 parts, from what remains.
    fn share(&self, now: Timestamp) -> u64 {
        let shares = self.1.iter().map(|(limiter, state)| {
            let used = limiter.capacity() - limiter.peek(state, now, 0).remaining;
            (used * 65_536).div_ceil(limiter.capacity())
        });
        shares.max().unwrap()
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.1.iter().all(|(limiter, state)| limiter.idle_at(state) <= now)
    }
}

/// The keys in the only bucket of a table.
fn held(shared: &Shared, worker: &Worker, known: &BTreeMap<u64, Known>) -> Vec<u64> {
    let Stored::Value(bytes, _) = shared.get(&worker.config.tables[0].name(0)) else {
        return vec![];
    };
    let bucket = Bucket::parse(&bytes).unwrap();
    let is_in = |(_, known): &(&u64, &Known)| bucket.find(known.0).is_some();
    known.iter().filter(is_in).map(|(key, _)| *key).collect()
}

// Random clients in a table of sixteen, for every algorithm, compared with a model that forgets
// nothing. A key that leaves is idle, or no key had used less of its quotas; and no other key is
// forgotten.
#[test]
fn who_used_least_leaves_a_full_table() {
    let mut numbers = Random::new(1);
    // All rounds take 19 s unoptimised; the optimised laws run all of them.
    let rounds = if cfg!(debug_assertions) { 6 } else { 30 };
    let (mut left_live, mut left_idle) = (0, 0);
    for round in 0..rounds {
        for algorithm in Algorithm::ALL.map(Algorithm::name) {
            let limits = [2 + numbers.below(9), 1 + numbers.below(100)];
            let quota = |(limit, window): (&u64, &str)| json!({"name": window, "limit": limit, "window": window, "algorithm": algorithm});
            let count = usize::try_from(1 + numbers.below(2)).unwrap();
            let quotas: Vec<Value> =
                limits.iter().zip(["10s", "1h"]).take(count).map(quota).collect();
            let shared = Shared::default();
            let mut worker = Worker::new(&policy(4, &json!(quotas)), &shared);
            let mut known: BTreeMap<u64, Known> = BTreeMap::new();
            let mut now = NOON;
            for _ in 0..400 {
                now += numbers.below(SECOND / 4);
                let at = Timestamp::from_nanos(now);
                // Some come repeatedly, most once.
                let client =
                    if numbers.below(2) == 0 { numbers.below(12) } else { numbers.below(1000) };
                let before = held(&shared, &worker, &known);
                let expected = known
                    .entry(client)
                    .or_insert_with(|| Known::new(&mut worker, client))
                    .charge(at);
                let (passed, stats) = worker.ask(&shared, &name(client), now);
                assert_eq!(passed, expected, "{algorithm} {quotas:?}");
                let after = held(&shared, &worker, &known);
                let left: Vec<u64> =
                    before.iter().copied().filter(|key| !after.contains(key)).collect();
                let [gone] = left[..] else {
                    assert_eq!((left.len(), stats.evictions), (0, 0));
                    continue;
                };
                let ways = worker.config.tables[0].size().ways();
                assert_eq!(before.len(), ways, "no key is evicted while there is room");
                let share = known[&gone].share(at);
                let is_idle = known[&gone].is_idle(at);
                assert_eq!(stats.evictions, i64::from(!is_idle), "round {round} of {algorithm}");
                assert_eq!(stats.evictions_half_used, i64::from(!is_idle && share >= 32_768));
                if is_idle {
                    left_idle += 1
                } else {
                    left_live += 1
                }
                for stays in after.iter().filter(|key| **key != client) {
                    assert!(
                        is_idle || !known[stays].is_idle(at),
                        "{algorithm}: an idle one stayed"
                    );
                    let other = known[stays].share(at);
                    assert!(share <= other, "{algorithm}: {share} left and {other} stayed");
                }
                known.remove(&gone);
                // A worker denies from memory what it saw denied, also after the key has left.
                worker.forget();
            }
        }
    }
    assert!(left_live > 100 && left_idle > 10, "{left_live} live, {left_idle} idle");
}

// An attacker sends a new key with every request; clients that have used everything try again all
// the time. None of them is allowed once, whatever the algorithm, and a client in the middle of its
// quota gets no more than its remaining units.
#[test]
fn a_flood_of_keys_lets_nobody_in_again() {
    const MANY: u64 = if cfg!(debug_assertions) { 5_000 } else { 2_000_000 };
    const FEWER: u64 = if cfg!(debug_assertions) { 5_000 } else { 200_000 };
    for (flood, capacity, algorithm) in [
        (MANY, 1000, "gcra"),
        (MANY, 65_536, "fixed-window"),
        (FEWER, 1000, "token-bucket"),
        (FEWER, 1000, "leaky-bucket"),
        (FEWER, 1000, "leaky-queue"),
        (FEWER, 1000, "fixed-window"),
        (FEWER, 1000, "sliding-window"),
        (FEWER, 1000, "sliding-buckets"),
        (FEWER, 1000, "sliding-log"),
    ] {
        let shared = Shared::default();
        let mut worker = Worker::new(&policy(capacity, &quota(5, algorithm)), &shared);
        for client in 0..20 {
            assert_eq!(worker.passes(&shared, &name(client), NOON, 9), 5);
            assert_eq!(worker.passes(&shared, &name(100 + client), NOON, 2), 2);
        }
        let (mut let_in, mut evictions, mut pardons) = (0, 0, 0);
        for key in 0..flood {
            let now = NOON + key * 10_000; // 100,000 a second
            let (_, stats) = worker.ask(&shared, &name(1000 + key), now);
            evictions += stats.evictions;
            pardons += stats.evictions_half_used;
            if key % 1000 == 0 {
                worker.forget(); // as if every attempt came to another worker
                let_in +=
                    (0..20).filter(|client| worker.ask(&shared, &name(*client), now).0).count();
            }
        }
        let now = NOON + flood * 10_000;
        assert_eq!((let_in, pardons), (0, 0), "{capacity} {algorithm}");
        let places = (1_usize << worker.config.tables[0].extent().level)
            * worker.config.tables[0].size().ways();
        let places = i64::try_from(places).unwrap();
        assert!(evictions > i64::try_from(flood).unwrap() - places - 100, "{evictions}");
        let most = (100..120).map(|client| worker.passes(&shared, &name(client), now, 9)).max();
        assert!(most <= Some(3), "two of five were used: {most:?}");
        println!(
            "{flood} keys, capacity {capacity}, {algorithm}: 0 of {} tries passed, {evictions} evictions, {} bytes",
            flood / 1000 * 20,
            shared.bytes()
        );
    }
}

// A shadow quota denies no request. A client that uses it up must not evict a client that is
// denied.
#[test]
fn a_shadow_does_not_outrank_what_is_enforced() {
    let shared = Shared::default();
    let rule = |name: &str, limit: u32, mode: &str| {
        json!({
            "name": name, "key": [{"header": "x-key"}], "capacity": 4, "mode": mode,
            "quotas": [{"name": name, "limit": limit, "window": "1d"}],
        })
    };
    let policy =
        json!({"version": 1, "rules": [rule("real", 5, "enforce"), rule("tried", 1, "shadow")]});
    let mut worker = Worker::new(&policy, &shared);
    assert_eq!(worker.passes(&shared, b"spent", NOON, 9), 5);
    for key in 0..1000 {
        assert!(worker.ask(&shared, &name(key), NOON + key).0, "its shadow is used up at once");
    }
    assert_eq!(worker.passes(&shared, b"spent", NOON + 1000, 9), 0);
}

// One request uses up "1 a second", for a second. A day's quota that is used up outlasts that.
#[test]
fn who_is_refused_longest_stays_longest() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let quotas = json!([
            {"name": "pace", "limit": 1, "window": "1s", "algorithm": algorithm},
            {"name": "day", "limit": 5, "window": "1d", "algorithm": algorithm},
        ]);
        let shared = Shared::default();
        let mut worker = Worker::new(&policy(4, &quotas), &shared);
        for second in 0..5 {
            worker.ask(&shared, b"spent", NOON + second * 2 * SECOND);
        }
        for key in 0..1000 {
            worker.ask(&shared, &name(key), NOON + 20 * SECOND + key);
        }
        assert!(!worker.ask(&shared, b"spent", NOON + 30 * SECOND).0, "{algorithm}");
    }
}

// As many different keys as the policy's capacity, and half as many: how many counts does the table
// lose?
#[test]
fn a_table_holds_what_its_capacity_says() {
    // In a small table chance has more influence.
    let (large, at_full) = if cfg!(debug_assertions) { (4096, 3_000) } else { (65_536, 1_000) };
    for (capacity, quotas, at_half, at_full) in [
        (large, quota(5, "gcra"), 0, at_full),
        (large, quota(5, "sliding-window"), 0, at_full),
        (1000, quota(5, "gcra"), 0, 1_000),
        // Long values have seven neighbours instead of fifteen.
        (4096, quota(100, "sliding-log"), 500, 10_000),
    ] {
        for (keys, per_million) in [(capacity / 2, at_half), (capacity, at_full)] {
            let shared = Shared::default();
            let mut worker = Worker::new(&policy(capacity, &quotas), &shared);
            let mut lost = 0;
            for key in 0..keys {
                lost += worker.ask(&shared, &name(key.into()), NOON).1.evictions;
            }
            let bytes = u64::try_from(shared.bytes()).unwrap();
            println!(
                "{keys} keys of {capacity}: {lost} lost, {} bytes each",
                bytes / u64::from(keys)
            );
            assert!(lost * 1_000_000 <= i64::from(keys) * per_million, "{lost} of {keys} lost");
            let size = worker.config.tables[0].size();
            assert!(bytes <= size.bytes() + 12, "more than `check` says");
        }
    }
}
