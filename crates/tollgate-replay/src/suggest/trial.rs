//! The second pass: the suggested limits, replayed by the rule's own algorithm.
//!
//! Who exceeds a limit in some window is not yet refused by every algorithm: one with a burst
//! lets it pass on top of its rate. And who never exceeds it is still refused by some: those that
//! estimate, or count more than a window. So beside each limit that was counted lower and higher
//! ones are tried in the same pass, from its half to its double, and the lowest is suggested of
//! which neither it nor any higher one touches more clients than wished. The double always is one:
//! no algorithm counts more than two windows. The log alone is exact, and tries nothing else.
//!
//! Invariant: what is said to be touched is a key that the limiter of the core denied once. A key
//! is only left out where its greatest count proves that it cannot be ([`spared`]).
//!
//! Deliberately not here: other rules and quotas. Each quota is tried by itself, as if nobody else
//! refused anything, so that nobody is spared by a limit that may change.

use std::collections::HashMap;

use tollgate_core::{Algorithm, Limiter, QuotaError, Span, Timestamp, Verdict};

use super::counts::Counts;
use super::line::at_limit;

/// What one limit is multiplied by, in sixteenths.
const LADDER: [u64; 14] = [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 24, 32];

/// One limit that is tried.
#[derive(Debug)]
struct Candidate {
    limiter: Limiter,
    /// Keys whose greatest count is at most this are never denied.
    spared: u64,
    /// Where its states end behind those of the lower limits.
    end: usize,
    /// Keys that it denied at least once.
    denied: u64,
    /// Requests that it denied.
    requests: u64,
}

/// One key that may be denied.
#[derive(Debug)]
struct Tried {
    /// A bit for each candidate that denied it.
    denied: u128,
    states: Box<[u8]>,
}

/// The second pass of one quota.
#[derive(Debug)]
pub(super) struct Trial {
    /// By their limits.
    candidates: Vec<Candidate>,
    tried: HashMap<u32, Tried>,
    bytes: usize,
    most_bytes: usize,
    strangers: u64,
}

/// What came out for one wished share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub limiter: Limiter,
    /// Keys that it denied at least once.
    pub denied: u64,
    /// Requests that it denied.
    pub requests: u64,
}

impl Trial {
    /// A trial of these limits and of the higher ones that may be needed instead of them, and of
    /// the limits of a curve.
    pub fn new(
        now: &Limiter,
        limits: impl Iterator<Item = u64>,
        curve: &[u64],
        most_bytes: usize,
    ) -> Self {
        let curve = curve.iter().map(|limit| at_limit(now, *limit));
        let limiters = limits.flat_map(|limit| ladder(now, limit)).chain(curve);
        let mut limiters: Vec<Limiter> = limiters.filter_map(Result::ok).collect();
        limiters.sort_by_key(|limiter| limiter.quota().limit());
        limiters.dedup_by_key(|limiter| limiter.quota().limit());
        let mut end = 0_usize;
        let candidates = limiters.into_iter().map(|limiter| {
            end = end.saturating_add(limiter.state_len());
            Candidate { spared: spared(&limiter), limiter, end, denied: 0, requests: 0 }
        });
        Self {
            candidates: candidates.collect(),
            tried: HashMap::new(),
            bytes: 0,
            most_bytes,
            strangers: 0,
        }
    }

    /// One request, as in the first pass.
    pub fn push(&mut self, counts: &Counts, hash: u64, at: Timestamp, cost: u64) {
        if cost == 0 || self.is_left_out() {
            return;
        }
        let Some(i) = counts.find(hash) else {
            self.strangers = self.strangers.saturating_add(u64::from(counts.one_in() == 1));
            return;
        };
        let peak = usize::try_from(i).ok().and_then(|i| counts.keys().get(i));
        let peak = peak.map_or(u64::MAX, |key| key.peak);
        let may_deny = self.candidates.partition_point(|candidate| candidate.spared < peak);
        let Some(candidates) = self.candidates.get_mut(..may_deny) else { return };
        let Some(end) = candidates.last().map(|last| last.end) else { return };
        let tried = self.tried.entry(i).or_insert_with(|| {
            self.bytes = self.bytes.saturating_add(end).saturating_add(OF_A_KEY);
            Tried { denied: 0, states: vec![0; end].into() }
        });
        tried.ask(candidates, at, cost);
        if self.is_left_out() {
            self.tried = HashMap::new();
        }
    }

