//! Denying from memory: a remembered denial denies exactly the requests that the store would deny,
//! and few requests of a flood reach the store.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{ChargingOrder, Denials, Disposition, FRESH, Failure, Plan, Policy, Surface};
use tollgate_storage::Counts;

use crate::support::{Request, Seen, get, seen};

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
    tollgate_language::compile(&document, Surface::Worker)
        .unwrap_or_else(|e| panic!("{e}\n{document}"))
}

/// The objects of all keys, which share a clock.
#[derive(Default)]
struct Objects {
    counts: BTreeMap<Vec<u8>, Counts>,
    calls: usize,
}

impl Objects {
    /// The response of the object of `key` to `request`.
    fn ask(&mut self, key: &[u8], request: &[u8], now: Timestamp) -> Vec<u8> {
        self.calls += 1;
        self.counts.entry(key.to_vec()).or_default().answer(request, now).unwrap().reply
    }

    /// The decision of all objects together, with nothing remembered and nothing charged.
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
            if matches!(
                plan.outcome(policy).disposition(),
                Disposition::Deny { .. } | Disposition::Retry(_)
            ) {
                break;
            }
        }
        seen(policy, &plan, Span::ZERO)
    }
}

/// One isolate: its clock is this much ahead of the objects' (in ms).
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

    /// Decides a request as the Worker does, without any time passing; true when no object was
    /// asked.
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
                    self.denials.record_reply(policy, &plan, i, here);
                }
                if matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. }) {
                    break;
                }
            }
            self.denials.close(policy, &plan);
        }
        (seen(policy, &plan, Span::ZERO), is_remembered)
    }
}

impl Front {
    /// Decides a request of several keys in the order of the Worker: a single count is charged at
    /// once; of several, all but the last are asked first, and the last is charged when no other
    /// denies.
    fn decide_in_order(
        &mut self,
        policy: &Policy,
        objects: &mut Objects,
        request: &Request,
        ms: u64,
    ) -> (Seen, bool) {
        let (here, there) = (self.clock(ms), Timestamp::from_millis(ms));
        let mut plan = Plan::new();
        policy.plan(request, &mut plan);
        if self.denials.refuses(policy, &mut plan, here) {
            return (seen(policy, &plan, Span::ZERO), true);
        }
        // Several keys, and none waits.
        let order = ChargingOrder::of(policy, &plan).unwrap();
        let mut charged = BTreeMap::new();
        let mut ask = |front: &mut Self, plan: &mut Plan, i: usize, is_peek: bool| {
            let partition = plan.partition(i).unwrap();
            let (mut request, key) = (Vec::new(), partition.key().to_vec());
            if is_peek {
                partition.peek_request_with_states(policy, &mut request);
            } else {
                partition.request(policy, &mut request);
            }
            let reply = objects.ask(&key, &request, there);
            plan.partition_mut(i).unwrap().accept(policy, &reply).unwrap();
            front.denials.record_reply(policy, plan, i, here);
            if plan.partition(i).unwrap().is_charged() {
                charged.insert(i, (key, request, reply));
            }
        };
        let refuses =
            |plan: &Plan| matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. });
        let between: Vec<_> =
            (0..plan.len()).filter(|i| ![order.first, order.last].contains(i)).collect();
        plan.partition_mut(order.last).unwrap().set_aside();
        ask(self, &mut plan, order.first, false);
        between.iter().for_each(|i| ask(self, &mut plan, *i, true));
        let is_refused = refuses(&plan);
        plan.partition_mut(order.last).unwrap().take_up();
        if is_refused {
            ask(self, &mut plan, order.last, true);
        } else {
            between.iter().for_each(|i| ask(self, &mut plan, *i, false));
            ask(self, &mut plan, order.last, false);
        }
        if refuses(&plan) {
            for (i, (key, request, reply)) in charged {
                let counts = objects.counts.get_mut(&key).unwrap();
                let left = counts.refund(&request, &reply, there).unwrap().reply;
                plan.partition_mut(i).unwrap().accept(policy, &left).unwrap();
                self.denials.record_reply(policy, &plan, i, here);
            }
        }
        self.denials.close(policy, &plan);
        (seen(policy, &plan, Span::ZERO), false)
    }
}

