//! The drive of requests over counts whose replies are reordered, repeated, lost and late, also
//! later than half of the time, for clients that may leave, and with cached denials.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::{ChargingOrder, Denials, Disposition, Failure, Plan, Policy, Surface};
use tollgate_service::CountRequest;
use tollgate_service::drive::{
    DenialCache, Drive, MissingReply, Next, Order, ReplyOutcome, RequestId, WaitBudget,
};
use tollgate_service::metrics::Event;
use tollgate_storage::Counts;
use tollgate_test_support::Random;

const AT: Timestamp = Timestamp::from_millis(1_000);
/// How long the store may take to respond.
const PATIENCE: Span = Span::from_secs(3);
/// The limits of a client, a method and a host.
const LIMITS: [u64; 3] = [3, 6, 9];
const SEEDS: u64 = 2_000;

fn policy(on_failure: &str) -> Policy {
    let rule = |(key, limit): (&str, u64)| {
        format!(
            r#"{{"name": "{key}", "key": ["{key}"], "on_failure": "{on_failure}", "quotas": [{{"limit": {limit}, "window": "1h"}}]}}"#
        )
    };
    let rules = ["client_ip", "method", "host"].into_iter().zip(LIMITS).map(rule);
    let rules = rules.collect::<Vec<_>>().join(",");
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    tollgate_language::compile(&document, Surface::Server).unwrap()
}

/// The denials of a surface.
struct Remembered(RefCell<Denials>);

impl DenialCache for Remembered {
    fn with<T>(&self, step: impl FnOnce(&mut Denials) -> T) -> Option<T> {
        Some(step(&mut self.0.borrow_mut()))
    }
}

/// A message that is under way.
#[derive(Clone)]
enum Message {
    Arrival(usize),
    ToCount(usize, RequestId),
    /// The reply, and whether it belongs to a charge that the count carried out.
    Reply(usize, RequestId, Result<Vec<u8>, MissingReply>, bool),
}

/// The bytes of a request that was sent.
struct Sent {
    partition: usize,
    event: Event,
    request: Vec<u8>,
    charged: Option<Vec<u8>>,
}

struct Client {
    plan: Plan,
    /// `None` before it comes, and where it is denied by a cached denial alone.
    drive: Option<Drive>,
    came_at: Timestamp,
    sent: BTreeMap<RequestId, Sent>,
    used: Vec<RequestId>,
    is_done: bool,
    has_left: bool,
    /// For each partition: requests that it sent, charges that the drive knows of, and refunds that
    /// it sent.
    checks: [u32; 3],
    charged: [u32; 3],
    refunds: [u32; 3],
}

impl Client {
    fn new(policy: &Policy, facts: [u64; 3]) -> Self {
        let [ip, method, host] = facts;
        let method = ["GET", "PUT"][usize::try_from(method).unwrap()];
        let facts = format!(
            r#"{{"method": "{method}", "path": "/", "client_ip": "192.0.2.{ip}", "headers": {{"host": "h{host}"}}}}"#
        );
        let mut plan = Plan::new();
        policy.plan(&DescribedRequest::parse(facts.as_bytes()).unwrap(), &mut plan);
        assert_eq!(plan.len(), 3);
        let (sent, used) = (BTreeMap::new(), Vec::new());
        let (drive, is_done, has_left) = (None, false, false);
        let [checks, charged, refunds] = [[0; 3]; 3];
        let came_at = AT;
        Self { plan, drive, came_at, sent, used, is_done, has_left, checks, charged, refunds }
    }

    fn is_allowed(&self, policy: &Policy) -> bool {
        !self.has_left
            && matches!(self.plan.outcome(policy).final_disposition(), Disposition::Allow)
    }
}

struct World {
    policy: Policy,
    order: Order,
    random: Random,
    denials: Remembered,
    now: Timestamp,
    counts: BTreeMap<Vec<u8>, Counts>,
    /// For each key: charges less refunds that its count carried out.
    held: BTreeMap<Vec<u8>, i64>,
    clients: Vec<Client>,
    messages: Vec<Message>,
    seen: Seen,
}

/// How often the special cases occurred.
#[derive(Default, Debug)]
struct Seen {
    denied_from_memory: u32,
    suspects: u32,
    given_up: u32,
    went_on: u32,
    waited_in: u32,
}

