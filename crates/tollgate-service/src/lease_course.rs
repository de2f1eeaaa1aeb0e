//! The rounds in which the counts of a lease request are asked.
//!
//! Invariant: when one of several keys of a request is denied, the others stay uncharged: all are
//! peeked first, and charges from before another key was denied after all are refunded. A count
//! without a reply fails on its own: it neither loses nor repeats the effects of the others. A
//! count that did not reply to a peek is not asked again. Deliberately absent: how a count is
//! asked; all of a round at the same time.

use alloc::vec::Vec;

use tollgate_storage::read_leased;

use crate::lease::{Lease, refuses};
use crate::metrics::Event;

/// The request to one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round<'a> {
    /// The index of its key in [`Lease::keys`].
    pub key: usize,
    /// The request about it.
    pub ask: CountRequest<'a>,
}

/// The request about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountRequest<'a> {
    /// Peek; for [`Counts::answer`](tollgate_storage::Counts::answer).
    Peek(&'a [u8]),
    /// Decide; for the same.
    Charge(&'a [u8]),
    /// Refund the charge: the request and the reply, for
    /// [`Counts::refund`](tollgate_storage::Counts::refund). Tried once.
    Refund(&'a [u8], &'a [u8]),
}

impl CountRequest<'_> {
    /// The event that it is counted as.
    #[must_use]
    pub const fn event(self) -> Event {
        match self {
            Self::Peek(_) => Event::Look,
            Self::Charge(_) => Event::Check,
            Self::Refund(..) => Event::Refund,
        }
    }
}

/// The course of one lease request: send a [round](Self::round) and [receive](Self::receive) its
/// replies, until the round is empty.
#[derive(Debug)]
pub struct Course<'l, E> {
    lease: &'l Lease,
    stage: Stage,
    replies: Vec<Option<Result<Vec<u8>, E>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Look,
    Charge,
    Refund,
    Over,
}

impl<'l, E> Course<'l, E> {
    /// A course without any replies yet.
    #[must_use]
    pub fn new(lease: &'l Lease) -> Self {
        let stage = if lease.looks_first() { Stage::Look } else { Stage::Charge };
        Self { lease, stage, replies: lease.keys().iter().map(|_| None).collect() }
    }

    /// The same where only these keys are asked, whose replies are missing: the others were asked.
    #[must_use]
    pub fn again(lease: &'l Lease, replies: Vec<Option<Result<Vec<u8>, E>>>) -> Self {
        let is_whole = replies.len() == lease.keys().len() && !lease.looks_first();
        if is_whole { Self { replies, ..Self::new(lease) } } else { Self::new(lease) }
    }

