//! Refusing a plan by what was told of earlier ones.
//!
//! Invariant: a count is looked at as of the time that its store's clock showed when it told it,
//! and what has passed here since: never ahead of that clock, and behind it by no more than the way
//! of the answer. A request that may pass is charged to what is remembered before it is sent, so of
//! a flood only as many are sent as units came back, however long their answers take; an answer
//! that does not bear this out is forgotten or replaced. Of the requests that come when a denial is
//! no longer believed one asks, and the others are denied by it as before, for no longer than the
//! store may take to answer: a flood never falls upon the store at once.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;
use tollgate_core::{Decision, Span, Timestamp};

use crate::answer::outcome::Answer;
use crate::denials::table::{Entry, Table};
use crate::denials::trust::{Belief, Counts, FRESH, can_be_settled, is_final};
use crate::pipeline::partitions::{Failure, Status};
use crate::pipeline::plan::{AppliedRule, Plan};
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use tollgate_storage::{Counted, block};

/// What one isolate or process was told is used up; a bounded number of counts.
#[derive(Debug)]
pub struct Denials {
    pub(crate) seed: [u8; 16],
    is_operated: bool,
    /// When an operator last gave back to any key, as far as it is known now.
    pub(crate) relieved: Option<u64>,
    settles: bool,
    leases: bool,
    /// How long the store may take to answer.
    pub(crate) patience: Span,
    pub(crate) table: Table,
    refused: u64,
}

impl Denials {
    /// Nothing is remembered. `seed` is random and secret: whoever knows it could choose keys that
    /// push others out.
    #[must_use]
    pub fn new(seed: [u8; 16]) -> Self {
        let (is_operated, relieved) = (false, Some(0));
        let (settles, leases, patience) = (false, false, Span::ZERO);
        let (table, refused) = (Table::default(), 0);
        Self { seed, is_operated, relieved, settles, leases, patience, table, refused }
    }

    /// The same where the store may take this time to answer: for at most as long beyond [`FRESH`]
    /// a denial is kept while one request asks. With none, the default, all ask.
    #[must_use]
    pub fn patient(self, patience: Span) -> Self {
        Self { patience, ..self }
    }

    /// The same where an operator may reset a key or end a block: then nothing is believed for more
    /// than [`FRESH`] but while it is [known](Self::know_relief) that none was.
    #[must_use]
    pub fn operated(self) -> Self {
        Self { is_operated: true, relieved: None, ..self }
    }

    /// Where an operator may: the number of the last reset, block or end of a block of any key, if
    /// it is known at present. What was heard under another number, or none, is believed for
    /// [`FRESH`] and no longer. It must be known before a request is [asked about](Self::refuses),
    /// and be one that was in force at most as long ago as a reset may go unnoticed.
    pub const fn know_relief(&mut self, number: Option<u64>) {
        if self.is_operated {
            self.relieved = number;
        }
    }

    /// The same where a cost may be settled: then no rule that names one is believed for more than
    /// [`FRESH`].
    #[must_use]
    pub fn settled(self) -> Self {
        Self { settles: true, ..self }
    }

    /// The same where nodes lease: then nothing is believed for more than [`FRESH`] of a policy
    /// that has a rule of the fleet. What nodes do not spend, or are given back, may be had again.
    #[must_use]
    pub fn leased(self) -> Self {
        Self { leases: true, ..self }
    }

    /// How many requests were refused without asking, since the start.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// True when nothing is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// How many counts are remembered, and how many had to leave for others before their time.
    #[must_use]
    pub const fn held_and_evicted(&self) -> (usize, u64) {
        (self.table.len(), self.table.evicted)
    }

    /// True when what is remembered refuses the request for good: then its
    /// [outcome](Plan::outcome) is the answer, which says nothing of rules that it was not asked
    /// about. False: nothing is decided, ask. `now` is the clock of whoever remembers.
    pub fn refuses(&mut self, policy: &Policy, plan: &mut Plan, now: Timestamp) -> bool {
        (plan.asked_under, plan.suspect) = (self.relieved, None);
        if self.is_empty() {
            return false;
        }
        let recalled = self.recall(policy, plan, now);
        self.conclude(policy, plan, recalled)
    }

    /// Takes what is remembered for the decision, if it refuses for good.
    pub(crate) fn conclude(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        recalled: Recalled,
    ) -> bool {
        if recalled == Recalled::Refused {
            plan.take_for_decided();
            if matches!(plan.outcome(policy).answer(), Answer::Refuse { .. }) {
                self.refused = self.refused.saturating_add(1);
                return true;
            }
        }
        plan.forget_decisions(policy);
        false
    }