impl World {
    fn new(seed: u64, order: Order, on_failure: &str) -> Self {
        let (policy, mut random) = (policy(on_failure), Random::new(seed));
        let clients = (0..12).map(|_| {
            let facts = [random.below(3), random.below(2), random.below(2)];
            Client::new(&policy, facts)
        });
        let clients = clients.collect();
        let denials = Remembered(RefCell::new(Denials::new([0; 16]).patient(PATIENCE)));
        let (counts, held, messages, seen) = Default::default();
        Self { policy, order, random, denials, now: AT, counts, held, clients, messages, seen }
    }

    /// The request of client `i` comes.
    fn arrive(&mut self, i: usize) {
        let (policy, client) = (&self.policy, &mut self.clients[i]);
        client.came_at = self.now;
        let refuses = |denials: &mut Denials| denials.refuses(policy, &mut client.plan, self.now);
        if self.order == Order::ChargeFirst && self.denials.with(refuses) == Some(true) {
            self.seen.denied_from_memory += 1;
            return;
        }
        let drive = Drive::decide(policy, &mut client.plan, self.order, WaitBudget::default());
        self.seen.suspects += u32::from(drive.suspect().is_some());
        client.drive = Some(drive);
    }

    /// Whether a cached denial decides without a reply, for the drive of client `i`.
    fn recall(&mut self, i: usize) {
        let client = &mut self.clients[i];
        let Some(drive) = &mut client.drive else { return };
        let times = || (client.came_at, self.now);
        drive.recall_denial((&self.policy, &client.plan), &self.denials, times);
    }

    /// Sends what the drive of client `i` has to send; true when it is done.
    fn pump(&mut self, i: usize) -> bool {
        self.recall(i);
        let client = &mut self.clients[i];
        let Some(drive) = &mut client.drive else { return true };
        loop {
            match drive.next(&self.policy, &mut client.plan) {
                Next::Done => return self.end(i),
                Next::Wait => return false,
                Next::Send(id) => {
                    let request = drive.request(id).unwrap();
                    let (bytes, charged) = match request.ask {
                        CountRequest::Peek(bytes) | CountRequest::Charge(bytes) => (bytes, None),
                        CountRequest::Refund(bytes, reply) => (bytes, Some(reply.to_vec())),
                    };
                    let (partition, event) = (request.partition, request.event);
                    let request = bytes.to_vec();
                    let is_refund = event == Event::Refund;
                    client.refunds[partition] += u32::from(is_refund);
                    client.checks[partition] += u32::from(!is_refund);
                    let order = ChargingOrder::of(&self.policy, &client.plan);
                    let is_suspect = order.and_then(|it| it.suspect) == Some(partition);
                    assert!(client.checks[partition] <= 2 + u32::from(is_suspect), "more calls");
                    let known = client.sent.insert(id, Sent { partition, event, request, charged });
                    assert!(known.is_none(), "sent twice: {id:?}");
                    self.messages.push(Message::ToCount(i, id));
                }
            }
        }
    }

    /// The drive is done: a cached denial may decide, as in the Worker. True when nothing is left
    /// to be sent.
    fn end(&mut self, i: usize) -> bool {
        let (policy, client) = (&self.policy, &mut self.clients[i]);
        if std::mem::replace(&mut client.is_done, true) || self.order == Order::PeekAll {
            return true;
        }
        let times = || (client.came_at, self.now);
        let drive = client.drive.as_mut().unwrap();
        if drive.conclude((policy, &mut client.plan), &self.denials, times) {
            self.seen.waited_in += 1;
            assert!(!client.is_allowed(policy), "a denial decides");
            return self.pump(i);
        }
        true
    }

