//! A node's request to an authority about a partition, and the authority's request to the process
//! that counts it.

use alloc::vec::Vec;

use tollgate_core::Span;
use tollgate_storage::wire::{BINDING, LATER, STRICT, WITHOUT_STATES, WireError};
use tollgate_storage::{Due, Head, LeaseAsk, LeaseKey, LeaseRule, Leasing, RuleHead, key_hash};

use crate::pipeline::partition::Partition;
use crate::policy::compiled::Policy;
use crate::policy::fleet::FleetRules;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::rule::Rule;

impl Partition<'_> {
    /// The request for this partition, with no lease part yet.
    #[must_use]
    pub fn lease_key(&self, policy: &Policy, secret: [u8; 16]) -> LeaseKey {
        let group = policy.groups.get(self.group()).map_or(0, Group::identity);
        let mut rules = Vec::new();
        for applied in self.rules() {
            let Some(set) = policy.applied_set(applied) else { continue };
            let cost = if applied.due == Due::Now { applied.cost } else { 0 };
            let ask = LeaseAsk { set: set.stable_id(), ..LeaseAsk::default() };
            rules.push(LeaseRule { is_binding: applied.is_binding(), cost, ask });
        }
        // A long key was already replaced by its hash.
        let trimmed = self.stored.trimmed.and_then(|_| self.key().try_into().ok());
        let hash = trimmed.unwrap_or_else(|| key_hash(secret, group, self.key()));
        LeaseKey { group, hash, rules }
    }
}

impl FleetRules<'_> {
    /// The request to the process that counts `key`:
    /// [`Counts::answer`](tollgate_storage::Counts::answer). With `is_look` it only checks the
    /// costs: nothing is charged, reported or leased. Units are leased for at most the time in the
    /// rules. `table` is that of the question.
    ///
    /// # Errors
    /// This policy has no such group of the fleet or rule, or two are the same: the question was
    /// not written with this policy.
    pub fn lease_request(
        &self,
        key: &LeaseKey,
        table: u128,
        is_look: bool,
    ) -> Result<Vec<u8>, WireError> {
        let counted = self.counted_by(key)?;
        let mut out = Vec::new();
        if !is_look {
            let sets = key.rules.iter().zip(&counted).map(|(asked, (_, rule))| {
                let life = asked.ask.life.min(rule.terms.lease);
                let want = if life > Span::ZERO { asked.ask.want } else { 0 };
                LeaseAsk { want, life, ..asked.ask.clone() }
            });
            Leasing { table, sets: sets.collect() }.write(&mut out);
        }
        // States may be long, and a node does not use them: a response has no room for them.
        let flags = STRICT | WITHOUT_STATES;
        Head { version: self.0.version(), group: key.group, flags, under: None }.write(&mut out);
        for (asked, (set, rule)) in key.rules.iter().zip(&counted) {
            let binding = if asked.is_binding { BINDING } else { 0 };
            let flags = binding | if is_look { LATER } else { 0 };
            let (rule, longest) = (self.0.stable_id_of(set.rule), rule.longest_wait());
            RuleHead { flags, rule, cost: asked.cost, longest }.write(&mut out);
            set.write_parameters(&mut out);
        }
        Ok(out)
    }

    /// The quotas of each rule in `key`, and the rule.
    fn counted_by(&self, key: &LeaseKey) -> Result<Vec<(&QuotaSet, &Rule)>, WireError> {
        let is_it = |group: &Group| group.is_fleet() && group.identity() == key.group;
        let place = self.0.groups.iter().position(is_it).ok_or(WireError::OtherPolicy)?;
        let mut counted: Vec<(&QuotaSet, &Rule)> = Vec::with_capacity(key.rules.len());
        for asked in &key.rules {
            let id = asked.ask.set;
            if counted.iter().any(|(set, _)| set.stable_id() == id) {
                return Err(WireError::Malformed);
            }
            let set = self.0.sets.iter().find(|set| set.stable_id() == id);
            let set = set.ok_or(WireError::OtherPolicy)?;
            let rule = self.0.rules.get(set.rule()).filter(|rule| rule.group() == place);
            counted.push((set, rule.ok_or(WireError::OtherPolicy)?));
        }
        Ok(counted)
    }
}