/// Rules of three keys, in this order in the document; each responds in its own way.
fn several(order: usize, algorithms: [usize; 3]) -> Policy {
    let each = format!(
        r#"{{"name": "each", "key": ["client_ip"], "action": {{"deny": {{"status": 403, "body": "each"}}}},
            "quotas": [{{"limit": 3, "window": "20s", "algorithm": "{}"}}]}}"#,
        ALGORITHMS[algorithms[0]]
    );
    let org = format!(
        r#"{{"name": "org", "key": [{{"header": "x-org"}}, "host"], "on_missing": "skip",
            "quotas": [{{"limit": 5, "window": "50s", "algorithm": "{}"}}]}}"#,
        ALGORITHMS[algorithms[1]]
    );
    let all = format!(
        r#"{{"name": "all", "key": [], "quotas": [{{"limit": 9, "window": "1m", "algorithm": "{}"}}]}},
           {{"name": "shadow", "key": ["client_ip"], "mode": "shadow", "quotas": [{{"limit": 2, "window": "1m"}}]}}"#,
        ALGORITHMS[algorithms[2]]
    );
    let mut rules = [each, org, all];
    rules.rotate_left(order % 3);
    if order >= 3 {
        rules.reverse();
    }
    policy(&rules.join(","))
}

/// All but the queue, whose places are given back in another way.
const NO_QUEUE: [usize; 7] = [0, 1, 2, 4, 5, 6, 7];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Charging in order decides as asking all first does, to the byte, and where several rules
    /// deny, the same request is denied from memory with the same status, fields and body.
    #[test]
    fn charged_in_order_and_refused_from_memory_it_is_the_same_answer(
        order in 0_usize..6,
        algorithms in [0_usize..7, 0_usize..7, 0_usize..7],
        events in prop::collection::vec((0_u64..3, 0_u64..3, 0_usize..5), 1..150),
    ) {
        let policy = several(order, algorithms.map(|i| NO_QUEUE[i]));
        let mut objects = Objects::default();
        let mut ms = 1_780_000_000_000;
        for (n, (key, org, step)) in events.into_iter().enumerate() {
            ms += [0, 7, 400, 3_000, 25_000][step];
            let mut request = client(key);
            if org > 0 {
                request = request.header("x-org", org.to_string());
                request.host = "a.test";
            }
            let expected = objects.oracle(&policy, &request, Timestamp::from_millis(ms));
            let mut front = Front::new(u8::try_from(n).unwrap(), 3);
            let (asked, _) = front.decide_in_order(&policy, &mut objects, &request, ms);
            prop_assert_eq!(&asked, &expected);
            if asked.answer == Disposition::Allow {
                continue;
            }
            // Nothing was charged, so the next request gets the same result, without asking.
            let again = objects.oracle(&policy, &request, Timestamp::from_millis(ms));
            let calls = objects.calls;
            let (remembered, is_remembered) =
                front.decide_in_order(&policy, &mut objects, &request, ms);
            prop_assert!(is_remembered && objects.calls == calls);
            prop_assert_eq!(&remembered, &again);
            // And within the second for which it is used.
            let later = objects.oracle(&policy, &request, Timestamp::from_millis(ms + 700));
            let mut ahead = Objects { counts: objects.counts.clone(), calls: 0 };
            let (remembered, is_remembered) =
                front.decide_in_order(&policy, &mut ahead, &request, ms + 700);
            if is_remembered {
                prop_assert_eq!(&remembered, &later);
            }
        }
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

    /// Where nothing comes back, a result from memory is the store's own at that time, with every
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

    /// Where units come back, other rules also count, and costs differ, a denial from memory is one
    /// that the store gave, or would have given, within the last second; and nothing else is ever
    /// taken from memory.
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
        // Of requests that come one after the other each is the one that asks.
        fronts[1].denials = Denials::new([2; 16]).patient(Span::from_secs(30));
        // The recent content of the objects, charged with the requests that passed since.
        let mut lately: VecDeque<(u64, Objects)> = VecDeque::new();
        let mut ms = 1_780_000_000_000;
        for (front, key, step, cost, chance) in events {
            ms += [0, 1, 200, 900, 9_000][usize::try_from(step).unwrap()];
            lately.push_back((ms, Objects { counts: objects.counts.clone(), calls: 0 }));
            lately.retain(|(until, _)| until + FRESH.as_millis_ceil() >= ms);
            if chance == 0 {
                // All charges of one client are taken back.
                let key = objects.counts.keys().nth(usize::try_from(key).unwrap()).cloned();
                key.and_then(|key| objects.counts.remove(&key));
            }
            let request = client(key).header("x-cost", cost.to_string());
            let now = Timestamp::from_millis(ms);
            let expected = objects.oracle(&policy, &request, now);
            let (seen, is_remembered) = fronts[front].decide(&policy, &mut objects, &request, ms);
            if is_remembered {
                prop_assert_eq!(seen.answer, Disposition::Deny { status: 429 });
                let refuses = |(_, then): &(u64, Objects)| {
                    let answer = then.oracle(&policy, &request, now).answer;
                    matches!(answer, Disposition::Deny { .. })
                };
                prop_assert!(lately.iter().any(refuses), "never refused in the last second");
                continue;
            }
            if seen.answer == Disposition::Allow {
                for (_, then) in &mut lately {
                    Front::new(0, 0).decide(&policy, then, &request, ms);
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }
}

/// A flood in steps of one millisecond: a request takes `WAY` of them to the object and again back.
struct Flood {
    policy: Policy,
    front: Front,
    objects: Objects,
    /// The request that arrives at each time.
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
            self.front.denials.record_reply(&self.policy, &plan, 0, self.front.clock(at));
            self.front.denials.close(&self.policy, &plan);
            let answer = plan.outcome(&self.policy).disposition();
            self.passed += u64::from(matches!(answer, Disposition::Allow | Disposition::Delay(_)));
        }
    }
}

