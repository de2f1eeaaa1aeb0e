//! One shard of a hot key: an object that leases units from the key's own object and spends them on
//! its own. It answers requests in the same bytes as the key's object.
//!
//! Invariant: each request that it allows on its own is paid from a lease, for all rules of the
//! request or none; the key's object decides all other requests. So its memory may be lost at any
//! time: the held units count as spent when the lease is over, and nothing is stored here. Numbers
//! belong to one memory, which has its own 128 random bits: a reply to an earlier memory is
//! ignored.
//!
//! Deliberately absent: the connection to the key's object, a clock, and the selection of the
//! requests that come here (`Partition::shards`).

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::due::Due;
use crate::leases::ask::{Leasing, MAX_LEASE_SETS, read_leased};
use crate::leases::demand::Demand;
use crate::leases::mutation::{self, Mutation};
use crate::leases::node::{Holding, Taken};
use crate::leases::shard_reply::{HeldRule, HeldWord, Refusal, read_held, write_held};
use crate::request::{Request, RequestRule};
use crate::wire::{DECIDED, HELD, NEWER, WireError};

/// How far its clock may go back while it holds something: half of the error that the key's object
/// allows for clocks.
const MAX_STEP_BACK: Span = Span::from_millis(500);
/// The most sets of which a shard holds units; a request with more sets goes to the key's object.
const MAX_HELD_SETS: usize = MAX_LEASE_SETS;

/// The units that one shard holds of its key.
#[derive(Clone, Debug)]
pub struct Shard {
    pub(crate) table: u128,
    /// The number of the last request.
    pub(crate) last: u64,
    pub(crate) group: u64,
    /// The newest version of the policy that was seen here.
    pub(crate) version: u64,
    /// The latest time seen.
    seen_at: Timestamp,
    pub(crate) sets: Vec<HeldSet>,
    refusal: Option<Refusal>,
}

/// The holding of one rule or tier.
#[derive(Clone, Debug)]
pub(crate) struct HeldSet {
    pub(crate) id: u64,
    pub(crate) rule: u64,
    pub(crate) binding: bool,
    /// The cost of its last request.
    pub(crate) cost: u64,
    pub(crate) parameters: Vec<u8>,
    pub(crate) holding: Holding,
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardMode {
    /// It may wait for another request to the key's object.
    Waits,
    /// It has waited: it makes its own request.
    Asks,
    /// Another shard denied it: only held units can pay it.
    InHand,
}

/// The result for a request at a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharded {
    /// Allowed, or planned with an older policy: for
    /// `PartitionMut::accept`.
    Answered(Vec<u8>),
    /// Denied, the same; another shard may have enough for it.
    Refused(Vec<u8>),
    /// Send this to the key's object, and pass its reply to [`Shard::apply_reply`].
    Ask(Vec<u8>),
    /// Another request is in flight: try again after its reply, at this time at the latest.
    Wait(Timestamp),
    /// No held lease is enough.
    Nothing,
}

impl Shard {
    /// A shard without units. `table` is 128 random bits, new ones for each memory.
    #[must_use]
    pub fn new(table: u128) -> Self {
        let seen_at = Timestamp::ZERO;
        Self { table, last: 0, group: 0, version: 0, seen_at, sets: Vec::new(), refusal: None }
    }

    /// Decides `request` with the held units at `now`, or returns the next step.
    ///
    /// # Errors
    /// The bytes are not a request; nothing is changed then.
    pub fn check(
        &mut self,
        request: &[u8],
        mode: ShardMode,
        now: Timestamp,
    ) -> Result<Sharded, WireError> {
        let asked = Request::read(request)?;
        self.see(now);
        if asked.version != 0 && asked.version < self.version {
            let mut reply = Vec::with_capacity(9);
            reply.push(NEWER);
            reply.extend(self.version.to_le_bytes());
            return Ok(Sharded::Answered(reply));
        }
        let in_hand = mode == ShardMode::InHand;
        if !is_plain(&asked) || !self.follow(&asked, now) {
            return Ok(if in_hand { Sharded::Nothing } else { Sharded::Ask(request.to_vec()) });
        }
        if in_hand && !self.has_all(&asked, now) {
            return Ok(Sharded::Nothing);
        }
        let mut taken = Vec::with_capacity(asked.rules.len());
        for rule in &asked.rules {
            let held = self.held(rule.stable_id()).map(|held| held.holding.take(now, rule.cost));
            taken.push(held.unwrap_or(Taken::Ask));
        }
        if let Some(words) = paid(&asked, &taken) {
            let mut reply = Vec::new();
            write_held((now, self.table), &words, &mut reply);
            return Ok(Sharded::Answered(reply));
        }
        for (rule, taken) in asked.rules.iter().zip(&taken) {
            self.put_back(rule, taken, now);
        }
        if let Some(reply) = self.refused(request, &asked, &taken, now) {
            return Ok(Sharded::Refused(reply));
        }
        let wait = taken.iter().filter_map(|taken| match taken {
            Taken::Wait(until) => Some(*until),
            Taken::Spent { .. } | Taken::Ask | Taken::Denied(_) => None,
        });
        match wait.max() {
            Some(until) if mode == ShardMode::Waits && !taken.contains(&Taken::Ask) => {
                Ok(Sharded::Wait(until))
            }
            _ if in_hand => Ok(Sharded::Nothing),
            _ => Ok(Sharded::Ask(self.question(&asked, request, now))),
        }
    }

