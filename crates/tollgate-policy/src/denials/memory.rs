//! Denies a plan based on remembered denials of earlier plans.
//!
//! Invariant: a count is evaluated at the time that its store's clock showed in its response, plus
//! the time that has passed here since. This is never ahead of that clock, and is behind it by at
//! most the time that the response was on its way. A request that may be allowed is charged to the
//! remembered counts before it is sent. So during a flood only as many requests are sent as units
//! came back, however long their responses take. An entry that the response does not confirm is
//! forgotten or replaced. When a denial is no longer trusted, one of the next requests is sent to
//! the store. The others are denied by it as before, for at most the time in which the store may
//! respond. So a flood never reaches the store all at once.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;
use tollgate_core::{Decision, Span, Timestamp};

use crate::answer::outcome::Disposition;
use crate::denials::table::{Entry, Table};
use crate::denials::trust::{
    Belief, Counts, FRESH, can_be_settled, is_believed, is_final, refused_for,
};
use crate::pipeline::applied::{AppliedRule, Basis};
use crate::pipeline::partitions::{Failure, Status};
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use tollgate_storage::{Counted, Due, block};

/// The used-up counts that one isolate or process has received; their number is bounded.
#[derive(Debug)]
pub struct Denials {
    pub(crate) seed: [u8; 16],
    is_operated: bool,
    /// The last time an operator gave units back to any key, as far as it is known now.
    pub(crate) relieved: Option<u64>,
    settles: bool,
    leases: bool,
    refunds: bool,
    /// The longest time in which the store may respond.
    pub(crate) patience: Span,
    pub(crate) table: Table,
    refused: u64,
}

impl Denials {
    /// An empty memory. `seed` is random and secret: a client that knows it could choose keys that
    /// evict others.
    #[must_use]
    pub fn new(seed: [u8; 16]) -> Self {
        let (is_operated, relieved) = (false, Some(0));
        let [settles, leases, refunds] = [false; 3];
        let (patience, table, refused) = (Span::ZERO, Table::default(), 0);
        Self { seed, is_operated, relieved, settles, leases, refunds, patience, table, refused }
    }

    /// The same for a store that may take this time to respond. While one request is sent to the
    /// store, a denial is kept for at most this time beyond [`FRESH`]. With zero, the default,
    /// every request is sent.
    #[must_use]
    pub fn patient(self, patience: Span) -> Self {
        Self { patience, ..self }
    }

    /// The same where an operator may reset a key or end a block. Then nothing is trusted for more
    /// than [`FRESH`], unless it is [known](Self::know_relief) that no operator did.
    #[must_use]
    pub fn operated(self) -> Self {
        Self { is_operated: true, relieved: None, ..self }
    }

    /// Only where an operator may do this: the number of the last reset, block or end of a block of
    /// any key, if it is known at present. An entry received under another number, or under none,
    /// is trusted for [`FRESH`] at most. The number must be known before a request is
    /// [checked](Self::refuses). It must have been in force at most as long ago as a reset may go
    /// unnoticed.
    pub const fn know_relief(&mut self, number: Option<u64>) {
        if self.is_operated {
            self.relieved = number;
        }
    }

    /// The same where a cost may be settled. Then no rule that names one is trusted for more than
    /// [`FRESH`].
    #[must_use]
    pub fn settled(self) -> Self {
        Self { settles: true, ..self }
    }

    /// The same where nodes lease. Then no entry of a policy with a fleet rule is trusted for more
    /// than [`FRESH`], because units that nodes do not spend, or get back, may become available
    /// again.
    #[must_use]
    pub fn leased(self) -> Self {
        Self { leases: true, ..self }
    }

    /// The same where the charge of a client that left before its response is refunded. Then
    /// nothing is trusted for more than [`FRESH`], because any charge may be one of these.
    #[must_use]
    pub fn refunded(self) -> Self {
        Self { refunds: true, ..self }
    }

    /// How many requests were denied without a request to the store, since the start.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// True when the memory is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// True when the remembered counts deny the request for good. Then its [outcome](Plan::outcome)
    /// is the response, and contains nothing about rules that were not checked. False when nothing
    /// is decided: send the request to the store. A request that reports used units is always sent,
    /// because they are recorded whatever the decision is. `now` is this process's clock.
    pub fn refuses(&mut self, policy: &Policy, plan: &mut Plan, now: Timestamp) -> bool {
        (plan.asked_under, plan.suspect) = (self.relieved, None);
        if self.is_empty() || plan.reports() {
            return false;
        }
        let recalled = self.recall(policy, plan, now);
        self.conclude(policy, plan, recalled)
    }

