//! A cost that is known only afterwards: the charge of a request is adjusted to it, once.
//!
//! Invariant: the final charge is no less than if the lower of both costs had been charged at the
//! decision, and the rest debited at the settlement. A lower cost refunds the difference, through
//! the core's refund: never more than was charged, nothing twice, and nothing of states that were
//! reset, dropped or planned with a newer policy in the meantime, because usage that was carried to
//! other quotas and back can no longer be distinguished. A higher cost debits the difference,
//! whether or not it fits: it was used. The excess over the core's cap, two bursts or two limits,
//! is dropped. So every key's count settles on its own, in one step.
//!
//! Receipt: a request of format 2 in which every rule is settled by its response (`wire`), at the
//! most units that it may be settled at: only rules that name a cost. Request: [`SETTLE`], a random
//! number of the request `u64`, the cost `u64`, the receipt. Reply: [`SETTLED`] `u8`; the result
//! `u8` (0 settled at this cost, 1 settled at another one, 2 too old); the cost `u64`; the charged
//! units `u64`.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::counted_set::CountedSet;
use crate::counts::{Answered, Counts};
use crate::leases::clock::Clock;
use crate::marks::reset_at;
use crate::request::{Request, RequestRule};
use crate::settled::{SETTLE_WITHIN, Settled};
use crate::stored_set::StoredSet;
use crate::wire::{ANOTHER_COST, Reader, SETTLE, SETTLED, STANDS, TOO_OLD, WireError};

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is settled, now or earlier.
    Stands {
        /// The charged units: more than the cost when nothing could be refunded.
        charged: u64,
    },
    /// It was settled earlier, at another cost.
    Another {
        /// That cost.
        cost: u64,
    },
    /// It was charged too long ago, and is unchanged.
    TooOld,
}

impl Settlement {
    /// The request to settle a receipt at `cost`, in quota units; `id`
    /// is a random number that all receipts of one request share.
    #[must_use]
    pub fn request(id: u64, cost: u64, receipt: &[u8]) -> Vec<u8> {
        [&SETTLE[..], &id.to_le_bytes(), &cost.to_le_bytes(), receipt].concat()
    }

    /// Reads the reply of [`Counts::answer`].
    ///
    /// # Errors
    /// The bytes are not such a reply.
    pub fn read(reply: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Reader(reply);
        if bytes.u8()? != SETTLED {
            return Err(WireError::Malformed);
        }
        let (what, cost, charged) = (bytes.u8()?, bytes.u64()?, bytes.u64()?);
        bytes.end()?;
        match what {
            STANDS => Ok(Self::Stands { charged }),
            ANOTHER_COST => Ok(Self::Another { cost }),
            TOO_OLD => Ok(Self::TooOld),
            _ => Err(WireError::Malformed),
        }
    }

    /// The combined result for one cost in two counts. A settlement at different costs must be
    /// reported; if one count has dropped it, the other count's result holds.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Another { .. }, _) | (_, Self::TooOld) => self,
            (_, Self::Another { .. }) | (Self::TooOld, _) => other,
            (Self::Stands { charged: one }, Self::Stands { charged: two }) => {
                Self::Stands { charged: one.max(two) }
            }
        }
    }

    fn reply(self, cost: u64) -> Vec<u8> {
        let (what, cost, charged) = match self {
            Self::Stands { charged } => (STANDS, cost, charged),
            Self::Another { cost } => (ANOTHER_COST, cost, cost),
            Self::TooOld => (TOO_OLD, cost, 0),
        };
        let mut reply = Vec::from([SETTLED, what]);
        reply.extend(cost.to_le_bytes());
        reply.extend(charged.to_le_bytes());
        reply
    }
}

