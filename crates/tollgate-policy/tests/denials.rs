//! Refusing without asking: what is remembered refuses exactly what the store would refuse, and of
//! a flood few requests reach the store.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod support;

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, Counts, Denials, FRESH, Plan, Policy, Surface};

use support::{Request, Seen, get, seen};

const ALGORITHMS: [&str; 8] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "leaky-queue",
    "fixed-window",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];

fn policy(rules: &str) -> Policy {
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    Policy::compile(&document, Surface::Worker).unwrap_or_else(|e| panic!("{e}\n{document}"))
}

/// The objects of all keys, which share a clock.
#[derive(Default)]
struct Objects {
    counts: BTreeMap<Vec<u8>, Counts>,
    calls: usize,
}

impl Objects {
    /// What the object of `key` answers to `request`.
    fn ask(&mut self, key: &[u8], request: &[u8], now: Timestamp) -> Vec<u8> {
        self.calls += 1;
        self.counts.entry(key.to_vec()).or_default().answer(request, now).unwrap().reply
    }

    /// What all objects together would decide, with nothing remembered and nothing charged.
    fn oracle(&self, policy: &Policy, request: &Request, now: Timestamp) -> Seen {
        let mut plan = Plan::new();
        policy.plan(request, &mut plan);
        for is_look in [true, false] {
            for i in 0..plan.len() {
                let (mut request, partition) = (Vec::new(), plan.partition(i).unwrap());
                if is_look {
                    partition.peek_request(policy, &mut request);
                } else {
                    partition.request(policy, &mut request);
                }
                let mut counts = self.counts.get(partition.key()).cloned().unwrap_or_default();
                let reply = counts.answer(&request, now).unwrap().reply;
                plan.partition_mut(i).unwrap().accept(policy, &reply).unwrap();
            }
            if matches!(plan.outcome(policy).answer(), Answer::Refuse { .. } | Answer::Retry(_)) {
                break;
            }
        }
        seen(policy, &plan, Span::ZERO)
    }
}

/// One isolate: its clock is so much ahead of the objects' (in ms).
struct Front {
    denials: Denials,
    ahead: u64,
}

impl Front {
    fn new(seed: u8, ahead: u64) -> Self {
        Self { denials: Denials::new([seed; 16]), ahead }
    }

    fn clock(&self, ms: u64) -> Timestamp {
        Timestamp::from_millis(ms + self.ahead)
    }

    /// Decides a request as the Worker does, without any time passing; true when nobody was asked.
    fn decide(
        &mut self,
        policy: &Policy,
        objects: &mut Objects,
        request: &Request,
        ms: u64,
    ) -> (Seen, bool) {
        let (here, there) = (self.clock(ms), Timestamp::from_millis(ms));
        let mut plan = Plan::new();
        policy.plan(request, &mut plan);
        let is_remembered = self.denials.refuses(policy, &mut plan, here);
        if !is_remembered {
            let peeks = plan.len() > 1;
            for is_peek in [true, false] {
                if is_peek && !peeks {
                    continue;
                }
                for i in 0..plan.len() {
                    let partition = plan.partition(i).unwrap();
                    let (mut request, key) = (Vec::new(), partition.key().to_vec());
                    if is_peek {
                        partition.peek_request(policy, &mut request);
                    } else {
                        partition.request(policy, &mut request);
                    }
                    let reply = objects.ask(&key, &request, there);
                    plan.partition_mut(i).unwrap().accept(policy, &reply).unwrap();
                    self.denials.hear(policy, &plan, i, here);
                }
                if matches!(plan.outcome(policy).answer(), Answer::Refuse { .. }) {
                    break;
                }
            }
            self.denials.close(policy, &plan);
        }
        (seen(policy, &plan, Span::ZERO), is_remembered)
    }
}

/// One rule for each client, and nothing that could bring a unit back.
fn lone(algorithm: &str, limit: u64, window: &str) -> Policy {
    policy(&format!(
        r#"{{"name": "each", "key": ["client_ip"], "cost": 2, "quotas": [
            {{"name": "a", "limit": {limit}, "window": "{window}", "algorithm": "{algorithm}"}},
            {{"name": "b", "limit": 40, "window": "10m"}}]}}"#
    ))
}