/// Guards: a flood that costs calls. With 100 requests for each one that is allowed, at most 2 % of
/// them reach an object, and none that the object would have allowed is denied for long: as many
/// pass as without.
#[test]
fn of_a_flood_few_requests_reach_an_object() {
    for algorithm in ALGORITHMS {
        // (keys, requests per millisecond, limit of each key in 5 s)
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

/// A site of one unit per hour behind a rule for each client, and a front that knows that the site
/// is used up; at `START`.
fn used_up_site() -> (Policy, Objects, Front) {
    let policy = policy(
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 9, "window": "1h", "algorithm": "gcra"}]},
           {"name": "site", "key": [], "quotas": [{"limit": 1, "window": "1h", "algorithm": "gcra"}]}"#,
    );
    let (mut objects, mut front) = (Objects::default(), Front::new(3, 0));
    front.denials = front.denials.patient(PATIENCE);
    for n in 0..2 {
        front.decide_in_order(&policy, &mut objects, &client(n), START);
    }
    (policy, objects, front)
}

const START: u64 = 1_780_000_000_000;
const PATIENCE: Span = Span::from_millis(500);

/// A fresh client's plan, and whether it is denied from memory `after_ms` after the start.
fn arrive(front: &mut Front, policy: &Policy, n: u64, after_ms: u64) -> (Plan, bool) {
    let mut plan = Plan::new();
    policy.plan(&client(n), &mut plan);
    let is_refused = front.denials.refuses(policy, &mut plan, front.clock(START + after_ms));
    (plan, is_refused)
}

/// The partition that is checked before any is charged.
fn suspect(policy: &Policy, plan: &Plan) -> Option<usize> {
    ChargingOrder::of(policy, plan).unwrap().suspect
}

