//! Servers that share a store and remember its denials, in virtual time: calls take their time and
//! get lost, clients leave, policies are replaced, and operators and losses of data give units
//! back.
//!
//! The laws: where no unit comes back, every decision is the one that the store would make, to the
//! number. Where one does, it is missed for at most a second and the time of a call.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Denials, Disposition, FRESH, Failure, Plan, Policy, Surface};
use tollgate_service::CountRequest;
use tollgate_service::drive::{
    Drive, MissingReply, Next, Order, ReplyOutcome, RequestId, WaitBudget,
};
use tollgate_service::metrics::Event;
use tollgate_storage::Counts;

use tollgate_test_support::Random;

const START_MS: u64 = 1_780_000_000_000;
/// A call without a reply for this long has failed.
const TIMEOUT: Span = Span::from_millis(500);
/// How long a denial may outlast a unit that came back.
const STALE: Span = FRESH.saturating_add(TIMEOUT);
const SEEDS: u64 = 400;

/// Policies of one, two and three keys, of one quota and of two, and one with a rule in dry run
/// that is always used up. `limit` makes versions of them.
fn policy(number: u64, limit: u64) -> Policy {
    let quota = |limit: u64, window: &str, algorithm: &str| {
        format!(
            r#"{{"name": "{window}", "limit": {limit}, "window": "{window}", "algorithm": "{algorithm}"}}"#
        )
    };
    let rule = |name: &str, key: &str, more: &str, quotas: &[String]| {
        let quotas = quotas.join(",");
        format!(r#"{{"name": "{name}", "key": [{key}], {more} "quotas": [{quotas}]}}"#)
    };
    let client = |algorithm| rule("client", r#""client_ip""#, "", &[quota(limit, "6s", algorithm)]);
    let rules = match number {
        0 => vec![client("gcra")],
        1 => vec![client("fixed-window")],
        2 => {
            let quotas =
                [quota(limit, "3s", "sliding-log"), quota(3 * limit, "20s", "fixed-window")];
            vec![rule("client", r#""client_ip""#, "", &quotas)]
        }
        3 => vec![client("sliding-window"), rule("all", "", "", &[quota(2 * limit, "5s", "gcra")])],
        4 => vec![
            client("token-bucket"),
            rule(
                "method",
                r#""method""#,
                r#""on_failure": "deny","#,
                &[quota(limit, "4s", "gcra")],
            ),
            rule("all", "", "", &[quota(2 * limit, "4s", "fixed-window")]),
        ],
        _ => vec![
            client("sliding-buckets"),
            rule("trial", "", r#""mode": "shadow","#, &[quota(1, "1h", "fixed-window")]),
        ],
    };
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    tollgate_language::compile(&document, Surface::Server)
        .unwrap_or_else(|why| panic!("{why}\n{document}"))
}

const POLICIES: u64 = 6;

fn facts(ip: u64, method: u64) -> DescribedRequest {
    let method = ["GET", "PUT"][usize::try_from(method).unwrap()];
    let text = format!(
        r#"{{"method": "{method}", "path": "/", "client_ip": "192.0.2.{ip}", "headers": {{}}}}"#
    );
    DescribedRequest::parse(text.as_bytes()).unwrap()
}

type All = BTreeMap<Vec<u8>, Counts>;

/// The decision of the store alone, if it were asked at `at`; nothing is charged.
fn would_deny(policy: &Policy, facts: &DescribedRequest, counts: &All, at: Timestamp) -> bool {
    let mut plan = Plan::new();
    policy.plan(facts, &mut plan);
    for i in 0..plan.len() {
        let (mut request, partition) = (Vec::new(), plan.partition(i).unwrap());
        partition.peek_request(policy, &mut request);
        let mut counts = counts.get(partition.key()).cloned().unwrap_or_default();
        let reply = counts.answer(&request, at).unwrap().reply;
        if plan.partition_mut(i).unwrap().accept(policy, &reply).is_err() {
            return true; // its policy is older: nothing to compare with
        }
    }
    matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. })
}

/// A call: its partition and event, its bytes, the charge that it refunds, and when it was sent.
type Sent = (usize, Event, Vec<u8>, Option<Vec<u8>>, Timestamp);

/// A request, and the decision of it.
struct Request {
    server: usize,
    facts: DescribedRequest,
    policy: Policy,
    plan: Plan,
    drive: Option<Drive>,
    came_at: Timestamp,
    /// The store would have denied it then, as far as this server could know.
    was_denied: bool,
    sent: BTreeMap<RequestId, Sent>,
    is_done: bool,
    /// The partitions whose count gave no reply.
    silent: BTreeSet<usize>,
    /// When a call of it got no reply, or its client left: its charge is still expected then.
    unsure_at: Option<Timestamp>,
}

enum Message {
    Arrival(usize, DescribedRequest),
    ToStore(usize, RequestId),
    Reply(usize, RequestId, Result<Vec<u8>, MissingReply>),
    Leaves(usize),
    /// Units come back: of one key, of all, or by the store's clock.
    Reset,
    Loss,
    Step,
    /// A server gets the policy of this version.
    Policy(usize, u64),
}

struct Server {
    denials: Denials,
    /// Its clock is this much ahead.
    ahead: Span,
    policy: Policy,
}

#[derive(Default, Debug)]
struct Seen {
    refused: u32,
    strict: u32,
    late: u32,
    overruled: u32,
    returns: u32,
    allowed: u32,
}

struct World {
    number: u64,
    random: Random,
    now: Timestamp,
    store_ahead: Span,
    counts: All,
    /// When units came back.
    returns: Vec<Timestamp>,
    servers: Vec<Server>,
    requests: Vec<Request>,
    /// By time, and then by number.
    messages: BTreeMap<(Timestamp, u64), Message>,
    last: u64,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> Self {
        let (mut random, number) = (Random::new(seed), seed % POLICIES);
        let server = |i: u64| {
            let ahead = Span::from_millis(random.below(5) * 100_000 * i);
            let denials = Denials::new([7; 16]).patient(TIMEOUT).refunded();
            let mut policy = policy(number, 2);
            policy.set_version(1);
            Server { denials, ahead, policy }
        };
        let servers = (0..2).map(server).collect();
        let mut world = Self {
            number,
            random,
            now: Timestamp::from_millis(START_MS),
            store_ahead: Span::from_secs(50_000),
            counts: All::new(),
            returns: Vec::new(),
            servers,
            requests: Vec::new(),
            messages: BTreeMap::new(),
            last: 0,
            seen: Seen::default(),
        };
        for _ in 0..120 {
            let (ip, method) = (world.random.below(2), world.random.below(2));
            let server = world.random.index(2);
            let message = match world.random.below(40) {
                0 => Message::Reset,
                1 => Message::Loss,
                2 => Message::Step,
                3 => Message::Policy(server, 2 + world.random.below(3)),
                _ => Message::Arrival(server, facts(ip, method)),
            };
            let at = Span::from_millis(world.random.below(15_000));
            world.post(at, message);
        }
        world
    }

    fn post(&mut self, after: Span, message: Message) {
        self.last += 1;
        self.messages.insert((self.now.saturating_add(after), self.last), message);
    }

    fn clock(&self, server: usize) -> Timestamp {
        self.now.saturating_add(self.servers[server].ahead)
    }

    fn store_clock(&self) -> Timestamp {
        self.now.saturating_add(self.store_ahead)
    }

    fn returns(&mut self) {
        self.returns.push(self.now);
        self.seen.returns += 1;
    }

    /// Whether the store would deny it now, and whether units came back since `since`.
    fn is_denied(&self, policy: &Policy, facts: &DescribedRequest, since: Timestamp) -> [bool; 2] {
        let is_late = self.returns.last().is_some_and(|at| *at >= since);
        [would_deny(policy, facts, &self.counts, self.store_clock()), is_late]
    }

    /// True when another request of this server is under way, whose charge is expected, or got no
    /// reply of late.
    fn is_charge_expected(&self, server: usize) -> bool {
        let since = self.now.saturating_sub(STALE);
        let is_expected = |it: &Request| !it.is_done || it.unsure_at.is_some_and(|at| at >= since);
        self.requests.iter().any(|it| it.server == server && is_expected(it))
    }

    fn arrive(&mut self, server: usize, facts: DescribedRequest) {
        let here = self.clock(server);
        let policy = self.servers[server].policy.clone();
        let mut plan = Plan::new();
        policy.plan(&facts, &mut plan);
        let since = self.now.saturating_sub(STALE);
        let [is_denied, is_late] = self.is_denied(&policy, &facts, since);
        if self.servers[server].denials.refuses(&policy, &mut plan, here) {
            self.seen.refused += 1;
            let is_expected = self.is_charge_expected(server);
            assert!(is_denied || is_late || is_expected, "an allowed request is denied");
            self.seen.strict += u32::from(!is_late && !is_expected);
            self.seen.late += u32::from(!is_denied && !is_expected);
            return;
        }
        let drive = Drive::decide(&policy, &mut plan, Order::ChargeFirst, WaitBudget::default());
        let (drive, came_at, sent, is_done) = (Some(drive), self.now, BTreeMap::new(), false);
        let was_denied = is_denied || is_late || self.is_charge_expected(server);
        self.requests.push(Request {
            server,
            facts,
            policy,
            plan,
            drive,
            came_at,
            was_denied,
            sent,
            is_done,
            silent: BTreeSet::new(),
            unsure_at: None,
        });
        let i = self.requests.len() - 1;
        if self.random.one_in(8) {
            let after = Span::from_millis(self.random.below(700));
            self.post(after, Message::Leaves(i));
        }
        self.pump(i);
    }

    fn pump(&mut self, i: usize) {
        let here = self.clock(self.requests[i].server);
        let mut out = Vec::new();
        let request = &mut self.requests[i];
        let Server { denials, ahead, .. } = &mut self.servers[request.server];
        let times = (request.came_at.saturating_add(*ahead), here);
        let drive = request.drive.as_mut().unwrap();
        if let Some(suspect) = drive.suspect() {
            let plan = &request.plan;
            drive.trust_denial(denials.would_stand_in_for(&request.policy, plan, suspect, times));
        }
        let is_decided = loop {
            match drive.next(&request.policy, &mut request.plan) {
                Next::Done => break true,
                Next::Wait => break false,
                Next::Send(id) => {
                    let sent = drive.request(id).unwrap();
                    let (bytes, charged) = match sent.ask {
                        CountRequest::Peek(bytes) | CountRequest::Charge(bytes) => (bytes, None),
                        CountRequest::Refund(bytes, reply) => (bytes, Some(reply.to_vec())),
                    };
                    let is_again = charged.is_none() && request.silent.contains(&sent.partition);
                    assert!(!is_again, "a silent count is asked again");
                    let row = (sent.partition, sent.event, bytes.to_vec(), charged, here);
                    request.sent.insert(id, row);
                    out.push(id);
                }
            }
        };
        for id in out {
            let after = Span::from_millis(self.random.below(300));
            if self.random.one_in(20) {
                let lost = Err(MissingReply::Failed(Failure::Unreachable));
                self.post(TIMEOUT, Message::Reply(i, id, lost));
                if self.random.one_in(2) {
                    continue;
                }
            }
            self.post(after, Message::ToStore(i, id));
        }
        if is_decided && !std::mem::replace(&mut self.requests[i].is_done, true) {
            self.end(i, times);
        }
    }

    fn end(&mut self, i: usize, times: (Timestamp, Timestamp)) {
        let since = self.requests[i].came_at.saturating_sub(STALE);
        let (policy, facts) = (self.requests[i].policy.clone(), self.requests[i].facts.clone());
        let may_deny = self.requests[i].was_denied
            || self.is_denied(&policy, &facts, since).contains(&true)
            || self.is_charge_expected(self.requests[i].server);
        let request = &mut self.requests[i];
        let denials = &mut self.servers[request.server].denials;
        denials.close(&policy, &request.plan);
        if denials.overrules_failure(&policy, &mut request.plan, times) {
            assert!(may_deny, "an allowed request is denied while the store is silent");
            self.seen.overruled += 1;
            request.drive.as_mut().unwrap().withdraw();
            return self.pump(i);
        }
        let is_allowed =
            matches!(request.plan.outcome(&policy).final_disposition(), Disposition::Allow);
        self.seen.allowed += u32::from(is_allowed);
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), message)) = self.messages.pop_first() else { return false };
        self.now = at;
        match message {
            Message::Arrival(server, facts) => self.arrive(server, facts),
            Message::ToStore(i, id) => {
                let (partition, event, bytes, charged, _) = self.requests[i].sent[&id].clone();
                let key = self.requests[i].plan.partition(partition).unwrap().key().to_vec();
                let clock = self.store_clock();
                let answered = if let Some(reply) = &charged {
                    self.returns();
                    self.counts.entry(key).or_default().refund(&bytes, reply, clock)
                } else {
                    self.counts.entry(key).or_default().answer(&bytes, clock)
                };
                assert!(event != Event::Refund || charged.is_some());
                let after = Span::from_millis(self.random.below(300));
                self.post(after, Message::Reply(i, id, Ok(answered.unwrap().reply)));
            }
            Message::Reply(i, id, reply) => {
                let request = &mut self.requests[i];
                let (partition, event, .., asked_at) = request.sent[&id];
                let is_reply = reply.is_ok();
                let drive = request.drive.as_mut().unwrap();
                let is_awaited = drive.awaits(id);
                if !is_reply {
                    request.unsure_at = Some(self.now);
                    if is_awaited && event != Event::Refund {
                        request.silent.insert(partition);
                    }
                }
                let outcome = drive.receive(&request.policy, &mut request.plan, id, reply);
                let denials = &mut self.servers[request.server].denials;
                if is_reply && is_awaited && request.plan.partition(partition).unwrap().has_states()
                {
                    denials.record_reply(&request.policy, &request.plan, partition, asked_at);
                }
                if outcome == ReplyOutcome::LostRefund {
                    denials.forget_partition(&request.policy, &request.plan, partition);
                }
                self.pump(i);
            }
            Message::Leaves(i) => {
                self.requests[i].unsure_at = Some(self.now);
                self.requests[i].drive.as_mut().unwrap().withdraw();
                self.pump(i);
            }
            Message::Reset => {
                self.returns();
                self.counts.pop_first();
            }
            Message::Loss => {
                self.returns();
                self.counts.clear();
            }
            Message::Step => {
                self.returns();
                self.store_ahead = self.store_ahead.saturating_add(Span::from_secs(3));
            }
            Message::Policy(server, version) => {
                // The quotas change, and with them what is used.
                self.returns();
                let mut policy = policy(self.number, version);
                policy.set_version(version);
                if version > self.servers[server].policy.version() {
                    self.servers[server].policy = policy;
                }
            }
        }
        true
    }
}