    /// Uses the remembered counts as the decision, if they deny for good.
    pub(crate) fn conclude(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        recalled: Recalled,
    ) -> bool {
        if recalled == Recalled::Refused {
            plan.take_for_decided();
            if matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. }) {
                self.refused = self.refused.saturating_add(1);
                return true;
            }
        }
        plan.forget_decisions(policy);
        false
    }

    /// Records the reply of the store of partition `i`. `received_at` is this process's time at or
    /// before the reply.
    pub fn record_reply(&mut self, policy: &Policy, plan: &Plan, i: usize, received_at: Timestamp) {
        let Some(partition) = plan.partition(i).filter(|p| p.stored.status.is_decided()) else {
            return;
        };
        // A request in flight ends at any time, and no reply shows when.
        for applied in partition.rules().filter(|applied| applied.due != Due::InFlight) {
            let Some(set) = policy.applied_set(applied) else { continue };
            let Some(states) = partition.states_of(set) else { continue };
            let at = partition.stored.at;
            let hash = hash(self.seed, policy, set, partition.key());
            // A response that a later one overtook contains less. One that is far behind comes from
            // a clock that was set back.
            let overtakes = |known: &mut Entry| {
                known.at > at && known.at.since(at) <= FRESH && known.received_at <= received_at
            };
            if self.table.find(hash).is_some_and(overtakes) {
                continue;
            }
            let is_used_up = partition.uses_up(policy, applied);
            let is_final = is_used_up
                && !self.refunds
                && is_final(policy, set)
                && !(self.settles && can_be_settled(policy, set))
                && (!self.leases || policy.fleet().is_empty())
                // A block can be ended by the operator that set it, and a tenant gets back its
                // earlier quotas.
                && (if self.is_operated { policy.tenants().is_none() } else { applied.blocked_until().is_none() });
            // The response may not include units that were given back while the request was under
            // way.
            let final_under =
                self.relieved.filter(|_| is_final && plan.asked_under == self.relieved);
            let blocked_until = applied.blocked_until();
            let blocked = blocked_until.map_or(Span::ZERO, |until| until.since(at));
            let wait = refused_for(set, states, at, applied.cost).max(blocked);
            let is_final = final_under.is_some();
            let longest = FRESH.saturating_add(self.patience);
            let over_at =
                received_at.saturating_add(if is_final { wait } else { wait.min(longest) });
            let states = states.into();
            self.table.put(
                Entry {
                    hash,
                    states,
                    at,
                    received_at,
                    over_at,
                    asked_at: None,
                    final_under,
                    is_used_up,
                    hits: 0,
                    blocked_until,
                },
                received_at,
            );
        }
    }

    /// Ends a decided request: forgets the entries that its responses did not confirm. A charge
    /// made before the request was sent is kept where the store charged it, and dropped otherwise.
    /// Where no request was sent to the store, or it did not respond, the entry is kept and the
    /// next request is sent.
    pub fn close(&mut self, policy: &Policy, plan: &Plan) {
        if self.is_empty() {
            return;
        }
        for partition in plan.partitions() {
            for applied in partition.rules() {
                let Some(set) = policy.applied_set(applied) else { continue };
                if partition.stored.status.is_decided() && partition.states_of(set).is_some() {
                    continue;
                }
                let hash = hash(self.seed, policy, set, partition.key());
                let is_charged = applied.charged.is_some();
                let is_unanswered =
                    partition.is_silent() || partition.stored.status == Status::Pending;
                let is_unanswered = is_unanswered && self.patience > Span::ZERO;
                let stands = |entry: &mut Entry| {
                    entry.asked_at = None;
                    if partition.is_silent() {
                        // It was charged ahead of a request that the store may not have charged.
                        entry.final_under = None;
                    }
                    is_unanswered || (entry.is_used_up && is_charged)
                };
                if !self.table.find(hash).is_none_or(stands) {
                    self.table.remove(hash);
                }
            }
        }
    }

    /// Reads every remembered count of the request. If one denies, the plan contains the decisions
    /// of these counts and knows which rules were not checked. Otherwise the request is
    /// charged to each remembered count.
    fn recall(&mut self, policy: &Policy, plan: &mut Plan, now: Timestamp) -> Recalled {
        let is_refused_anyway = plan.is_refused_without_quota(policy);
        let mut belief = Belief { now, beyond: Span::ZERO, of: Counts::All };
        let (mut recalled, is_some_stale) = self.look(policy, plan, belief);
        // A shard that is empty leases more units when it receives a request, so every request is
        // sent.
        let shards = |group: &Group| group.spec.shards.is_some();
        let has_shards =
            plan.partitions().any(|it| policy.groups.get(it.group()).is_some_and(shards));
        if recalled != Recalled::Refused && is_some_stale && !has_shards {
            belief.beyond = self.patience;
            recalled = self.look(policy, plan, belief).0;
            if recalled == Recalled::Refused {
                if self.is_first_to_ask(policy, plan, now) {
                    return Recalled::Nothing;
                }
            } else if self.look(policy, plan, Belief { beyond: Span::MAX, ..belief }).0
                == Recalled::Refused
            {
                // Too old to deny the request, but its count is still the first one to be asked.
                plan.suspect = self.latest_denial(policy, plan);
                return Recalled::Nothing;
            }
        }
        match recalled {
            // Only the store can start it; one request asks.
            Recalled::Refused if self.asks_for_penalty(policy, plan, now) => {
                return Recalled::Nothing;
            }
            Recalled::Refused => self.leave(policy, plan, belief),
            Recalled::Admitted if !is_refused_anyway => {
                self.each_remembered(policy, plan, belief, |counted, (at, _), applied| {
                    let is_due = applied.is_charged_now();
                    if is_due && counted.decisions.iter().all(Decision::is_admitted) {
                        counted.charge(at, applied.cost);
                    }
                });
            }
            Recalled::Admitted | Recalled::Nothing => {}
        }
        recalled
    }

    /// Fills in the decision of every trusted count; and returns whether others are too old.
    pub(crate) fn look(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        belief: Belief,
    ) -> (Recalled, bool) {
        let mut recalled = Recalled::Nothing;
        let each = |counted: &mut Counted<'_, CompiledQuota>,
                    (at, blocked_until): (Timestamp, Option<Timestamp>),
                    applied: &AppliedRule| {
            let longest = policy.rules.get(usize::from(applied.rule)).and_then(Rule::longest_wait);
            counted.look(at, applied.cost, longest);
            if let Some(until) = blocked_until {
                block(counted.decisions, until.since(at));
            }
            let denies = !counted.decisions.iter().all(Decision::is_admitted);
            recalled = recalled.max(if denies && applied.is_binding() {
                Recalled::Refused
            } else {
                Recalled::Admitted
            });
        };
        let is_some_stale = self.each_remembered(policy, plan, belief, each);
        (recalled, is_some_stale)
    }

    /// Reports what these counts have left, without the request.
    pub(crate) fn leave(&mut self, policy: &Policy, plan: &mut Plan, belief: Belief) {
        self.each_remembered(policy, plan, belief, |counted, (at, _), _| counted.leave(at));
    }

    /// Calls `each` with the quotas of every rule whose count is remembered, with the present time
    /// of its store, the end of its block, and the rule. Marks the other rules as not checked. True
    /// when a remembered count is no longer trusted.
    fn each_remembered(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        Belief { now, beyond, of }: Belief,
        mut each: impl FnMut(
            &mut Counted<'_, CompiledQuota>,
            (Timestamp, Option<Timestamp>),
            &AppliedRule,
        ),
    ) -> bool {
        let mut is_some_stale = false;
        let Plan { applied, partitions, decisions, .. } = plan;
        for applied in applied {
            let Some((stored, keys)) = applied.partition().and_then(|i| partitions.get_mut(i))
            else {
                continue;
            };
            let is_asked_about = match of {
                Counts::All => true,
                Counts::Silent => stored.status == Status::Failed(Failure::Unreachable),
            };
            let set = policy.applied_set(applied).filter(|_| is_asked_about);
            let remembered = set.and_then(|set| {
                let entry =
                    self.table.find(hash(self.seed, policy, set, stored.key_among(keys)))?;
                if !is_believed(entry, self.relieved, now, beyond) {
                    is_some_stale |= is_believed(entry, self.relieved, now, Span::MAX);
                    return None;
                }
                entry.hits = entry.hits.saturating_add(1);
                let first = applied.first_decision;
                let decisions = decisions.get_mut(first..first.checked_add(set.quotas.len())?)?;
                let at = entry.at_of_store(now);
                stored.at = at;
                let states = &mut *entry.states;
                let blocked_until = entry.blocked_until.filter(|until| *until > at);
                let mut counted = Counted { quotas: &set.quotas, states, decisions };
                each(&mut counted, (at, blocked_until), applied);
                Some(blocked_until)
            });
            applied.basis = match remembered {
                None => Basis::Unasked,
                Some(None) => Basis::Count,
                Some(Some(until)) => Basis::Block(until),
            };
        }
        is_some_stale
    }
}

/// The remembered state of a request's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recalled {
    Nothing,
    /// Some counts are remembered, and none of them denies.
    Admitted,
    Refused,
}

/// The position of one count. A key begins with its group's identity, and a set's identity contains
/// the parameters of its quotas. Whether units can come back depends on the whole policy.
pub(crate) fn hash(seed: [u8; 16], policy: &Policy, set: &QuotaSet, key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&seed);
    hasher.write_u64(policy.fingerprint);
    // The same policy may come back after another one under which units came back.
    hasher.write_u64(policy.version);
    hasher.write_u32(set.record_id);
    hasher.write(key);
    hasher.finish()
}