impl Counts {
    /// Settles the cost in `request`, once.
    pub(crate) fn settle(&mut self, request: &[u8], clock: &Clock) -> Result<Answered, WireError> {
        let mut bytes = Reader(request);
        if bytes.bytes(SETTLE.len())? != SETTLE {
            return Err(WireError::Malformed);
        }
        let (id, cost) = (bytes.u64()?, bytes.u64()?);
        let asked = Request::read(bytes.0)?;
        let times = asked.rules.iter().map(|rule| rule.charged);
        // Those of one receipt were charged together.
        let charged_at = times.min().flatten().ok_or(WireError::Malformed)?;
        let (now, is_ended) = self.advance(clock);
        let answered = |settlement: Settlement, is_changed: bool| {
            Ok(Answered { reply: settlement.reply(cost), is_changed: is_changed || is_ended })
        };
        if now.since(charged_at) > SETTLE_WITHIN {
            return answered(Settlement::TooOld, false);
        }
        if let Some(settled) = self.settled.find(id, charged_at) {
            let is_same = settled.cost == cost;
            let charged = settled.charged;
            let accepted = Settlement::Stands { charged };
            let another = Settlement::Another { cost: settled.cost };
            return answered(if is_same { accepted } else { another }, false);
        }
        let is_first = self.settled.may_give_back(charged_at, now);
        let gives_back = is_first && !self.is_ahead_of(&asked);
        let (charged, is_changed) = self.settle_once(&asked, cost, gives_back, now)?;
        // Also when earlier settlements are lost: a repeated request is then charged no more.
        let settled = Settled { id, charged_at, cost, charged };
        let is_remembered = self.settled.remember(settled, now);
        answered(Settlement::Stands { charged }, is_remembered || is_changed)
    }

    /// Adjusts every rule of `asked` to `cost`; returns the charged units, and whether anything
    /// changed. Nothing is refunded unless `gives_back`: otherwise it may have been settled before,
    /// or carried to other quotas and back.
    fn settle_once(
        &mut self,
        asked: &Request<'_>,
        cost: u64,
        gives_back: bool,
        now: Timestamp,
    ) -> Result<(u64, bool), WireError> {
        // Everything that can fail comes before any change.
        let fresh = self.missing(asked, cost)?;
        let is_higher = asked.rules.iter().any(|rule| cost > rule.cost);
        self.sets.extend(fresh);
        let marks = self.marks.clone();
        let (mut charged, mut is_changed) = (None, false);
        let any_binding = asked.rules.iter().any(|rule| rule.binding);
        let mut of_rules = asked.decisions.clone();
        let mut decisions = of_rules.as_mut_slice();
        for rule in &asked.rules {
            let (own, rest) = decisions.split_at_mut_checked(rule.quotas).unwrap_or_default();
            decisions = rest;
            let cost = rule.most().map_or(cost, |most| cost.min(most));
            let difference = cost.abs_diff(rule.cost);
            let at = rule.charged.unwrap_or_default();
            let was_reset = reset_at(&marks, rule.rule) >= at;
            let accepted = match self.kept(rule.stable_id()) {
                Some(kept) if gives_back && !was_reset && kept.is_of(rule) => {
                    if cost != rule.cost || kept.keeps_holds() {
                        kept.counted(own).settle(at, rule.cost, cost, now);
                        is_changed = true;
                    }
                    cost
                }
                Some(kept) if cost > rule.cost => {
                    kept.debit(difference, now);
                    is_changed = true;
                    cost
                }
                // Units that were reset or dropped are no longer charged.
                Some(_) if !was_reset => rule.cost,
                Some(_) | None => cost,
            };
            if rule.binding || !any_binding {
                charged = charged.max(Some(accepted));
            }
        }
        if is_higher {
            self.group = asked.group;
            self.make_room(asked, now);
        }
        Ok((charged.unwrap_or(cost), is_changed))
    }

    /// New sets, with nothing used, for rules that will be charged more and have no stored set.
    fn missing(&self, asked: &Request<'_>, cost: u64) -> Result<Vec<CountedSet>, WireError> {
        let is_missing = |rule: &&RequestRule<'_>| {
            cost > rule.cost && self.sets.iter().all(|kept| kept.stable_id() != rule.stable_id())
        };
        let missing = asked.rules.iter().filter(is_missing).map(|rule| rule.parameters);
        let read = |mut set: &[u8]| StoredSet::read(&mut set).ok_or(WireError::Malformed);
        missing.map(|set| read(set).map(CountedSet::fresh)).collect()
    }
}

impl CountedSet {
    /// True when these quotas charged the rule, with no other quotas in between.
    fn is_of(&self, rule: &RequestRule<'_>) -> bool {
        self.before.is_none() && self.quotas.parameters == rule.parameters
    }

    /// True when a quota stores held units, which every settlement ends.
    fn keeps_holds(&self) -> bool {
        self.quotas.set.quotas().iter().any(|quota| quota.limiter().keeps_holds())
    }

    /// Debits `units` in each quota.
    pub(crate) fn debit(&mut self, units: u64, now: Timestamp) {
        for quota in self.quotas.set.quotas() {
            if let Some(state) = quota.state_mut(&mut self.states) {
                quota.limiter().debit(state, units, now);
            }
        }
    }
}