/// Guards: a flood of fresh keys that all ask when a denial expires. One asks, the others get the
/// old denial, as of their time, until the store had its time to respond.
#[test]
fn when_a_denial_is_no_longer_believed_one_request_asks() {
    let (policy, mut objects, mut front) = used_up_site();
    let fresh = FRESH.as_millis_ceil();
    let last = fresh + PATIENCE.as_millis_ceil();
    assert!(arrive(&mut front, &policy, 10, fresh).1, "it is believed");
    for round in 0..3 {
        let (mut asks, mut sent) = (0, 0);
        let after = round * (fresh + 1);
        for n in 0..64 {
            let (plan, is_refused) = arrive(&mut front, &policy, 100 + n, after + fresh + 1 + n);
            sent += 1;
            if is_refused {
                let retry_after = plan.outcome(&policy).retry_after().unwrap();
                let left = 3_600_000 - (after + fresh + 1 + n);
                assert_eq!(retry_after.as_millis_ceil(), left, "as of its time");
            } else {
                assert_eq!(suspect(&policy, &plan), Some(1), "the site is asked first");
                asks += 1;
            }
        }
        assert_eq!((asks, sent), (1, 64), "round {round}");
        // Its response comes before the next round.
        let now = START + after + fresh + 1;
        let mut plan = Plan::new();
        policy.plan(&client(99), &mut plan);
        for i in 0..plan.len() {
            let (mut request, partition) = (Vec::new(), plan.partition(i).unwrap());
            partition.peek_request_with_states(&policy, &mut request);
            let key = partition.key().to_vec();
            let reply = objects.ask(&key, &request, Timestamp::from_millis(now));
            plan.partition_mut(i).unwrap().accept(&policy, &reply).unwrap();
            front.denials.record_reply(&policy, &plan, i, front.clock(now));
        }
        front.denials.close(&policy, &plan);
    }
    // The store does not respond: after its time every request asks, and the policy decides.
    let heard = 3 * (fresh + 1);
    assert!(!arrive(&mut front, &policy, 200, heard + fresh + 1).1);
    assert!(arrive(&mut front, &policy, 201, heard + last).1);
    assert!((0..64).all(|n| !arrive(&mut front, &policy, 20 + n, heard + last + 1).1));
}

/// Guards: a slow store that allows requests of a used-up quota. A request that asks in vain gets
/// the denial that was remembered when it came; where there was none, the policy decides it.
#[test]
fn a_silent_store_does_not_open_what_was_used_up() {
    let fresh = FRESH.as_millis_ceil();
    for (after_ms, failure, stands) in [
        (fresh + 1, Failure::Unreachable, true),
        (fresh + PATIENCE.as_millis_ceil() + 1, Failure::Unreachable, false),
        (fresh + 1, Failure::Corrupt, false),
    ] {
        let (policy, _, mut front) = used_up_site();
        let came_at = front.clock(START + after_ms);
        let now = came_at.saturating_add(PATIENCE);
        let (mut plan, is_refused) = arrive(&mut front, &policy, 10, after_ms);
        assert!(!is_refused, "it asks");
        for i in 0..plan.len() {
            plan.partition_mut(i).unwrap().fail(failure);
        }
        front.denials.close(&policy, &plan);
        assert_eq!(plan.outcome(&policy).disposition(), Disposition::Allow, "on_failure");
        let times = (came_at, now);
        let decides = front.denials.overrules_failure(&policy, &mut plan, times);
        assert_eq!(decides, stands, "{after_ms}");
        if stands {
            assert_eq!(plan.outcome(&policy).disposition(), Disposition::Deny { status: 429 });
            assert!(!plan.has_failed());
        }
        // The next one asks, and no request is denied for longer than the store may take.
        let (next, is_refused) = arrive(&mut front, &policy, 11, after_ms + 1);
        let expected = (failure == Failure::Unreachable).then_some(1);
        assert!(!is_refused && suspect(&policy, &next) == expected, "{after_ms}");
    }
}

/// Guards: a request that is denied by its own charge because another of its counts is silent: its
/// unit would go back, and it and all later requests would pass uncounted.
#[test]
fn what_a_count_answered_to_the_request_itself_decides_nothing() {
    let (policy, _, _) = used_up_site();
    let (mut objects, mut front) = (Objects::default(), Front::new(3, 0));
    front.denials = front.denials.patient(PATIENCE);
    let came_at = front.clock(START);
    let (mut plan, _) = arrive(&mut front, &policy, 1, 0);
    plan.partition_mut(0).unwrap().fail(Failure::Unreachable);
    let (mut request, site) = (Vec::new(), plan.partition(1).unwrap());
    site.request(&policy, &mut request);
    let key = site.key().to_vec();
    let reply = objects.ask(&key, &request, Timestamp::from_millis(START + 1));
    plan.partition_mut(1).unwrap().accept(&policy, &reply).unwrap();
    front.denials.record_reply(&policy, &plan, 1, front.clock(START + 1));
    front.denials.close(&policy, &plan);
    let times = (came_at, front.clock(START + 2));
    assert!(
        front.denials.would_stand_in_for(&policy, &plan, 1, times),
        "its own unit was the last"
    );
    assert!(!front.denials.overrules_failure(&policy, &mut plan, times));
    assert_eq!(
        plan.outcome(&policy).disposition(),
        Disposition::Allow,
        "on_failure, and the site is charged"
    );
    assert!(arrive(&mut front, &policy, 2, 3).1, "the next one is denied");
}