    /// Half of the time of client `i` has passed.
    fn skip_late(&mut self, i: usize) {
        self.recall(i);
        let (policy, client) = (&self.policy, &mut self.clients[i]);
        let drive = client.drive.as_mut().unwrap();
        let open: Vec<RequestId> =
            client.sent.keys().copied().filter(|id| drive.awaits(*id)).collect();
        let may_skip_late = drive.may_skip_late();
        drive.skip_late(policy, &mut client.plan);
        for id in open.iter().filter(|id| !drive.awaits(**id)) {
            assert!(may_skip_late && client.sent[id].event == Event::Look, "a charge is given up");
            self.seen.given_up += 1;
            client.used.push(*id);
        }
        let before = client.checks;
        self.pump(i);
        let client = &self.clients[i];
        let drive = client.drive.as_ref().unwrap();
        let is_awaited = open.iter().any(|id| drive.awaits(*id));
        if client.checks != before {
            assert!(may_skip_late);
            self.seen.went_on += u32::from(is_awaited);
        }
    }

    /// The count carries out a request; its reply.
    fn carry_out(&mut self, i: usize, id: RequestId) -> Message {
        let client = &self.clients[i];
        let sent = &client.sent[&id];
        let key = client.plan.partition(sent.partition).unwrap().key().to_vec();
        let counts = self.counts.entry(key.clone()).or_default();
        let answered = match &sent.charged {
            Some(reply) => counts.refund(&sent.request, reply, AT),
            None => counts.answer(&sent.request, AT),
        };
        let answered = answered.unwrap();
        let charge = match sent.event {
            Event::Refund => -1,
            _ => 1,
        };
        if sent.event == Event::Refund {
            assert!(answered.is_changed, "a refund of nothing");
        }
        if answered.is_changed {
            *self.held.entry(key).or_default() += charge;
        }
        let is_charge = sent.event == Event::Check && answered.is_changed;
        Message::Reply(i, id, Ok(answered.reply), is_charge)
    }

    fn receive(
        &mut self,
        i: usize,
        id: RequestId,
        reply: Result<Vec<u8>, MissingReply>,
        is_charge: bool,
    ) {
        let client = &mut self.clients[i];
        let is_first = !client.used.contains(&id);
        let is_known = reply.is_ok();
        let (policy, plan) = (&self.policy, &mut client.plan);
        let drive = client.drive.as_mut().unwrap();
        let Sent { partition, event, .. } = client.sent[&id];
        assert_eq!(drive.awaits(id), is_first, "{id:?}");
        if self.order == Order::ChargeFirst {
            let is_misread =
                drive.receive_and_remember((policy, plan), id, reply, &self.denials, || self.now);
            assert!(!is_misread, "every reply can be read");
        } else {
            let outcome = drive.receive(policy, plan, id, reply);
            let is_lost = event == Event::Refund && !is_known;
            let expected = if is_lost { ReplyOutcome::LostRefund } else { ReplyOutcome::Used };
            assert_eq!(outcome, if is_first { expected } else { ReplyOutcome::Unexpected });
        }
        if is_first {
            client.used.push(id);
            client.charged[partition] += u32::from(is_known && is_charge);
        }
    }

    /// One random event; `has_faults` allows losses, repetitions, delays, and clients that leave.
    fn step(&mut self, has_faults: bool) {
        let pause = Span::from_millis(self.random.below(600));
        self.now = self.now.saturating_add(pause);
        let at = self.random.index(self.messages.len());
        let message = self.messages.swap_remove(at);
        let fault = if has_faults { self.random.below(20) } else { 19 };
        let lost = Err(MissingReply::Failed(Failure::Unreachable));
        match (message, fault) {
            (Message::Arrival(i), _) => self.arrive(i),
            (message @ (Message::ToCount(i, _) | Message::Reply(i, ..)), 6..=9) => {
                self.messages.push(message);
                self.skip_late(i);
            }
            // MissingReply on its way.
            (Message::ToCount(i, id), 0) => self.receive(i, id, lost, false),
            // Too late: it is given up, and carried out later.
            (Message::ToCount(i, id), 1) => {
                if !self.clients[i].used.contains(&id) {
                    self.receive(i, id, lost, false);
                }
                self.messages.push(Message::ToCount(i, id));
            }
            (Message::ToCount(i, id), _) => {
                let reply = self.carry_out(i, id);
                self.messages.push(reply);
            }
            (Message::Reply(i, id, ..), 2) => {
                if !self.clients[i].used.contains(&id) {
                    self.receive(i, id, lost, false);
                }
            }
            (Message::Reply(i, id, reply, is_charge), 3 | 4) => {
                self.receive(i, id, reply.clone(), is_charge);
                self.messages.push(Message::Reply(i, id, reply, is_charge));
            }
            (Message::Reply(i, id, reply, is_charge), 5) => {
                self.receive(i, id, reply, is_charge);
                self.clients[i].has_left = true;
                self.clients[i].drive.as_mut().unwrap().withdraw();
                self.pump(i);
            }
            (Message::Reply(i, id, reply, is_charge), _) => self.receive(i, id, reply, is_charge),
        }
    }

