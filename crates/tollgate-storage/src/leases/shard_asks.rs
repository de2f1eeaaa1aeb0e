//! A shard's requests to the key's own object: for a client request, in advance, and to give units
//! back.
//!
//! Invariant: a request has its own number, and each set is in one request at a time. Units that
//! are given back are reported as final, and no longer spent.

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::leases::ask::{LeaseAsk, Leasing};
use crate::leases::clock::DEFAULT_LEASE;
use crate::leases::shard::Shard;
use crate::request::Request;
use crate::wire::{BINDING, MAGIC, STRICT};

/// The life of its leases: a lost shard blocks its units for at most this time plus the clock's
/// error.
const LIFE: Span = DEFAULT_LEASE;
/// How long other requests wait for a reply of the key's object before the next one is sent.
const PATIENCE: Span = Span::from_millis(250);
impl Shard {
    /// The request to send although no client request waits: for more units, or to give the
    /// remaining ones back.
    pub fn due(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.see(now);
        let number = self.last.saturating_add(1);
        let mut leasing = Leasing { table: self.table, sets: Vec::new() };
        let mut rules = Vec::new();
        for held in &mut self.sets {
            if held.holding.is_due(now) {
                let ask = held.holding.ask(held.id, number, held.cost, now, (LIFE, PATIENCE));
                leasing.sets.push(ask);
                rules.push(if held.binding { BINDING } else { 0 });
                rules.extend(held.rule.to_le_bytes());
                rules.extend(0_u64.to_le_bytes());
                rules.extend_from_slice(&held.parameters);
            }
        }
        if leasing.sets.is_empty() {
            return None;
        }
        self.last = number;
        let mut out = Vec::new();
        leasing.write(&mut out);
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend(self.group.to_le_bytes());
        out.push(STRICT);
        out.extend_from_slice(&rules);
        Some(out)
    }

    /// The time after which [`Shard::due`] should be called although there is no client request;
    /// `None` while nothing is held.
    pub fn due_in(&mut self, now: Timestamp) -> Option<Span> {
        if self.sets.iter_mut().any(|held| held.holding.is_due(now)) {
            return Some(Span::ZERO);
        }
        let due_at = self.sets.iter().filter_map(|held| held.holding.due_at()).min();
        due_at.map(|at| at.since(now))
    }

    /// The request with its lease part: for each rule without a request in flight.
    pub(crate) fn question(
        &mut self,
        asked: &Request<'_>,
        request: &[u8],
        now: Timestamp,
    ) -> Vec<u8> {
        self.last = self.last.saturating_add(1);
        let (number, table) = (self.last, self.table);
        let mut sets = Vec::with_capacity(asked.rules.len());
        for rule in &asked.rules {
            let set = rule.stable_id();
            let held = self.held(set).filter(|held| !held.holding.is_asking(now));
            let ask =
                held.map(|held| held.holding.ask(set, number, rule.cost, now, (LIFE, PATIENCE)));
            sets.push(ask.unwrap_or_else(|| LeaseAsk { set, ..LeaseAsk::default() }));
        }
        let mut out = Vec::new();
        Leasing { table, sets }.write(&mut out);
        out.extend_from_slice(request);
        out
    }

    pub(crate) fn give_up(&mut self, leasing: Option<&Leasing>) {
        let Some(leasing) = leasing.filter(|leasing| self.is_own(leasing)) else { return };
        for ask in &leasing.sets {
            if let Some(held) = self.held(ask.set) {
                held.holding.fail(ask.number);
            }
        }
    }
}