    /// Processes the reply of the key's object to `asked`, a [`Sharded::Ask`] or the result of
    /// [`Shard::due`]; `None` if there was no reply. Returns the reply to the request in it, and
    /// whether it was denied.
    ///
    /// # Errors
    /// The bytes are not such a request, or not a reply to it: its lease expires.
    pub fn apply_reply(
        &mut self,
        asked: &[u8],
        reply: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<(Vec<u8>, bool), WireError> {
        self.see(now);
        let (leasing, request) = Leasing::split(asked)?;
        let Some(reply) = reply else {
            self.give_up(leasing.as_ref());
            return Ok((Vec::new(), false));
        };
        let (leased, rest) = read_leased(reply)?;
        match &leasing {
            Some(leasing) if leasing.sets.len() == leased.len() && self.is_own(leasing) => {
                for (ask, leased) in leasing.sets.iter().zip(leased) {
                    if let Some(held) = self.held(ask.set).filter(|_| ask.number > 0) {
                        held.holding.answer(ask.number, leased, now);
                    }
                }
            }
            leasing => self.give_up(leasing.as_ref()),
        }
        let is_refused = match rest.split_first() {
            Some((&NEWER, version)) => {
                let version = version.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                self.version = self.version.max(version);
                false
            }
            Some((&DECIDED, _)) if leasing.is_some() => self.note_refusal(request, rest, now)?,
            _ => false,
        };
        Ok((rest.to_vec(), is_refused))
    }

    /// Returns the units that [`Sharded::Answered`] took for `request`, because another key denied
    /// it; `None` when the key's object decided it, and must refund it.
    ///
    /// # Errors
    /// The bytes are not such a request, or not a reply to it.
    pub fn refund(
        &mut self,
        request: &[u8],
        reply: &[u8],
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, WireError> {
        if reply.first() != Some(&HELD) {
            return Ok(None);
        }
        let asked = Request::read(request)?;
        let (head, mut words) = read_held(reply, asked.rules.len())?;
        let is_own = head.1 == self.table;
        for (rule, word) in asked.rules.iter().zip(&mut words) {
            let HeldRule::Paid { number } = word.what else { continue };
            if let Some(held) = self.held(rule.stable_id()).filter(|_| is_own) {
                held.holding.put_back(now, number, rule.cost);
                word.left = held.holding.left();
            }
            word.what = HeldRule::Free;
        }
        let mut out = Vec::new();
        write_held(head, &words, &mut out);
        Ok(Some(out))
    }

    /// Gives everything back, wants nothing until there are new requests, and drops remembered
    /// denials: an operator has a request about the key. Then send the result of [`Shard::due`].
    pub fn close(&mut self) {
        self.refusal = None;
        for held in &mut self.sets {
            held.holding.close();
            held.holding.demand = Demand::default();
            held.holding.denied = None;
        }
    }

    /// A clock that is set back would make leases last longer than at the key's object, so all of
    /// them are given back.
    pub(crate) fn see(&mut self, now: Timestamp) {
        if now.saturating_add(MAX_STEP_BACK) < self.seen_at {
            self.close();
            self.seen_at = now;
        }
        self.seen_at = self.seen_at.max(now);
    }

    pub(crate) fn is_own(&self, leasing: &Leasing) -> bool {
        leasing.table == self.table
    }

    pub(crate) fn held(&mut self, id: u64) -> Option<&mut HeldSet> {
        self.sets.iter_mut().find(|held| held.id == id)
    }

    /// Stores the rules of `asked`, and gives back the units of other quotas; false when there are
    /// too many rules.
    fn follow(&mut self, asked: &Request<'_>, now: Timestamp) -> bool {
        (self.version, self.group) = (self.version.max(asked.version), asked.group);
        for rule in &asked.rules {
            let (id, parameters) = (rule.stable_id(), rule.parameters);
            match self.held(id) {
                Some(held) => {
                    (held.binding, held.cost, held.rule) = (rule.binding, rule.cost, rule.rule);
                    if held.parameters != parameters {
                        held.parameters = parameters.to_vec();
                        held.holding.close();
                        held.holding.denied = None;
                        self.refusal = None;
                    }
                }
                None => {
                    if self.sets.len() >= MAX_HELD_SETS {
                        let of = |id| asked.rules.iter().any(|rule| rule.stable_id() == id);
                        self.sets.retain(|held| of(held.id) || !held.holding.is_idle());
                    }
                    if self.sets.len() >= MAX_HELD_SETS {
                        return false;
                    }
                    let (binding, cost) = (rule.binding, rule.cost);
                    let (parameters, holding) = (parameters.to_vec(), Holding::default());
                    let rule = rule.rule;
                    self.sets.push(HeldSet { id, rule, binding, cost, parameters, holding });
                }
            }
        }
        self.refusal = self.refusal.take().filter(|refusal| refusal.heard_at <= now);
        true
    }

    fn has_all(&mut self, asked: &Request<'_>, now: Timestamp) -> bool {
        asked.rules.iter().all(|rule| {
            let held = self.held(rule.stable_id());
            held.is_some_and(|held| held.holding.has(now, rule.cost))
        })
    }

    fn put_back(&mut self, rule: &RequestRule<'_>, taken: &Taken, now: Timestamp) {
        if let (Taken::Spent { number, .. }, Some(held)) = (taken, self.held(rule.stable_id())) {
            held.holding.put_back(now, *number, rule.cost);
        }
    }

    /// Stores the denials in a reply; true when the request was denied.
    fn note_refusal(
        &mut self,
        request: &[u8],
        reply: &[u8],
        now: Timestamp,
    ) -> Result<bool, WireError> {
        let mut asked = Request::read(request)?;
        asked.read_reply(reply)?;
        let mut decisions = asked.decisions.as_slice();
        for rule in &asked.rules {
            let Some((own, rest)) = decisions.split_at_checked(rule.quotas) else { break };
            decisions = rest;
            let denials = own.iter().filter(|decision| !decision.is_admitted());
            let waits = denials.map(|decision| decision.retry_after);
            let wait = waits.reduce(|one, other| Some(one?.max(other?)));
            if let (Some(wait), Some(held)) = (wait, self.held(rule.stable_id()))
                && rule.due == Due::Now
                && rule.cost > 0
            {
                held.holding.deny(now, rule.cost, wait);
            }
        }
        let is_refused = asked.refuses();
        if is_refused && is_plain(&asked) {
            let (request, reply) = (request.to_vec(), reply.to_vec());
            self.refusal = Some(Refusal { request, reply, heard_at: now });
        }
        Ok(is_refused)
    }

    /// The reply to `request` when a binding rule was denied recently, so that it is denied again.
    fn refused(
        &self,
        request: &[u8],
        asked: &Request<'_>,
        taken: &[Taken],
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        let is_refusal = |(rule, taken): (&RequestRule<'_>, &Taken)| {
            rule.binding && matches!(taken, Taken::Denied(_))
        };
        if !asked.rules.iter().zip(taken).any(is_refusal) {
            return None;
        }
        let again = self.refusal.as_ref().filter(|refusal| refusal.request == request);
        if let Some(reply) = again.and_then(|refusal| refusal.said_at(now)) {
            return Some(reply);
        }
        let said = |taken: &Taken| {
            let (what, rest) = match taken {
                Taken::Denied(wait) => (HeldRule::Denied, *wait),
                Taken::Spent { rest, .. } => (HeldRule::Free, *rest),
                Taken::Ask | Taken::Wait(_) => (HeldRule::Free, Span::ZERO),
            };
            HeldWord { what, left: 0, rest }
        };
        let words: Vec<HeldWord> = taken.iter().map(said).collect();
        let mut reply = Vec::new();
        write_held((now, self.table), &words, &mut reply);
        Some(reply)
    }
}

/// True for a request that a lease can pay: charged when it arrives, by rules that delay nothing.
fn is_plain(asked: &Request<'_>) -> bool {
    let is_plain = |rule: &RequestRule<'_>| rule.due == Due::Now && rule.longest.is_none();
    let is_few = (1..=MAX_LEASE_SETS).contains(&asked.rules.len());
    !asked.settles && !asked.includes_states && is_few && asked.rules.iter().all(is_plain)
}

/// The content of the reply when every binding rule is paid, and the others are paid or denied.
fn paid(asked: &Request<'_>, taken: &[Taken]) -> Option<Vec<HeldWord>> {
    let is_spent = |taken: &Taken| matches!(taken, Taken::Spent { .. });
    let is_in_part = mutation::is(Mutation::PaysInPart) && taken.iter().any(is_spent);
    let word = |(rule, taken): (&RequestRule<'_>, &Taken)| match *taken {
        Taken::Spent { number, left, rest } => {
            Some(HeldWord { what: HeldRule::Paid { number }, left, rest })
        }
        Taken::Denied(rest) if !rule.binding => {
            Some(HeldWord { what: HeldRule::Denied, left: 0, rest })
        }
        Taken::Ask | Taken::Wait(_) if is_in_part => {
            Some(HeldWord { what: HeldRule::Free, left: 0, rest: Span::ZERO })
        }
        Taken::Denied(_) | Taken::Ask | Taken::Wait(_) => None,
    };
    asked.rules.iter().zip(taken).map(word).collect()
}
