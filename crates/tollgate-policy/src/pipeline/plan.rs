//! One request on its way: which rules apply, what they cost, and what was loaded.
//!
//! Invariant: a plan holds no reference to the request, so a surface may keep it across I/O; it is
//! reused from request to request and allocates nothing once its buffers have grown. How it is
//! filled is in `apply`, how it is decided in `decide`.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::http::malformed::Malformed;
use crate::pipeline::key_hashes::{KeyHashes, pk};
use crate::policy::compiled::Policy;
use crate::policy::quota::Meter;
use crate::policy::record;
use crate::policy::settings::Response;
use crate::request::lazy::Buffers;
use crate::stable_hash::stable_hash;

/// Bytes of a buffer that a plan may keep: usual requests fit, and many plans with it are small.
const MAX_KEPT: usize = 4096;

/// Why a stored value could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store did not answer.
    Unreachable,
    /// Every try to commit lost its race.
    Contended,
    /// What was stored is no value of this policy.
    Corrupt,
}

/// Why a request may not wait, and after which time it may be worth coming back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// What is ahead of it cannot be over before its deadline.
    Late(Span),
    /// Too many wait for this key.
    Key(Span),
    /// Too many wait in this worker, or they hold too much.
    Worker(Span),
}

/// The plan of one request; see the crate's documentation for the order of calls.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) applied: Vec<Applied>,
    /// Only the first `used` are this request's; the others keep their buffers.
    pub(crate) partitions: Vec<Partition>,
    pub(crate) used: usize,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) keys: Vec<u8>,
    pub(crate) candidates: Vec<u16>,
    pub(crate) buffers: Buffers,
    /// Why it may not wait, when it would have to.
    pub(crate) turned_away: Option<Full>,
    /// Where an outcome writes the value of a field.
    pub(crate) text: RefCell<String>,
}

/// A rule that applies to the request.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) rule: u16,
    pub(crate) set: u16,
    pub(crate) cost: u64,
    /// `None` when a key part is missing and the rule refuses such requests, or when it is malformed.
    pub(crate) partition: Option<usize>,
    /// Why the rule cannot read the request: nothing is charged, and a binding rule refuses it.
    pub(crate) malformed: Option<Malformed>,
    /// Where its decisions begin, one per quota.
    pub(crate) first_decision: usize,
    /// The rule is enforced for this key; a shadow's word is counted, not heard.
    pub(crate) enforced: bool,
    /// A denial of this rule stops the request: it is enforced, and does more than mark.
    pub(crate) binding: bool,
    pub(crate) due: Due,
    /// This request's cost is in the partition's value, since then.
    pub(crate) charged: Option<Timestamp>,
    /// It would have to wait for this rule and may not.
    pub(crate) turned_away: bool,
}

/// When a rule charges a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// When it is decided.
    Now,
    /// When it is decided; the response may bring it back.
    Held,
    /// When the response is known; until then it is only looked at.
    Later,
    /// Never: what was charged is taken back when it is decided the next time.
    GivenBack,
}

#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) group: u16,
    pub(crate) key: Range<usize>,
    pub(crate) value: Vec<u8>,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    pub(crate) status: Status,
    /// The hashes of a key that was too long to be kept.
    pub(crate) trimmed: Option<KeyHashes>,
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing is loaded.
    #[default]
    Pending,
    /// Loaded, not decided.
    Loaded,
    /// Decided, and some of this request's costs are in the value.
    Charged,
    /// Decided without charging anything.
    Uncharged,
    /// Could not be loaded or committed.
    Failed(Failure),
}

impl Status {
    /// True when there are decisions.
    pub(crate) const fn is_decided(self) -> bool {
        matches!(self, Self::Charged | Self::Uncharged)
    }
}