/// Guards: a unit that came back, whose request is denied by its own charge because the store is
/// silent: the policy's setting for failures decides it.
#[test]
fn a_request_with_a_unit_of_its_own_is_not_denied_for_a_silent_store() {
    let policy = policy(
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1s", "algorithm": "gcra"}]}"#,
    );
    let (mut objects, mut front) = (Objects::default(), Front::new(3, 0));
    front.denials = front.denials.patient(PATIENCE);
    front.decide(&policy, &mut objects, &client(1), START);
    let (mut plan, is_refused) = arrive(&mut front, &policy, 1, 1_000);
    assert!(!is_refused, "its unit is back");
    plan.partition_mut(0).unwrap().fail(Failure::Unreachable);
    front.denials.close(&policy, &plan);
    let times = (front.clock(START + 1_000), front.clock(START + 1_500));
    assert!(!front.denials.overrules_failure(&policy, &mut plan, times));
}

/// Guards: a client that is denied for another hour because its request was charged in memory only:
/// the store did not respond, and may not have charged it.
#[test]
fn a_charge_that_the_store_did_not_confirm_denies_for_a_second() {
    let policy = policy(
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h", "algorithm": "gcra"}]}"#,
    );
    let (mut objects, mut front) = (Objects::default(), Front::new(3, 0));
    front.denials = front.denials.patient(PATIENCE);
    front.decide(&policy, &mut objects, &client(1), START);
    let hour = 3_600_000;
    let (mut plan, is_refused) = arrive(&mut front, &policy, 1, hour);
    assert!(!is_refused, "its unit is back");
    plan.partition_mut(0).unwrap().fail(Failure::Unreachable);
    front.denials.close(&policy, &plan);
    let trusted = FRESH.as_millis_ceil() + PATIENCE.as_millis_ceil();
    assert!(!arrive(&mut front, &policy, 1, hour + trusted + 1).1, "the store is asked");
}

/// The refund of a settled cost is found within a second; a denial of a rule that names no cost is
/// used until its time, whatever is settled elsewhere.
#[test]
fn a_settled_cost_is_found_within_a_second() {
    for (cost, settles, asked_after_ms) in [
        ("", true, None),
        (r#""cost": 1,"#, false, None),
        (r#""cost": 1,"#, true, Some(FRESH.as_millis_ceil())),
    ] {
        let policy = policy(&format!(
            r#"{{"name": "each", "key": ["client_ip"], {cost} "quotas": [
                {{"limit": 2, "window": "1h", "algorithm": "fixed-window"}}]}}"#
        ));
        let (mut front, mut objects) = (Front::new(1, 0), Objects::default());
        if settles {
            front.denials = front.denials.settled();
        }
        let start = 1_780_000_000_000;
        for _ in 0..3 {
            front.decide(&policy, &mut objects, &client(1), start);
        }
        let mut is_remembered =
            |after| front.decide(&policy, &mut objects, &client(1), start + after).1;
        let until = asked_after_ms.unwrap_or(600_000);
        assert!(is_remembered(1) && is_remembered(until - 1), "{cost}");
        assert_eq!(is_remembered(until + 1), asked_after_ms.is_none(), "{cost}");
    }
}