fn client(n: u64) -> Request {
    get("/", &format!("192.0.2.{n}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Where nothing comes back, an answer from memory is the store's own at that time, with every
    /// field, whatever passed meanwhile and however many fronts ask.
    #[test]
    fn what_is_remembered_is_what_the_store_would_say(
        algorithm in 0..ALGORITHMS.len(),
        limit in 2_u64..9,
        ahead in prop::collection::vec(0_u64..100_000, 3),
        events in prop::collection::vec((0_usize..3, 0_u64..3, 0_u64..6), 1..200),
    ) {
        let policy = lone(ALGORITHMS[algorithm], limit, "10s");
        let mut objects = Objects::default();
        let mut fronts: Vec<Front> = (0_u8..).zip(ahead).map(|(n, ahead)| Front::new(n, ahead)).collect();
        let mut ms = 1_780_000_000_000;
        for (front, key, step) in events {
            ms += [0, 1, 40, 900, 1_100, 30_000][usize::try_from(step).unwrap()];
            let request = client(key);
            let expected = objects.oracle(&policy, &request, Timestamp::from_millis(ms));
            let (seen, _) = fronts[front].decide(&policy, &mut objects, &request, ms);
            prop_assert_eq!(seen, expected);
        }
    }

    /// Where units come back, other rules count beside, and costs differ, a refusal from memory is
    /// one that the store gave, or would have given, within the last second; and nothing else is
    /// ever taken from memory.
    #[test]
    fn where_units_come_back_a_refusal_is_at_most_a_second_old(
        algorithm in 0..ALGORITHMS.len(),
        events in prop::collection::vec((0_usize..2, 0_u64..3, 0_u64..5, 1_u64..5, 0..10), 1..200),
    ) {
        let policy = policy(&format!(
            r#"{{"name": "each", "key": ["client_ip"], "cost": {{"header": "x-cost", "default": 1, "max": 9}},
                "quotas": [{{"limit": 6, "window": "20s", "algorithm": "{}"}}]}},
               {{"name": "all", "key": [], "quotas": [{{"limit": 20, "window": "1m"}}]}},
               {{"name": "shadow", "key": ["client_ip"], "mode": "shadow", "quotas": [{{"limit": 3, "window": "1m"}}]}}"#,
            ALGORITHMS[algorithm]
        ));
        let mut objects = Objects::default();
        let mut fronts = [Front::new(1, 5), Front::new(2, 0)];
        // What the objects held lately, charged with what passed since.
        let mut lately: VecDeque<(u64, Objects)> = VecDeque::new();
        let mut ms = 1_780_000_000_000;
        for (front, key, step, cost, chance) in events {
            ms += [0, 1, 200, 900, 9_000][usize::try_from(step).unwrap()];
            lately.push_back((ms, Objects { counts: objects.counts.clone(), calls: 0 }));
            lately.retain(|(until, _)| until + FRESH.as_millis_ceil() >= ms);
            if chance == 0 {
                // Somebody's charges are all taken back.
                let key = objects.counts.keys().nth(usize::try_from(key).unwrap()).cloned();
                key.and_then(|key| objects.counts.remove(&key));
            }
            let request = client(key).header("x-cost", cost.to_string());
            let now = Timestamp::from_millis(ms);
            let expected = objects.oracle(&policy, &request, now);
            let (seen, is_remembered) = fronts[front].decide(&policy, &mut objects, &request, ms);
            if is_remembered {
                prop_assert_eq!(seen.answer, Answer::Refuse { status: 429 });
                let refuses = |(_, then): &(u64, Objects)| {
                    let answer = then.oracle(&policy, &request, now).answer;
                    matches!(answer, Answer::Refuse { .. })
                };
                prop_assert!(lately.iter().any(refuses), "never refused in the last second");
                continue;
            }
            if seen.answer == Answer::Pass {
                for (_, then) in &mut lately {
                    Front::new(0, 0).decide(&policy, then, &request, ms);
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }
}

/// A flood in steps of one millisecond: what is under way takes `WAY` of them there and back again.
struct Flood {
    policy: Policy,
    front: Front,
    objects: Objects,
    /// When it arrives, which request.
    going: VecDeque<(u64, Plan)>,
    coming: VecDeque<(u64, Plan, Vec<u8>)>,
    passed: u64,
    sent: u64,
}

const WAY: u64 = 5;

impl Flood {
    fn new(policy: Policy) -> Self {
        let (front, objects) = (Front::new(7, 123), Objects::default());
        let (going, coming) = (VecDeque::new(), VecDeque::new());
        Self { policy, front, objects, going, coming, passed: 0, sent: 0 }
    }

    fn arrive(&mut self, request: &Request, ms: u64) {
        let mut plan = Plan::new();
        self.policy.plan(request, &mut plan);
        self.sent += 1;
        if !self.front.denials.refuses(&self.policy, &mut plan, self.front.clock(ms)) {
            self.going.push_back((ms + WAY, plan));
        }
    }

    fn pass(&mut self, ms: u64) {
        while self.going.front().is_some_and(|(at, _)| *at <= ms) {
            let (at, plan) = self.going.pop_front().unwrap();
            let partition = plan.partition(0).unwrap();
            let (mut request, key) = (Vec::new(), partition.key().to_vec());
            partition.request(&self.policy, &mut request);
            let reply = self.objects.ask(&key, &request, Timestamp::from_millis(at));
            self.coming.push_back((at + WAY, plan, reply));
        }
        while self.coming.front().is_some_and(|(at, ..)| *at <= ms) {
            let (at, mut plan, reply) = self.coming.pop_front().unwrap();
            plan.partition_mut(0).unwrap().accept(&self.policy, &reply).unwrap();
            self.front.denials.hear(&self.policy, &plan, 0, self.front.clock(at));
            self.front.denials.close(&self.policy, &plan);
            let answer = plan.outcome(&self.policy).answer();
            self.passed += u64::from(matches!(answer, Answer::Pass | Answer::Delay(_)));
        }
    }
}

/// Guards: a flood that costs calls. With 100 requests for each one that is admitted, at most 2 %
/// of them reach an object, and none that the object would have admitted is refused for long: as
/// many pass as without.
#[test]
fn of_a_flood_few_requests_reach_an_object() {
    for algorithm in ALGORITHMS {
        // (keys, requests a millisecond, limit of each key in 5 s)
        for (keys, rate, limit) in [(1, 4, 200), (1_000, 20, 1)] {
            let mut flood = Flood::new(policy(&format!(
                r#"{{"name": "each", "key": [{{"header": "x-key"}}], "on_missing": "deny", "quotas": [
                    {{"limit": {limit}, "window": "5s", "algorithm": "{algorithm}"}}]}}"#
            )));
            let seconds = 10_u64; // the second of two whole windows is measured
            let start = 1_780_000_000_000;
            let (mut steady, mut calls, mut passed) = (0, 0, 0);
            for ms in 0..seconds * 1_000 {
                if ms == 5_000 {
                    (steady, calls, passed) = (flood.sent, flood.objects.calls, flood.passed);
                }
                for n in 0..rate {
                    let key = (ms * rate + n) * 7_919 % keys;
                    flood.arrive(&Request::default().header("x-key", key.to_string()), start + ms);
                }
                flood.pass(start + ms);
            }
            let (sent, calls) = (flood.sent - steady, flood.objects.calls - calls);
            let passed = flood.passed - passed;
            let most = limit * keys;
            assert!(
                passed * 100 >= most * 97 && passed <= most * 105 / 100,
                "{algorithm}: {passed} of {most}"
            );
            // A place in a queue may be given back, so each key is asked once a second.
            let asked_again = if algorithm == "leaky-queue" { keys * 5 } else { 0 };
            let calls = u64::try_from(calls).unwrap().saturating_sub(asked_again);
            assert!(calls * 50 <= sent, "{algorithm} {keys}: {calls} of {sent}");
        }
    }
}