    /// Checks the laws when nothing is under way any more; returns the number of allowed requests.
    fn judge(&mut self, seed: u64) -> usize {
        let mut allowed: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut number = 0;
        for client in &self.clients {
            if !client.is_allowed(&self.policy) {
                assert_eq!(client.charged, client.refunds, "seed {seed}: each charge is refunded");
                continue;
            }
            number += 1;
            assert_eq!(client.refunds, [0; 3], "seed {seed}: refunded although it was allowed");
            for (partition, charged) in client.plan.partitions().zip(client.charged) {
                let expected = u32::from(!partition.has_failed());
                assert_eq!(charged, expected, "seed {seed}: allowed and charged where it replied");
                *allowed.entry(partition.key().to_vec()).or_default() += u64::from(charged);
            }
        }
        for client in &self.clients {
            for (partition, limit) in client.plan.partitions().zip(LIMITS) {
                let key = partition.key();
                let (allowed, held) = (allowed.get(key), self.held.get(key));
                let (allowed, held) = (*allowed.unwrap_or(&0), *held.unwrap_or(&0));
                assert!(allowed <= limit, "seed {seed}: {allowed} of {limit}");
                assert!(i64::try_from(allowed).unwrap() <= held, "seed {seed}: refunded twice");
            }
        }
        number
    }
}

// Guards: a charge that is never refunded or refunded twice, a reply that is used twice, a request
// that is allowed without a charge, and a drive that never ends.
#[test]
fn every_schedule_keeps_the_laws() {
    let kinds =
        [Order::PeekAll, Order::ChargeFirst].map(|order| [(order, "deny"), (order, "allow")]);
    let mut seen = Seen::default();
    for ((order, on_failure), seed) in
        kinds.into_iter().flatten().flat_map(|kind| (0..SEEDS).map(move |seed| (kind, seed)))
    {
        let mut world = World::new(seed, order, on_failure);
        world.seen = seen;
        world.messages.extend((0..world.clients.len()).map(Message::Arrival));
        let mut steps = 0;
        while !world.messages.is_empty() {
            world.step(true);
            (0..world.clients.len()).for_each(|i| {
                world.pump(i);
            });
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: it never ends");
        }
        assert!((0..world.clients.len()).all(|i| world.pump(i)), "seed {seed}: undecided");
        world.judge(seed);
        seen = world.seen;
    }
    let Seen { denied_from_memory, suspects, given_up, went_on, waited_in } = seen;
    let least = [denied_from_memory, suspects, given_up, went_on, waited_in].into_iter().min();
    assert!(least > Some(100), "{seen:?}");
}

// One request at a time, without faults, gets the decision of plain counters, and leaves no charge
// of a denied request.
#[test]
fn one_after_the_other_is_decided_as_plain_counters_would() {
    for (order, seed) in [Order::PeekAll, Order::ChargeFirst]
        .into_iter()
        .flat_map(|order| (0..200).map(move |seed| (order, seed)))
    {
        let mut world = World::new(seed, order, "deny");
        let mut used: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for i in 0..world.clients.len() {
            world.arrive(i);
            while !world.pump(i) {
                world.step(false);
            }
            let client = &world.clients[i];
            let keys: Vec<_> = client.plan.partitions().map(|it| it.key().to_vec()).collect();
            let has_room = |(key, limit): (&Vec<u8>, u64)| {
                used.get(key).is_none_or(|used| *used < i64::try_from(limit).unwrap())
            };
            let expected = keys.iter().zip(LIMITS).all(has_room);
            assert_eq!(client.is_allowed(&world.policy), expected, "seed {seed}, request {i}");
            if expected {
                keys.into_iter().for_each(|key| *used.entry(key).or_default() += 1);
            }
            world.held.retain(|_, held| *held != 0);
            assert_eq!(world.held, used, "seed {seed}, request {i}");
        }
    }
}