/// Units that nodes of a fleet give back are found within a second, whichever rule of the policy
/// denies: they share one response.
#[test]
fn where_nodes_lease_a_refusal_is_a_second_old() {
    for (scope, leases, asked_after_ms) in [
        ("local", true, None),
        ("fleet", false, None),
        ("fleet", true, Some(FRESH.as_millis_ceil())),
    ] {
        let policy = policy(&format!(
            r#"{{"name": "each", "key": ["client_ip"], "scope": "{scope}", "quotas": [
                {{"limit": 2, "window": "1h", "algorithm": "fixed-window"}}]}}"#
        ));
        let (mut front, mut objects) = (Front::new(1, 0), Objects::default());
        if leases {
            front.denials = front.denials.leased();
        }
        let start = 1_780_000_000_000;
        for _ in 0..3 {
            front.decide(&policy, &mut objects, &client(1), start);
        }
        let mut is_remembered =
            |after| front.decide(&policy, &mut objects, &client(1), start + after).1;
        let until = asked_after_ms.unwrap_or(600_000);
        assert!(is_remembered(1) && is_remembered(until - 1), "{scope}");
        assert_eq!(is_remembered(until + 1), asked_after_ms.is_none(), "{scope}");
    }
}

/// The charge of a client that left is refunded, and any denial may depend on one: it is found
/// within a second. What was forgotten is asked at once.
#[test]
fn where_clients_that_leave_are_refunded_a_refusal_is_a_second_old() {
    for (is_refunded, is_final) in [(false, true), (true, false)] {
        let policy = lone("fixed-window", 2, "1h");
        let (mut front, mut objects) = (Front::new(1, 0), Objects::default());
        if is_refunded {
            front.denials = front.denials.refunded();
        }
        for _ in 0..3 {
            front.decide(&policy, &mut objects, &client(1), START);
        }
        let fresh = FRESH.as_millis_ceil();
        let is_remembered = |front: &mut Front, objects: &mut Objects, after| {
            front.decide(&policy, objects, &client(1), START + after).1
        };
        assert!(is_remembered(&mut front, &mut objects, 1), "{is_refunded}");
        assert!(is_remembered(&mut front, &mut objects, fresh - 1), "{is_refunded}");
        let still = is_remembered(&mut front, &mut objects, fresh + 1);
        assert_eq!(still, is_final, "{is_refunded}");
        let mut plan = Plan::new();
        policy.plan(&client(2), &mut plan);
        let others = front.denials.places(&policy, &plan, 0);
        front.denials.forget(&others);
        assert!(!front.denials.is_empty(), "{is_refunded}: another client's");
        policy.plan(&client(1), &mut plan);
        let own = front.denials.places(&policy, &plan, 0);
        front.denials.forget(&own);
        assert!(front.denials.is_empty(), "{is_refunded}");
        assert!(!is_remembered(&mut front, &mut objects, fresh + 2), "{is_refunded}");
    }
}

/// Units that were used already are recorded whatever the decision is, so a report is always sent,
/// and no remembered denial decides it, also when its store is silent. Other requests are denied.
#[test]
fn a_report_is_sent_whatever_is_remembered() {
    let document = r#"{"version": 1, "rules": [{"name": "tokens", "when": {"domain": "llm"},
        "key": [{"descriptor": "user"}], "cost": "reported",
        "quotas": [{"limit": 10, "window": "1h", "algorithm": "fixed-window"}]}]}"#;
    let policy = tollgate_language::compile(document, Surface::Server).unwrap();
    let report = |hits| {
        let (domain, entries) = (Some("llm"), vec![("user", "ada")]);
        Request { domain, entries, hits: Some(hits), ..Request::default() }
    };
    let (mut front, mut objects) = (Front::new(1, 0), Objects::default());
    front.denials = front.denials.patient(PATIENCE);
    for n in 0..4 {
        let (_, is_remembered) = front.decide(&policy, &mut objects, &report(6), START + n);
        assert!(!is_remembered, "{n}");
    }
    assert!(!front.denials.is_empty(), "it denies, and is known to");
    let mut plan = Plan::new();
    policy.plan(&report(6), &mut plan);
    let times = (front.clock(START + 5), front.clock(START + 6));
    assert!(!front.denials.refuses(&policy, &mut plan, times.0));
    plan.partition_mut(0).unwrap().fail(Failure::Unreachable);
    assert!(!front.denials.overrules_failure(&policy, &mut plan, times));
}