// Guards: a client that is denied by what a server remembers although the store would allow it:
// after a reset by another server, a loss of the store's data, a step of its clock, a refund of a
// client that left, and under another policy; and a store that is silent.
#[test]
fn an_allowed_request_is_denied_for_a_second_after_units_came_back_and_never_else() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.seen = seen;
        let mut steps = 0;
        while world.step() {
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: it never ends");
        }
        seen = world.seen;
    }
    let Seen { refused, strict, late, overruled, returns, allowed } = seen;
    let least = [refused, strict, late, overruled, returns, allowed].into_iter().min();
    assert!(least >= Some(20), "{seen:?}");
}

/// One server, whose store responds at once.
fn decide(
    policy: &Policy,
    counts: &mut All,
    denials: Option<&mut Denials>,
    facts: &DescribedRequest,
    now: Timestamp,
) -> (Disposition, Option<Span>, bool) {
    let mut plan = Plan::new();
    policy.plan(facts, &mut plan);
    let mut denials = denials;
    let is_remembered = denials.as_mut().is_some_and(|it| it.refuses(policy, &mut plan, now));
    if !is_remembered {
        let mut drive = Drive::decide(policy, &mut plan, Order::ChargeFirst, WaitBudget::default());
        loop {
            let id = match drive.next(policy, &mut plan) {
                Next::Done => break,
                Next::Wait => panic!("every call has its reply"),
                Next::Send(id) => id,
            };
            let sent = drive.request(id).unwrap();
            let i = sent.partition;
            let of_key = counts.entry(plan.partition(i).unwrap().key().to_vec()).or_default();
            let answered = match sent.ask {
                CountRequest::Peek(bytes) | CountRequest::Charge(bytes) => {
                    of_key.answer(bytes, now)
                }
                CountRequest::Refund(bytes, reply) => of_key.refund(bytes, reply, now),
            };
            let _ = drive.receive(policy, &mut plan, id, Ok(answered.unwrap().reply));
            if let Some(denials) =
                denials.as_mut().filter(|_| plan.partition(i).unwrap().has_states())
            {
                denials.record_reply(policy, &plan, i, now);
            }
        }
        if let Some(denials) = denials {
            denials.close(policy, &plan);
        }
    }
    let outcome = plan.outcome(policy);
    (outcome.disposition(), outcome.retry_after(), is_remembered)
}