    /// True when the states would have taken more than they may: nothing is known then.
    pub const fn is_left_out(&self) -> bool {
        self.bytes > self.most_bytes
    }

    /// Requests of keys that the first pass did not have: the log has changed in between.
    pub const fn strangers(&self) -> u64 {
        self.strangers
    }

    /// The lowest limit tried for `limit` from which on every one denies at most `many` keys, else
    /// the highest; `None` when nothing could be tried.
    pub fn outcome(&self, now: &Limiter, limit: u64, many: u64) -> Option<Outcome> {
        if self.is_left_out() {
            return None;
        }
        let rungs = ladder(now, limit).filter_map(Result::ok);
        let outcomes: Vec<Outcome> = rungs.filter_map(|limiter| self.of(limiter)).collect();
        let too_many = outcomes.iter().rposition(|outcome| outcome.denied > many);
        let first = too_many.map_or(0, |at| at.saturating_add(1));
        outcomes.get(first).or(outcomes.last()).copied()
    }

    /// What came of exactly this limit; `None` when it was not tried.
    pub fn at(&self, now: &Limiter, limit: u64) -> Option<Outcome> {
        let limiter = at_limit(now, limit).ok().filter(|_| !self.is_left_out())?;
        self.of(limiter)
    }

    fn of(&self, limiter: Limiter) -> Option<Outcome> {
        let tried = self.candidates.iter().find(|candidate| candidate.limiter == limiter)?;
        Some(Outcome { limiter, denied: tried.denied, requests: tried.requests })
    }
}

/// Bytes of a key in the map beside its states.
const OF_A_KEY: usize = 64;

impl Tried {
    fn ask(&mut self, candidates: &mut [Candidate], at: Timestamp, cost: u64) {
        let (mut from, mut bit) = (0, 1_u128);
        for candidate in candidates {
            let state = self.states.get_mut(from..candidate.end);
            let verdict = state.map(|state| candidate.limiter.admit(state, at, cost).verdict());
            if verdict == Some(Verdict::Deny) {
                candidate.requests = candidate.requests.saturating_add(1);
                candidate.denied = candidate.denied.saturating_add((self.denied & bit == 0).into());
                self.denied |= bit;
            }
            (from, bit) = (candidate.end, bit << 1);
        }
    }
}

/// The limits that are tried in place of one, from it upwards.
pub(super) fn ladder(
    now: &Limiter,
    limit: u64,
) -> impl Iterator<Item = Result<Limiter, QuotaError>> {
    let limit = limit.max(1);
    let is_exact = matches!(now.algorithm(), Algorithm::SlidingLog);
    let mut last = 0;
    LADDER.into_iter().filter(move |sixteenths| !is_exact || *sixteenths == 16).filter_map(
        move |sixteenths| {
            let rung = limit.saturating_mul(sixteenths).div_ceil(16);
            let is_new = rung > last;
            last = rung;
            is_new.then(|| at_limit(now, rung))
        },
    )
}

/// The greatest count of which no key is ever denied.
///
/// Of GCRA and its kin with interval T and burst b, a key with at most P units in any window w has,
/// a time D after it owed nothing, a debt of at most P x T x (D / w + 1) - D, which is at most P x
/// T where P x T <= w; so P <= b and P <= w / T will do. The sliding window and the buckets count
/// at most two windows.
fn spared(limiter: &Limiter) -> u64 {
    let quota = limiter.quota();
    match limiter.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingLog => quota.limit(),
        Algorithm::SlidingWindow | Algorithm::SlidingBuckets { .. } => quota.limit() / 2,
        Algorithm::Gcra
        | Algorithm::TokenBucket
        | Algorithm::LeakyBucket
        | Algorithm::LeakyQueue => {
            let (limit, burst) = (quota.limit(), quota.burst());
            let regained = if quota.is_strict() {
                limit.saturating_sub(burst).saturating_add(1)
            } else {
                limit
            };
            let interval = quota.window().as_nanos().div_ceil(regained.max(1));
            burst.min(Span::div_floor(quota.window(), Span::from_nanos(interval)))
        }
    }
}