impl Policy {
    pub(crate) fn meters(&self, applied: &Applied) -> &[Meter] {
        self.sets.get(usize::from(applied.set)).map_or(&[], |set| &set.meters)
    }
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True when no rule applies: the request passes and nothing is added to the response.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty()
    }

    /// How many partitions (stored values) the request is charged to.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// The index into [`Policy::groups`] of partition `i`'s group.
    #[must_use]
    pub fn group(&self, i: usize) -> usize {
        self.live().get(i).map_or(0, |p| usize::from(p.group))
    }

    /// The canonical key of partition `i`. It holds what the client sent: hash it, never store or log it.
    #[must_use]
    pub fn key(&self, i: usize) -> &[u8] {
        self.live().get(i).and_then(|p| self.keys.get(p.key.clone())).unwrap_or_default()
    }

    /// False when partition `i` has nothing to decide, which only [`Plan::settle`] brings about.
    #[must_use]
    pub fn applies(&self, i: usize) -> bool {
        self.applied.iter().any(|applied| applied.partition == Some(i))
    }

    /// Takes the stored value of partition `i`; `None` or zeros were never seen. A value that an
    /// earlier policy wrote is brought into the current layout, record by record.
    pub fn load(&mut self, policy: &Policy, i: usize, stored: Option<&[u8]>) {
        let Some(partition) = self.live_mut(i) else { return };
        let Some(group) = policy.groups.get(usize::from(partition.group)) else { return };
        record::load(policy, group, stored.unwrap_or_default(), &mut partition.value);
        partition.status = Status::Loaded;
    }

    /// Notes that partition `i` could not be loaded or committed: its rules' `on_failure` decides.
    pub fn fail(&mut self, i: usize, failure: Failure) {
        if let Some(partition) = self.live_mut(i) {
            partition.status = Status::Failed(failure);
        }
        // Nothing of it was stored, so nothing may come back.
        let counted = self.applied.iter_mut().filter(|applied| applied.partition == Some(i));
        counted.for_each(|applied| applied.charged = None);
    }

    /// True when partition `i` could not be loaded, decided or committed.
    #[must_use]
    pub fn has_failed(&self, i: usize) -> bool {
        self.live().get(i).is_some_and(|p| matches!(p.status, Status::Failed(_)))
    }

    /// True when the value of partition `i` was charged and must be committed.
    #[must_use]
    pub fn changed(&self, i: usize) -> bool {
        self.live().get(i).is_some_and(|p| p.status == Status::Charged)
    }

    /// The value of partition `i`, to be committed.
    #[must_use]
    pub fn value(&self, i: usize) -> &[u8] {
        self.live().get(i).map_or(&[], |p| &p.value)
    }

    /// The time from which partition `i` may be forgotten without loss.
    #[must_use]
    pub fn idle_at(&self, policy: &Policy, i: usize) -> Timestamp {
        let group = policy.groups.get(self.group(i));
        group.map_or(Timestamp::ZERO, |group| group.idle_at(policy, self.value(i)))
    }

    /// True when a rule that applies charges by the response, or gives back what it holds: keep the plan and
    /// [`Plan::settle`] it then.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.applied.iter().any(|applied| match applied.due {
            Due::Later => true,
            Due::Held => applied.charged.is_some(),
            Due::Now | Due::GivenBack => false,
        })
    }

    /// True when a settled plan has charges of partition `i` to take back: whoever commits it twice admits too many.
    #[must_use]
    pub fn gives_back(&self, i: usize) -> bool {
        let mut counted = self.applied.iter().filter(|applied| applied.partition == Some(i));
        counted.any(|applied| applied.due == Due::GivenBack)
    }

    /// Forgets the request, with the buffers that its length made grow: for a plan that is kept for another one.
    pub fn forget_long(&mut self) {
        self.clear();
        for buffer in self.buffers.all().chain([&mut self.keys]) {
            if buffer.capacity() > MAX_KEPT {
                *buffer = Vec::new();
            }
        }
    }

    /// The hash of partition `i`'s key that clients are told as `pk`.
    pub(crate) fn pk(&self, response: &Response, i: usize) -> u64 {
        self.trimmed(i).map_or_else(|| pk(self.key(i), response), |hashes| hashes.pk)
    }

    /// The hash of partition `i`'s key that its jitter is chosen by.
    pub(crate) fn jitter_hash(&self, i: usize) -> u64 {
        self.trimmed(i).map_or_else(|| stable_hash(&[self.key(i)]), |hashes| hashes.jitter)
    }

    fn trimmed(&self, i: usize) -> Option<KeyHashes> {
        self.live().get(i).and_then(|partition| partition.trimmed)
    }

    pub(crate) fn live(&self) -> &[Partition] {
        self.partitions.get(..self.used).unwrap_or_default()
    }

    pub(crate) fn live_mut(&mut self, i: usize) -> Option<&mut Partition> {
        self.partitions.get_mut(..self.used)?.get_mut(i)
    }

    /// Partition `i` with the rules and decisions of the whole plan.
    pub(crate) fn with_partition(
        &mut self,
        i: usize,
        act: impl FnOnce(&mut [Applied], &mut Partition, &mut [Decision]),
    ) {
        let Self { applied, partitions, used, decisions, .. } = self;
        if let Some(partition) = partitions.get_mut(..*used).and_then(|live| live.get_mut(i)) {
            act(applied, partition, decisions);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.applied.clear();
        self.turned_away = None;
        self.used = 0;
        self.decisions.clear();
        self.keys.clear();
    }

    /// The partition of `group` whose key was just written from `start`: an earlier rule's if it has
    /// the same key, which is then taken back.
    pub(crate) fn partition(&mut self, group: u16, start: usize) -> usize {
        let known = self.live().iter().position(|p| {
            p.group == group && self.keys.get(p.key.clone()) == self.keys.get(start..)
        });
        if let Some(i) = known {
            self.keys.truncate(start);
            return i;
        }
        let end = self.keys.len();
        self.add_partition(group, start..end)
    }

    pub(crate) fn add_partition(&mut self, group: u16, key: Range<usize>) -> usize {
        let i = self.used;
        if self.partitions.len() == i {
            self.partitions.push(Partition::default());
        }
        if let Some(partition) = self.partitions.get_mut(i) {
            partition.group = group;
            partition.key = key;
            partition.status = Status::Pending;
            partition.trimmed = None;
        }
        self.used = i.saturating_add(1);
        i
    }

    /// Forgets every rule but those that cannot read the request, when one of them refuses it: it is refused
    /// before anything is loaded, and no store is asked for what is known.
    pub(crate) fn keep_malformed(&mut self) {
        let refuses = |applied: &Applied| applied.binding && applied.malformed.is_some();
        if self.applied.iter().any(refuses) {
            self.applied.retain(|applied| applied.malformed.is_some());
            self.used = 0;
            self.keys.clear();
        }
    }

    /// Makes room for one decision per quota of every applied rule.
    pub(crate) fn reserve_decisions(&mut self, policy: &Policy) {
        const NOT_YET: Decision = Decision {
            verdict: Verdict::Allow,
            limit: 0,
            remaining: 0,
            retry_after: None,
            reset_after: Span::ZERO,
        };
        let mut count = 0_usize;
        for applied in &mut self.applied {
            applied.first_decision = count;
            count = count.saturating_add(policy.meters(applied).len());
        }
        self.decisions.clear();
        self.decisions.resize(count, NOT_YET);
    }
}

/// True when a quota of the rule denies.
pub(crate) fn denies(applied: &Applied, policy: &Policy, decisions: &[Decision]) -> bool {
    let decisions = decisions.get(applied.first_decision..).unwrap_or_default();
    decisions.iter().take(policy.meters(applied).len()).any(|decision| !decision.is_admitted())
}
