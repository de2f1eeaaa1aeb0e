//! The drive of requests over counts whose replies are reordered, repeated, lost and late, for
//! clients that may leave.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Answer, Failure, Plan, Policy, Surface};
use tollgate_service::Ask;
use tollgate_service::drive::{AskId, Drive, Heard, Lost, Next, Order, Spent};
use tollgate_service::metrics::Event;
use tollgate_storage::Counts;

use crate::random::Random;

const AT: Timestamp = Timestamp::from_millis(1_000);
const SPENT: Spent = Spent { waited: Span::ZERO, left: Span::MAX };
/// The limits of a client, a method and a host.
const LIMITS: [u64; 3] = [3, 6, 9];
const SEEDS: u64 = 2_000;

fn policy() -> Policy {
    let rule = |(key, limit): (&str, u64)| {
        format!(
            r#"{{"name": "{key}", "key": ["{key}"], "on_failure": "deny", "quotas": [{{"limit": {limit}, "window": "1h"}}]}}"#
        )
    };
    let rules = ["client_ip", "method", "host"].into_iter().zip(LIMITS).map(rule);
    let rules = rules.collect::<Vec<_>>().join(",");
    let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    tollgate_language::compile(&document, Surface::Server).unwrap()
}

/// A message that is under way.
#[derive(Clone)]
enum Message {
    ToCount(usize, AskId),
    /// The reply, and whether it belongs to a charge that the count carried out.
    Reply(usize, AskId, Result<Vec<u8>, Lost>, bool),
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
    drive: Drive,
    sent: BTreeMap<AskId, Sent>,
    used: Vec<AskId>,
    has_left: bool,
    /// For each partition: charges that the drive knows of, and refunds that it sent.
    charged: [u32; 3],
    refunds: [u32; 3],
}

impl Client {
    fn new(policy: &Policy, order: Order, facts: [u64; 3]) -> Self {
        let [ip, method, host] = facts;
        let method = ["GET", "PUT"][usize::try_from(method).unwrap()];
        let facts = format!(
            r#"{{"method": "{method}", "path": "/", "client_ip": "192.0.2.{ip}", "headers": {{"host": "h{host}"}}}}"#
        );
        let mut plan = Plan::new();
        policy.plan(&DescribedRequest::parse(facts.as_bytes()).unwrap(), &mut plan);
        assert_eq!(plan.len(), 3);
        let drive = Drive::decide(policy, &mut plan, order, SPENT);
        let (sent, used) = (BTreeMap::new(), Vec::new());
        Self { plan, drive, sent, used, has_left: false, charged: [0; 3], refunds: [0; 3] }
    }

    fn is_allowed(&self, policy: &Policy) -> bool {
        !self.has_left && matches!(self.plan.outcome(policy).final_answer(), Answer::Pass)
    }
}

struct World {
    policy: Policy,
    random: Random,
    counts: BTreeMap<Vec<u8>, Counts>,
    /// For each key: charges less refunds that its count carried out.
    held: BTreeMap<Vec<u8>, i64>,
    clients: Vec<Client>,
    messages: Vec<Message>,
}

impl World {
    fn new(seed: u64, order: Order) -> Self {
        let (policy, mut random) = (policy(), Random(seed));
        let clients = (0..12).map(|_| {
            let facts = [random.below(3), random.below(2), random.below(2)];
            Client::new(&policy, order, facts)
        });
        let clients = clients.collect();
        let (counts, held, messages) = Default::default();
        Self { policy, random, counts, held, clients, messages }
    }

    /// Sends what the drive of client `i` has to send; true when it is done.
    fn pump(&mut self, i: usize) -> bool {
        let client = &mut self.clients[i];
        loop {
            match client.drive.next(&self.policy, &mut client.plan) {
                Next::Done => return true,
                Next::Wait => return false,
                Next::Send(id) => {
                    let request = client.drive.request(id).unwrap();
                    let (bytes, charged) = match request.ask {
                        Ask::Look(bytes) | Ask::Charge(bytes) => (bytes, None),
                        Ask::Refund(bytes, reply) => (bytes, Some(reply.to_vec())),
                    };
                    let (partition, event) = (request.partition, request.event);
                    let request = bytes.to_vec();
                    client.refunds[partition] += u32::from(event == Event::Refund);
                    let known = client.sent.insert(id, Sent { partition, event, request, charged });
                    assert!(known.is_none(), "sent twice: {id:?}");
                    assert!(client.sent.len() <= 3 * 3, "more calls than look, charge and refund");
                    self.messages.push(Message::ToCount(i, id));
                }
            }
        }
    }