/// Units that shards of a key hold and do not spend are found within a second.
#[test]
fn where_a_key_has_shards_a_refusal_is_a_second_old() {
    for (shards, is_final) in [("", true), (r#""shards": 2,"#, false)] {
        let policy = policy(&format!(
            r#"{{"name": "all", "key": [], {shards} "quotas": [
                {{"limit": 2, "window": "1h", "algorithm": "fixed-window"}}]}}"#
        ));
        let (mut front, mut objects) = (Front::new(1, 0), Objects::default());
        let start = 1_780_000_000_000;
        for _ in 0..3 {
            front.decide(&policy, &mut objects, &client(1), start);
        }
        let mut is_remembered =
            |after| front.decide(&policy, &mut objects, &client(1), start + after).1;
        let fresh = FRESH.as_millis_ceil();
        assert!(is_remembered(1) && is_remembered(fresh - 1), "{shards}");
        assert_eq!(is_remembered(fresh + 1), is_final, "{shards}");
    }
}

/// Where an operator may give units back, a denial is used until its time only while the number of
/// the last relief is known and is the one that was known before the store was asked.
#[test]
fn an_operators_relief_is_found_once_its_number_is_known() {
    let policy = lone("fixed-window", 2, "1h");
    let start = 1_780_000_000_000;
    // The number known when the store was asked, when it responded, and ten seconds later.
    for (asked, heard, later, is_remembered) in [
        (Some(4), Some(4), Some(4), true),
        (Some(4), Some(4), Some(5), false),
        (Some(4), Some(4), None, false),
        (Some(4), Some(5), Some(5), false),
        (Some(5), Some(4), Some(5), false),
        (None, Some(4), Some(4), false),
        (Some(4), None, Some(4), false),
        (None, None, None, false),
    ] {
        let (mut denials, mut objects) = (Denials::new([1; 16]).operated(), Objects::default());
        let at = Timestamp::from_millis(start);
        denials.know_relief(asked);
        let mut plan = Plan::new();
        policy.plan(&client(1), &mut plan);
        assert!(!denials.refuses(&policy, &mut plan, at));
        let (mut request, key) = (Vec::new(), plan.partition(0).unwrap().key().to_vec());
        plan.partition(0).unwrap().request(&policy, &mut request);
        let reply = objects.ask(&key, &request, at);
        plan.partition_mut(0).unwrap().accept(&policy, &reply).unwrap();
        denials.know_relief(heard);
        denials.record_reply(&policy, &plan, 0, at);
        let mut refuses = |policy: &Policy, number, ms| {
            denials.know_relief(number);
            let mut plan = Plan::new();
            policy.plan(&client(1), &mut plan);
            denials.refuses(policy, &mut plan, Timestamp::from_millis(start + ms))
        };
        let what = format!("{asked:?} {heard:?} {later:?}");
        assert!(refuses(&policy, later, 1_000), "{what}: a second is always believed");
        assert_eq!(refuses(&policy, later, 10_000), is_remembered, "{what}");
        // The same text as another version, before which units may have come back.
        let mut again = policy.clone();
        again.set_version(9);
        assert!(!refuses(&again, later, 1_000), "{what}");
    }
}

/// A tenant may get quotas back that it had before, and with them another state.
#[test]
fn where_tenants_have_quotas_an_operated_refusal_is_a_second_old() {
    let document = r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [
            {"limit": 1, "window": "1h", "algorithm": "fixed-window"}]}]}"#;
    for (is_operated, asked_after_ms) in [(false, None), (true, Some(1_001))] {
        let policy =
            tollgate_language::compile(document, tollgate_policy::Surface::Worker).unwrap();
        let (mut front, mut objects) = (Front::new(1, 0), Objects::default());
        if is_operated {
            front.denials = front.denials.operated();
            front.denials.know_relief(Some(7));
        }
        let start = 1_780_000_000_000;
        front.decide(&policy, &mut objects, &client(1), start);
        for ms in [1_000, 1_001] {
            let (_, is_remembered) = front.decide(&policy, &mut objects, &client(1), start + ms);
            assert_eq!(is_remembered, asked_after_ms.is_none_or(|after| ms < after), "{ms}");
        }
    }
}