    /// Takes note of what the store of partition `i` answered; `heard_at` is our clock when it did,
    /// or before.
    pub fn hear(&mut self, policy: &Policy, plan: &Plan, i: usize, heard_at: Timestamp) {
        let Some(partition) = plan.partition(i).filter(|p| p.stored.status.is_decided()) else {
            return;
        };
        for applied in partition.rules() {
            let Some(set) = policy.applied_set(applied) else { continue };
            let Some(states) = partition.told(set) else { continue };
            let at = partition.stored.at;
            let hash = hash(self.seed, policy, set, partition.key());
            // An answer that was overtaken says less. One that is far behind is of a clock that was
            // set back.
            let overtakes = |known: &mut Entry| {
                known.at > at && known.at.since(at) <= FRESH && known.heard_at <= heard_at
            };
            if self.table.find(hash).is_some_and(overtakes) {
                continue;
            }
            let is_used_up = partition.uses_up(policy, applied);
            let is_final = is_used_up
                && is_final(policy, set)
                && !(self.settles && can_be_settled(policy, set))
                && !(self.leases && policy.has_fleet())
                // A block can be ended by whoever made it, and a tenant gets back quotas that it
                // had before.
                && (if self.is_operated { !policy.has_tenants() } else { applied.blocked_until.is_none() });
            // What was given back while it was asked may not be in the answer.
            let final_under =
                self.relieved.filter(|_| is_final && plan.asked_under == self.relieved);
            let blocked_until = applied.blocked_until;
            let blocked = blocked_until.map_or(Span::ZERO, |until| until.since(at));
            let wait = refused_for(set, states, at, applied.cost).max(blocked);
            let is_final = final_under.is_some();
            let longest = FRESH.saturating_add(self.patience);
            let over_at = heard_at.saturating_add(if is_final { wait } else { wait.min(longest) });
            let states = states.into();
            self.table.put(
                Entry {
                    hash,
                    states,
                    at,
                    heard_at,
                    over_at,
                    asked_at: None,
                    final_under,
                    is_used_up,
                    hits: 0,
                    blocked_until,
                },
                heard_at,
            );
        }
    }

    /// The request is decided: forgets what its answers did not bear out. What was charged before
    /// it was sent stands where it was charged, and else it does not. Where the store was not asked
    /// or did not answer, what is remembered stands, and the next request asks.
    pub fn close(&mut self, policy: &Policy, plan: &Plan) {
        if self.is_empty() {
            return;
        }
        for partition in plan.partitions() {
            for applied in partition.rules() {
                let Some(set) = policy.applied_set(applied) else { continue };
                if partition.stored.status.is_decided() && partition.told(set).is_some() {
                    continue;
                }
                let hash = hash(self.seed, policy, set, partition.key());
                let is_charged = applied.charged.is_some();
                let is_unheard =
                    partition.is_silent() || partition.stored.status == Status::Pending;
                let is_unheard = is_unheard && self.patience > Span::ZERO;
                let stands = |entry: &mut Entry| {
                    entry.asked_at = None;
                    is_unheard || (entry.is_used_up && is_charged)
                };
                if !self.table.find(hash).is_none_or(stands) {
                    self.table.remove(hash);
                }
            }
        }
    }

    /// Looks at every count of the request that is remembered. Where one refuses, the plan has the
    /// decisions of these and knows which rules were not asked; else they are charged, each where
    /// it is remembered.
    fn recall(&mut self, policy: &Policy, plan: &mut Plan, now: Timestamp) -> Recalled {
        let is_refused_anyway = plan.is_refused_without_quota(policy);
        let mut belief = Belief { now, beyond: Span::ZERO, of: Counts::All };
        let (mut recalled, is_some_stale) = self.look(policy, plan, belief);
        // A shard that has nothing left leases more when it is asked, so all ask.
        let shards = |group: &Group| group.shards.is_some();
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
                // Too old to deny it, and still the first to be asked.
                plan.suspect = self.latest_denial(policy, plan);
                return Recalled::Nothing;
            }
        }
        match recalled {
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

    /// Fills the decisions of every count that is believed; and whether there are others that are
    /// too old.
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
            recalled = recalled.max(if denies && applied.binding {
                Recalled::Refused
            } else {
                Recalled::Admitted
            });
        };
        let is_some_stale = self.each_remembered(policy, plan, belief, each);
        (recalled, is_some_stale)
    }

    /// Says what these counts have left without the request.
    pub(crate) fn leave(&mut self, policy: &Policy, plan: &mut Plan, belief: Belief) {
        self.each_remembered(policy, plan, belief, |counted, (at, _), _| counted.leave(at));
    }

    /// Calls `each` with the quotas of every rule whose count is remembered, the time of its store
    /// now and until when it is blocked, and the rule, and marks the other rules as not asked. True
    /// when something is remembered that is not believed any more.
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
            let Some((stored, keys)) = applied.partition.and_then(|i| partitions.get_mut(i)) else {
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
            applied.is_unasked = remembered.is_none();
            applied.blocked_until = remembered.flatten();
        }
        is_some_stale
    }
}

/// What is known of a request's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recalled {
    Nothing,
    /// Some, and none of them refuses.
    Admitted,
    Refused,
}

/// The place of one count. A key begins with its group's identity, and a set's identity holds the
/// parameters of its quotas; whether something can come back is the whole policy's.
pub(crate) fn hash(seed: [u8; 16], policy: &Policy, set: &QuotaSet, key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&seed);
    hasher.write_u64(policy.fingerprint);
    // The same policy again, after another one in which units came back.
    hasher.write_u64(policy.version);
    hasher.write_u32(set.record_id);
    hasher.write(key);
    hasher.finish()
}

/// True while `entry` is believed: for `beyond` after [`FRESH`]. A clock that was set back shows
/// nothing of its age.
pub(crate) fn is_believed(
    entry: &Entry,
    relieved: Option<u64>,
    now: Timestamp,
    beyond: Span,
) -> bool {
    let is_final = entry.final_under.is_some() && entry.final_under == relieved;
    let age = now.checked_since(entry.heard_at);
    age.is_some_and(|age| is_final || age <= FRESH.saturating_add(beyond))
}

/// For how long `cost` is refused by these states at `at`; zero where it never fits, for that is
/// nothing to keep long.
fn refused_for(set: &QuotaSet, states: &[u8], at: Timestamp, cost: u64) -> Span {
    let wait =
        |quota: &CompiledQuota| quota.limiter.peek(quota.state(states)?, at, cost).retry_after;
    set.quotas.iter().filter_map(wait).max().unwrap_or(Span::ZERO)
}