    /// The requests to send at the same time; empty when the course is over.
    #[must_use]
    pub fn round(&self) -> Vec<Round<'_>> {
        let each = self.lease.keys().iter().zip(&self.replies).enumerate();
        let ask = |(key, (asked, reply))| self.ask(asked, reply).map(|ask| Round { key, ask });
        each.filter_map(ask).collect()
    }

    fn ask<'a>(
        &'a self,
        key: &'a crate::lease::Key,
        reply: &'a Option<Result<Vec<u8>, E>>,
    ) -> Option<CountRequest<'a>> {
        match (self.stage, reply) {
            (Stage::Look, None) => Some(CountRequest::Peek(&key.look)),
            (Stage::Charge, None) => Some(CountRequest::Charge(&key.request)),
            (Stage::Refund, Some(Ok(reply))) if !refuses(&key.request, reply) => {
                Some(CountRequest::Refund(&key.request, reply))
            }
            _ => None,
        }
    }

    /// Takes the replies of [`Course::round`], in its order. Returns the failures of refunds.
    pub fn receive(&mut self, replies: impl IntoIterator<Item = Result<Vec<u8>, E>>) -> Vec<E> {
        let asked: Vec<usize> = self.round().iter().map(|round| round.key).collect();
        let mut failed = Vec::new();
        for (place, reply) in asked.into_iter().zip(replies) {
            let Some(known) = self.replies.get_mut(place) else { continue };
            match (self.stage, known, reply) {
                (Stage::Refund, Some(Ok(charged)), Ok(after)) => {
                    // The lease stays: its node has it.
                    let rest = read_leased(charged).map_or(0, |(_, rest)| rest.len());
                    charged.truncate(charged.len().saturating_sub(rest));
                    charged.extend(after);
                }
                // The charge stays.
                (Stage::Refund, _, Err(why)) => failed.push(why),
                (_, known, reply) => *known = Some(reply),
            }
        }
        self.stage = match self.stage {
            Stage::Look if self.is_refused(|key| &key.look) => Stage::Over,
            Stage::Look => {
                self.replies.iter_mut().for_each(|reply| {
                    reply.take_if(|reply| reply.is_ok());
                });
                Stage::Charge
            }
            Stage::Charge if self.lease.looks_first() && self.is_refused(|key| &key.request) => {
                Stage::Refund
            }
            Stage::Charge | Stage::Refund | Stage::Over => Stage::Over,
        };
        failed
    }

    /// One reply for each key, once it is over; `unasked` returns the failure of a count that was
    /// never asked.
    #[must_use]
    pub fn replies(self, unasked: impl Fn() -> E) -> Vec<Result<Vec<u8>, E>> {
        self.replies.into_iter().map(|reply| reply.unwrap_or_else(|| Err(unasked()))).collect()
    }

    fn is_refused(&self, asked: impl Fn(&crate::lease::Key) -> &Vec<u8>) -> bool {
        let mut each = self.lease.keys().iter().zip(&self.replies);
        each.any(|(key, reply)| matches!(reply, Some(Ok(reply)) if refuses(asked(key), reply)))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::sync::Arc;
    use alloc::vec;

    use tollgate_core::{Span, Timestamp};
    use tollgate_language::DescribedRequest;
    use tollgate_policy::{Plan, Policy, Surface};
    use tollgate_storage::{Counts, LeaseQuestion, read_leased};

    use super::*;
    use crate::lease::{CONTENT_TYPE, FleetPolicies, newer};

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn policy(version: u64) -> Policy {
        let rule = |name: &str, key: &str, limit: u32| {
            format!(
                r#"{{"name": "{name}", "key": ["{key}"], "scope": "fleet", "quotas": [{{"limit": {limit}, "window": "1h"}}]}}"#
            )
        };
        let rules = [rule("a", "client_ip", 50), rule("b", "method", 3), rule("c", "host", 50)];
        let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
        let mut policy = tollgate_language::compile(&document, Surface::Server).unwrap();
        policy.set_version(version);
        policy
    }

    /// A request with a cost of one in this many keys, which also wants ten units of each.
    fn lease(policy: &Policy, costs: usize, number: u64) -> Lease {
        let facts =
            br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1", "headers": {"host": "a"}}"#;
        let mut plan = Plan::new();
        policy.plan(&DescribedRequest::parse(facts).unwrap(), &mut plan);
        let mut keys: Vec<_> = plan.partitions().map(|it| it.lease_key(policy, [7; 16])).collect();
        assert_eq!(keys.len(), 3);
        for (i, key) in keys.iter_mut().enumerate() {
            let rule = &mut key.rules[0];
            rule.cost = u64::from(i < costs);
            (rule.ask.number, rule.ask.want, rule.ask.least) = (number, 10, 1);
            rule.ask.life = Span::from_secs(2);
        }
        let mut body = Vec::new();
        LeaseQuestion { policy: policy.fleet().fingerprint(), table: 9, keys }.write(&mut body);
        let mut known = FleetPolicies::default();
        known.follow(&Arc::new(policy.clone()), AT);
        Lease::read(&known, AT, Some(CONTENT_TYPE), &body).unwrap()
    }

    /// Three counts, of which some do not reply.
    struct World {
        counts: [Counts; 3],
        silent: [bool; 3],
        asked: Vec<(usize, Event)>,
    }

    impl World {
        fn new() -> Self {
            Self { counts: Default::default(), silent: [false; 3], asked: Vec::new() }
        }

        fn one(&mut self, round: &Round<'_>) -> Result<Vec<u8>, &'static str> {
            self.asked.push((round.key, round.ask.event()));
            if self.silent[round.key] {
                return Err("silent");
            }
            let counts = &mut self.counts[round.key];
            let answered = match round.ask {
                CountRequest::Peek(request) | CountRequest::Charge(request) => {
                    counts.answer(request, AT)
                }
                CountRequest::Refund(request, reply) => counts.refund(request, reply, AT),
            };
            Ok(answered.unwrap().reply)
        }

        fn run(&mut self, lease: &Lease) -> Vec<Result<Vec<u8>, &'static str>> {
            let mut course = Course::new(lease);
            for _ in 0..4 {
                let round = course.round();
                let replies: Vec<_> = round.iter().map(|it| self.one(it)).collect();
                course.receive(replies);
            }
            assert!(course.round().is_empty(), "three rounds at the most");
            course.replies(|| "unasked")
        }

        fn calls(&mut self) -> Vec<(usize, Event)> {
            core::mem::take(&mut self.asked)
        }
    }

    fn units(replies: &[Result<Vec<u8>, &'static str>]) -> Vec<u64> {
        let units = |leased: Vec<tollgate_storage::Leased>| {
            leased.iter().flatten().map(|grant| grant.units).sum()
        };
        let each = replies.iter().map(|reply| read_leased(reply.as_ref().ok()?).ok());
        each.map(|read| read.map_or(0, |(leased, _)| units(leased))).collect()
    }

    #[test]
    fn one_key_is_asked_once_and_several_are_looked_at_first() {
        let (policy, mut world) = (policy(1), World::new());
        let replies = world.run(&lease(&policy, 1, 1));
        assert_eq!(world.calls(), [(0, Event::Check), (1, Event::Check), (2, Event::Check)]);
        assert_eq!(units(&replies), [10, 1, 10], "half of what is left at the most");
        world.run(&lease(&policy, 2, 2));
        let events: Vec<_> = world.calls().into_iter().map(|(_, event)| event).collect();
        assert_eq!(events[..3], [Event::Look; 3]);
        assert_eq!(events[3..], [Event::Check; 3]);
    }

    // Guards: a request that one key denies, charged in the others.
    #[test]
    fn what_one_key_refuses_is_charged_in_none() {
        let (policy, mut world) = (policy(1), World::new());
        let admitted = |world: &mut World, number| {
            let lease = lease(&policy, 2, number);
            let replies = world.run(&lease);
            let mut each = lease.keys().iter().zip(&replies);
            each.all(|(key, reply)| reply.as_ref().is_ok_and(|reply| !refuses(&key.request, reply)))
        };
        // Three of the second key; its lease expires soon.
        let passed = (1..=10).filter(|number| admitted(&mut world, *number)).count();
        assert!((1..=3).contains(&passed), "{passed}");
        world.calls();
        assert!(!admitted(&mut world, 11));
        assert_eq!(world.calls().len(), 3, "looked at, and no more");
        let left = lease(&policy, 1, 12);
        let replies = world.run(&left);
        let reply = replies[0].as_ref().unwrap();
        let (_, rest) = read_leased(reply).unwrap();
        let charged = 1 + u64::try_from(passed).unwrap();
        let remaining = u64::from_le_bytes(rest[27..35].try_into().unwrap());
        assert!(remaining <= 50 - charged, "{remaining}");
    }

    // Guards: a count that denies after all a request that it would have allowed at the peek, and a
    // charge that is refunded twice, or together with the lease.
    #[test]
    fn what_is_refused_after_all_is_given_back_and_what_is_leased_stays() {
        let (policy, mut world) = (policy(1), World::new());
        let lease = lease(&policy, 2, 1);
        let mut course = Course::new(&lease);
        let looks: Vec<_> = course.round().iter().map(|it| world.one(it)).collect();
        course.receive(looks);
        // Another client takes all of the second key meanwhile.
        while world.counts[1]
            .answer(&lease.keys()[1].request, AT)
            .is_ok_and(|answered| !refuses(&lease.keys()[1].request, &answered.reply))
        {}
        let charges: Vec<_> = course.round().iter().map(|it| world.one(it)).collect();
        course.receive(charges);
        world.calls();
        let refunds: Vec<_> = course.round().iter().map(|it| world.one(it)).collect();
        assert_eq!(world.calls(), [(0, Event::Refund), (2, Event::Refund)]);
        assert!(course.receive(refunds).is_empty());
        assert!(course.round().is_empty());
        let replies = course.replies(|| "unasked");
        assert_eq!(units(&replies)[0], 10, "its node has it");
        let (_, rest) = read_leased(replies[0].as_ref().unwrap()).unwrap();
        assert_eq!(rest[9] & 1, 0, "not charged any more");
    }

    // Guards: one silent count that loses the leases of others, or causes them to be asked twice.
    #[test]
    fn a_silent_count_is_a_failure_of_its_own() {
        let (policy, mut world) = (policy(1), World::new());
        world.silent[1] = true;
        let replies = world.run(&lease(&policy, 1, 1));
        assert_eq!((units(&replies), &replies[1]), (vec![10, 0, 10], &Err("silent")));
        world.calls();
        let replies = world.run(&lease(&policy, 2, 2));
        assert_eq!(replies[1], Err("silent"));
        let asked = world.calls();
        assert_eq!(asked.iter().filter(|(key, _)| *key == 1).count(), 1, "{asked:?}");
        assert!(replies[0].is_ok() && replies[2].is_ok());
        // A refund without a reply leaves the charge, and reports that.
        world.silent = [false; 3];
        let lease = lease(&policy, 2, 3);
        let mut course = Course::new(&lease);
        course.receive(vec![Ok(vec![]), Err("late"), Err("late")]);
        assert!(course.round().is_empty(), "an answer that is none refuses");
    }

    #[test]
    fn who_is_behind_is_asked_again_and_the_others_are_not() {
        let (old, new) = (policy(1), policy(2));
        let mut world = World::new();
        world.counts[1].answer(&lease(&new, 1, 1).keys()[1].request, AT).unwrap();
        let asked = lease(&old, 1, 2);
        let replies = world.run(&asked);
        let versions: Vec<_> = asked.keys().iter().zip(&replies).collect();
        let versions = versions.iter().map(|(key, reply)| newer(key, reply.as_ref().unwrap()));
        assert_eq!(versions.collect::<Vec<_>>(), [None, Some(2), None]);
        world.calls();
        let again = lease(&new, 1, 2);
        let known = replies.into_iter().enumerate().map(|(i, reply)| (i != 1).then_some(reply));
        let mut course = Course::again(&again, known.collect());
        let second: Vec<_> = course.round().iter().map(|it| world.one(it)).collect();
        course.receive(second);
        assert_eq!(world.calls(), [(1, Event::Check)]);
        assert!(course.round().is_empty());
        assert!(course.replies(|| "unasked").iter().all(Result::is_ok));
        // Of several costs all were refunded, so that all are asked again.
        let whole = lease(&new, 2, 3);
        let course: Course<'_, &str> = Course::again(&whole, vec![Some(Err("late")), None, None]);
        assert_eq!(course.round().len(), 3);
    }
}
