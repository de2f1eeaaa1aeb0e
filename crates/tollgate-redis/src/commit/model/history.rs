//! The checker: compares the answers with those of one limiter of the core in the order of the
//! commits.

use std::collections::HashMap;

use tollgate_core::{Limiter, Timestamp};

use super::world::{Applied, World};
use crate::commit::call::CallId;
use crate::commit::committer::Trace;
use crate::commit::key::Answer;
use crate::commit::name::Name;
use crate::commit::request::{Failed, KeyRequest};

/// The sums of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) admitted: u64,
    pub(super) denied: u64,
    pub(super) given_back: u64,
    pub(super) failed: u64,
    pub(super) overloaded: u64,
    /// Acknowledged charges whose commit a failover lost.
    pub(super) lost: u64,
    /// Requests that were charged more than once.
    pub(super) charged_twice: u64,
    pub(super) unknown: u64,
    pub(super) found_done: u64,
    pub(super) mismatches: u64,
    pub(super) clocks_set: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.denied += other.denied;
        self.given_back += other.given_back;
        self.failed += other.failed;
        self.overloaded += other.overloaded;
        self.lost += other.lost;
        self.charged_twice += other.charged_twice;
        self.unknown += other.unknown;
        self.found_done += other.found_done;
        self.mismatches += other.mismatches;
        self.clocks_set += other.clocks_set;
    }
}

/// True when a reply to a check reports a charge.
pub(super) fn is_charged(reply: &[u8]) -> bool {
    reply.first() == Some(&0) && reply.get(9).is_some_and(|flags| flags & 1 != 0)
}

fn decided_at(reply: &[u8]) -> Timestamp {
    Timestamp::from_nanos(u64::from_le_bytes(reply[1..9].try_into().expect("8 bytes")))
}

type Sent = HashMap<(usize, CallId), (Timestamp, Vec<(u64, KeyRequest, Answer)>)>;

/// Checks all answers.
pub(super) fn check(world: &World) -> Sums {
    let mut sums = Sums::default();
    let mut sent: Sent = HashMap::new();
    for (i, server) in world.servers.iter().enumerate() {
        for trace in &server.committer.trace {
            if let Trace::Sent { id, now, decided } = trace {
                sent.insert((i, *id), (*now, decided.clone()));
            }
        }
        let tally = server.committer.tally();
        sums.unknown += tally.unknown;
        sums.found_done += tally.found_done;
        sums.mismatches += tally.mismatches;
        sums.clocks_set += tally.clocks_set;
    }
    let charges = replay(world, &sent);
    sums.charged_twice = charges.values().filter(|times| **times > 1).count() as u64;
    assert!(charges.values().all(|times| *times <= 2), "at most one more time");
    answers(world, &sent, &mut sums);
    sums
}

/// Replays the commits on one limiter of the core per key; returns how often each request was
/// charged or refunded.
fn replay(world: &World, sent: &Sent) -> HashMap<u64, u32> {
    let limiter = *world.policy.quota_sets()[0].quotas()[0].limiter();
    let mut states: HashMap<Name, Vec<u8>> = HashMap::new();
    let mut times: HashMap<u64, u32> = HashMap::new();
    for applied in world.applied() {
        let (now, decided) = &sent[&(applied.server, applied.call)];
        let skew = now.since(applied.at).max(applied.at.since(*now));
        assert!(skew.as_millis_ceil() <= 51, "decided at another time: {skew:?}");
        let state = states.entry(applied.name).or_insert_with(|| vec![0; limiter.state_len()]);
        if applied.was_absent {
            assert!(limiter.idle_at(state) <= *now, "forgotten before it was idle");
            state.fill(0);
        }
        for (ticket, ask, answer) in decided {
            let Ok(reply) = answer else { continue };
            let is_written = step(&limiter, state, *now, ask, reply);
            if is_written {
                *times.entry(*ticket).or_default() += 1;
            }
            let gives_back = matches!(ask, KeyRequest::Refund { .. });
            assert!(!gives_back || times.get(ticket).is_none_or(|n| *n <= 1), "given back twice");
        }
    }
    times
}

/// Applies to the state what the reply reports; true when it charged or refunded.
fn step(
    limiter: &Limiter,
    state: &mut [u8],
    now: Timestamp,
    ask: &KeyRequest,
    reply: &[u8],
) -> bool {
    match ask {
        KeyRequest::Check(_) => {
            let decision = limiter.check(state, now, 1);
            assert_eq!(decision.is_admitted(), is_charged(reply), "the core decides {decision:?}");
            decision.is_admitted()
        }
        KeyRequest::Refund { reply: charged, .. } => {
            let charge = tollgate_core::Charge {
                at: decided_at(charged),
                cost: 1,
                delay: tollgate_core::Span::ZERO,
            };
            limiter.refund(state, charge, now);
            true
        }
        KeyRequest::Operate(_) | KeyRequest::InFlight(_) => false,
    }
}

/// Every request has one answer; every answer depends on a call that the engine applied.
fn answers(world: &World, sent: &Sent, sums: &mut Sums) {
    let mut depends_on: HashMap<u64, Option<CallId>> = HashMap::new();
    for server in &world.servers {
        for trace in &server.committer.trace {
            if let Trace::Answered(ticket, call) = trace {
                depends_on.insert(*ticket, *call);
            }
        }
    }
    let key = |applied: &Applied| (applied.server, applied.call);
    let kept: HashMap<_, _> = world.applied().iter().map(|applied| (key(applied), ())).collect();
    let lost: HashMap<_, _> = world.lost.iter().map(|applied| (key(applied), ())).collect();
    for (number, ticket) in world.tickets.iter().enumerate() {
        assert_eq!(ticket.answers.len(), 1, "one answer each");
        let reply = match &ticket.answers[0] {
            Ok(reply) => reply,
            Err(Failed::Overloaded) => {
                sums.overloaded += 1;
                continue;
            }
            Err(_) => {
                sums.failed += 1;
                continue;
            }
        };
        let number = number as u64;
        let call = depends_on.get(&number).copied().flatten().expect("it depends on a call");
        let call = (ticket.server, call);
        let is_lost = lost.contains_key(&call);
        assert!(is_lost || kept.contains_key(&call), "acknowledged, and the engine knows nothing");
        let decided = sent[&call].1.iter().find(|(ticket, ..)| *ticket == number);
        assert_eq!(decided.and_then(|(.., answer)| answer.as_ref().ok()), Some(reply));
        match &ticket.ask {
            KeyRequest::Check(_) if is_charged(reply) => {
                sums.admitted += 1;
                sums.lost += u64::from(is_lost);
            }
            KeyRequest::Check(_) => sums.denied += 1,
            KeyRequest::Refund { .. } | KeyRequest::Operate(_) | KeyRequest::InFlight(_) => {
                sums.given_back += 1;
            }
        }
    }
}