/// The calls that are under way.
fn under_way(world: &World, i: usize) -> Vec<(usize, Event)> {
    let sent = |message: &Message| match message {
        Message::ToCount(of, id) if *of == i => Some(&world.clients[i].sent[id]),
        _ => None,
    };
    let sent = world.messages.iter().filter_map(sent);
    let mut round: Vec<_> = sent.map(|sent| (sent.partition, sent.event)).collect();
    round.sort_by_key(|(partition, _)| *partition);
    round
}

/// The calls to fresh counts, in rounds.
fn rounds(world: &mut World, i: usize) -> Vec<Vec<(usize, Event)>> {
    let mut rounds = Vec::new();
    world.arrive(i);
    while !world.pump(i) {
        rounds.push(under_way(world, i));
        let asked: Vec<_> = world.messages.drain(..).collect();
        for message in asked {
            let Message::ToCount(i, id) = message else { continue };
            let Message::Reply(i, id, reply, is_charge) = world.carry_out(i, id) else { continue };
            world.receive(i, id, reply, is_charge);
        }
    }
    rounds
}

#[test]
fn three_keys_take_four_calls_in_two_rounds() {
    let mut world = World::new(0, Order::ChargeFirst, "deny");
    let (look, charge) = (Event::Look, Event::Check);
    let order = ChargingOrder::of(&world.policy, &world.clients[0].plan).unwrap();
    let between = 3 - order.first - order.last;
    let mut first = vec![(order.first, charge), (between, look)];
    let mut then = vec![(between, charge), (order.last, charge)];
    first.sort_by_key(|(partition, _)| *partition);
    then.sort_by_key(|(partition, _)| *partition);
    assert_eq!(rounds(&mut world, 0), [first, then]);
    let mut world = World::new(0, Order::PeekAll, "deny");
    let all = |event| (0..3).map(|i| (i, event)).collect::<Vec<_>>();
    assert_eq!(rounds(&mut world, 0), [all(look), all(charge)]);
}

/// The reply to the call to `partition` arrives.
fn reply(world: &mut World, i: usize, partition: usize) {
    let is_it = |message: &Message| match message {
        Message::ToCount(of, id) => *of == i && world.clients[i].sent[id].partition == partition,
        _ => false,
    };
    let at = world.messages.iter().position(is_it).unwrap();
    let Message::ToCount(i, id) = world.messages.swap_remove(at) else { return };
    let Message::Reply(i, id, reply, is_charge) = world.carry_out(i, id) else { return };
    world.receive(i, id, reply, is_charge);
}

// Guards: a shared count that misses the requests of clients whose own counts are slow, and one
// that is charged for a request that may still be denied.
#[test]
fn after_half_of_the_time_the_others_are_charged_if_the_request_would_pass() {
    let (look, charge) = (Event::Look, Event::Check);
    for (on_failure, goes_on) in [("allow", true), ("deny", false)] {
        let mut world = World::new(0, Order::ChargeFirst, on_failure);
        let order = ChargingOrder::of(&world.policy, &world.clients[0].plan).unwrap();
        let (first, last) = (order.first, order.last);
        let between = 3 - first - last;
        world.arrive(0);
        assert!(!world.pump(0));
        world.skip_late(0);
        let mut expected = vec![(first, charge), (between, look)];
        expected.extend(goes_on.then_some((last, charge)));
        expected.sort_by_key(|(partition, _)| *partition);
        assert_eq!(under_way(&world, 0), expected, "{on_failure}");
        // Replies that are late are used, and the count that was only asked is charged then.
        [first, between].into_iter().for_each(|partition| reply(&mut world, 0, partition));
        if goes_on {
            assert!(!world.pump(0));
            assert_eq!(under_way(&world, 0), [(last, charge)]);
            reply(&mut world, 0, last);
        }
        assert!(!world.pump(0));
        let rest = if goes_on { vec![between] } else { vec![between, last] };
        rest.into_iter().for_each(|partition| reply(&mut world, 0, partition));
        assert!(world.pump(0) && world.clients[0].is_allowed(&world.policy));
        assert_eq!((world.clients[0].charged, world.clients[0].refunds), ([1; 3], [0; 3]));
    }
}