// Guards: a client that is denied by a charge that the store has refunded, because the reply to the
// refund was lost.
#[test]
fn a_refund_without_a_reply_forgets_the_cached_denials_of_its_count() {
    let quotas = r#""quotas": [{"limit": 1, "window": "1h"}]"#;
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "client", "key": ["client_ip"], {quotas}}},
            {{"name": "reads", "when": {{"methods": ["GET"]}}, "key": [], {quotas}}}]}}"#
    );
    let policy = tollgate_language::compile(&document, Surface::Server).unwrap();
    let (mut counts, now) = (All::new(), Timestamp::from_millis(START_MS));
    // One client takes the unit of all reads, so the next one is charged and refunded.
    let _ = decide(&policy, &mut counts, None, &facts(1, 0), now);
    let mut denials = Denials::new([7; 16]).patient(TIMEOUT).refunded();
    let mut plan = Plan::new();
    policy.plan(&facts(2, 0), &mut plan);
    let mut drive = Drive::decide(&policy, &mut plan, Order::ChargeFirst, WaitBudget::default());
    let mut refunded = Vec::new();
    while let Next::Send(id) = drive.next(&policy, &mut plan) {
        let sent = drive.request(id).unwrap();
        let i = sent.partition;
        let of_key = counts.entry(plan.partition(i).unwrap().key().to_vec()).or_default();
        if let CountRequest::Refund(bytes, reply) = sent.ask {
            assert!(of_key.refund(bytes, reply, now).unwrap().is_changed);
            let lost = Err(MissingReply::Failed(Failure::Unreachable));
            refunded.push((i, drive.receive(&policy, &mut plan, id, lost)));
        } else if let CountRequest::Peek(bytes) | CountRequest::Charge(bytes) = sent.ask {
            let reply = of_key.answer(bytes, now).unwrap().reply;
            assert_eq!(drive.receive(&policy, &mut plan, id, Ok(reply)), ReplyOutcome::Used);
            denials.record_reply(&policy, &plan, i, now);
        }
    }
    denials.close(&policy, &plan);
    assert_eq!(refunded, [(0, ReplyOutcome::LostRefund)]);
    let is_denied_here = |denials: &mut Denials| {
        let mut write = Plan::new();
        policy.plan(&facts(2, 1), &mut write);
        denials.refuses(&policy, &mut write, now)
    };
    assert!(is_denied_here(&mut denials), "the charge is cached");
    denials.forget_partition(&policy, &plan, 0);
    assert!(!is_denied_here(&mut denials), "the store allows it");
}