    /// The count carries out a request; its reply.
    fn carry_out(&mut self, i: usize, id: AskId) -> Message {
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

    fn hear(&mut self, i: usize, id: AskId, reply: Result<Vec<u8>, Lost>, is_charge: bool) {
        let client = &mut self.clients[i];
        let is_first = !client.used.contains(&id);
        let is_known = reply.is_ok();
        let heard = client.drive.hear(&self.policy, &mut client.plan, id, reply);
        assert_eq!(heard, if is_first { Heard::Used } else { Heard::Unasked }, "{id:?}");
        if is_first {
            client.used.push(id);
            client.charged[client.sent[&id].partition] += u32::from(is_known && is_charge);
        }
    }

    /// One random event; `has_faults` allows losses, repetitions, delays, and clients that leave.
    fn step(&mut self, has_faults: bool) {
        let at = self.random.place(self.messages.len());
        let message = self.messages.swap_remove(at);
        let fault = if has_faults { self.random.below(20) } else { 19 };
        let lost = Err(Lost::Failed(Failure::Unreachable));
        match (message, fault) {
            // Lost on its way.
            (Message::ToCount(i, id), 0) => self.hear(i, id, lost, false),
            // Too late: it is given up, and carried out later.
            (Message::ToCount(i, id), 1) => {
                if !self.clients[i].used.contains(&id) {
                    self.hear(i, id, lost, false);
                }
                self.messages.push(Message::ToCount(i, id));
            }
            (Message::ToCount(i, id), _) => {
                let reply = self.carry_out(i, id);
                self.messages.push(reply);
            }
            (Message::Reply(i, id, ..), 2) => {
                if !self.clients[i].used.contains(&id) {
                    self.hear(i, id, lost, false);
                }
            }
            (Message::Reply(i, id, reply, is_charge), 3 | 4) => {
                self.hear(i, id, reply.clone(), is_charge);
                self.messages.push(Message::Reply(i, id, reply, is_charge));
            }
            (Message::Reply(i, id, reply, is_charge), 5) => {
                self.hear(i, id, reply, is_charge);
                self.clients[i].has_left = true;
                self.clients[i].drive.leave();
                self.pump(i);
            }
            (Message::Reply(i, id, reply, is_charge), _) => self.hear(i, id, reply, is_charge),
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
            assert_eq!(client.charged, [1; 3], "seed {seed}: allowed and charged everywhere");
            assert_eq!(client.refunds, [0; 3], "seed {seed}: refunded although it was allowed");
            for partition in client.plan.partitions() {
                *allowed.entry(partition.key().to_vec()).or_default() += 1;
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
    for (order, seed) in [Order::AskAll, Order::ChargeFirst]
        .into_iter()
        .flat_map(|order| (0..SEEDS).map(move |seed| (order, seed)))
    {
        let mut world = World::new(seed, order);
        (0..world.clients.len()).for_each(|i| assert!(!world.pump(i)));
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
    }
}

// One request at a time, without faults, gets the decision of plain counters, and leaves no charge
// of a denied request.
#[test]
fn one_after_the_other_is_decided_as_plain_counters_would() {
    for (order, seed) in [Order::AskAll, Order::ChargeFirst]
        .into_iter()
        .flat_map(|order| (0..200).map(move |seed| (order, seed)))
    {
        let mut world = World::new(seed, order);
        let mut used: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for i in 0..world.clients.len() {
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

/// The calls to fresh counts, in rounds.
fn rounds(world: &mut World, i: usize) -> Vec<Vec<(usize, Event)>> {
    let mut rounds = Vec::new();
    while !world.pump(i) {
        let client = &world.clients[i];
        let mut round = Vec::new();
        for message in &world.messages {
            if let Message::ToCount(_, id) = message {
                round.push((client.sent[id].partition, client.sent[id].event));
            }
        }
        round.sort_by_key(|(partition, _)| *partition);
        rounds.push(round);
        let asked: Vec<_> = world.messages.drain(..).collect();
        for message in asked {
            let Message::ToCount(i, id) = message else { continue };
            let Message::Reply(i, id, reply, is_charge) = world.carry_out(i, id) else { continue };
            world.hear(i, id, reply, is_charge);
        }
    }
    rounds
}

#[test]
fn three_keys_take_four_calls_in_two_rounds() {
    let mut world = World::new(0, Order::ChargeFirst);
    let (look, charge) = (Event::Look, Event::Check);
    let order = world.clients[0].plan.charging_order(&world.policy).unwrap();
    let between = 3 - order.first - order.last;
    let mut first = vec![(order.first, charge), (between, look)];
    let mut then = vec![(between, charge), (order.last, charge)];
    first.sort_by_key(|(partition, _)| *partition);
    then.sort_by_key(|(partition, _)| *partition);
    assert_eq!(rounds(&mut world, 0), [first, then]);
    let mut world = World::new(0, Order::AskAll);
    let all = |event| (0..3).map(|i| (i, event)).collect::<Vec<_>>();
    assert_eq!(rounds(&mut world, 0), [all(look), all(charge)]);
}