// Guards: a server that decides otherwise because it remembers. The same requests with and without
// the memory get the same decisions, and leave the same counts; where all rules count by one key,
// the same `retry-after`, too.
#[test]
fn where_nothing_comes_back_remembering_changes_no_decision() {
    let (mut remembered, mut denied) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let policy = policy(seed % POLICIES, 1 + random.below(4));
        let (mut with, mut without) = (All::new(), All::new());
        let mut denials = Denials::new([7; 16]).patient(TIMEOUT).refunded();
        let mut now = Timestamp::from_millis(START_MS);
        for n in 0..200 {
            now = now.saturating_add(Span::from_millis(random.below(400)));
            let facts = facts(random.below(3), random.below(2));
            let (answer, wait, is_remembered) =
                decide(&policy, &mut with, Some(&mut denials), &facts, now);
            let (expected, expected_wait, _) = decide(&policy, &mut without, None, &facts, now);
            assert_eq!(answer, expected, "seed {seed}, request {n}");
            if policy.groups().len() == 1 {
                assert_eq!(wait, expected_wait, "seed {seed}, request {n}");
            }
            remembered += u32::from(is_remembered);
            denied += u32::from(matches!(expected, Disposition::Deny { .. }));
        }
        // Of several keys a charge that was refunded may leave other bytes of the same meaning.
        if policy.groups().len() > 1 {
            continue;
        }
        let rows = |counts: &All| -> Vec<_> {
            counts.iter().map(|(key, counts)| (key.clone(), format!("{counts:?}"))).collect()
        };
        assert_eq!(rows(&with), rows(&without), "seed {seed}");
    }
    assert!(remembered * 2 > denied, "{remembered} of {denied}");
}
