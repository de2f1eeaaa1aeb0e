//! The second pass: the suggested limits, replayed by the rule's own algorithm.
//!
//! A client that exceeds a limit in some window is not denied by every algorithm: one with a burst
//! allows it on top of its rate. A client that never exceeds it is still denied by some algorithms:
//! those that estimate, or count more than a window. So for each counted limit the same pass also
//! tries lower and higher ones, from half of it to its double. The suggestion is the lowest limit
//! for which neither it nor any higher one affects more clients than wished. The double always
//! qualifies, because no algorithm counts more than two windows. Only the log is exact, and tries
//! no other limit.
//!
//! Invariant: a key is reported as affected only if the limiter of the core denied it once. A key
//! is only skipped where its greatest count proves that it cannot be denied ([`spared`]).
//!
//! Deliberately not here: other rules and quotas. Each quota is tried alone, as if no other denied
//! anything, so no key escapes because of a limit that may change.

use std::collections::HashMap;

use tollgate_core::{Algorithm, Limiter, QuotaError, Span, Timestamp, Verdict};

use super::counts::Counts;
use super::line::at_limit;

/// The factors that a limit is multiplied by, in sixteenths.
const LADDER: [u64; 14] = [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 24, 32];

/// One limit that is tried.
#[derive(Debug)]
struct Candidate {
    limiter: Limiter,
    /// Keys whose greatest count is at most this are never denied.
    spared: u64,
    /// The end of its states, which follow those of the lower limits.
    end: usize,
    /// Keys that it denied at least once.
    denied: u64,
    /// Requests that it denied.
    requests: u64,
}

/// One key that may be denied.
#[derive(Debug)]
struct TrialState {
    /// A bit for each candidate that denied it.
    denied: u128,
    states: Box<[u8]>,
}

/// The second pass of one quota.
#[derive(Debug)]
pub(super) struct Trial {
    /// Sorted by their limits.
    candidates: Vec<Candidate>,
    tried: HashMap<u32, TrialState>,
    bytes: usize,
    most_bytes: usize,
    strangers: u64,
}

/// The result for one wished share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub limiter: Limiter,
    /// Keys that it denied at least once.
    pub denied: u64,
    /// Requests that it denied.
    pub requests: u64,
}

impl Trial {
    /// A trial of these limits, of the higher ones that may be needed instead, and of the limits of
    /// a curve.
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
            TrialState { denied: 0, states: vec![0; end].into() }
        });
        tried.ask(candidates, at, cost);
        if self.is_left_out() {
            self.tried = HashMap::new();
        }
    }

    /// True when the states would have taken more memory than allowed: then there are no results.
    pub const fn is_left_out(&self) -> bool {
        self.bytes > self.most_bytes
    }

    /// Requests of keys that the first pass did not have: the log has changed in between.
    pub const fn strangers(&self) -> u64 {
        self.strangers
    }

    /// The lowest limit tried for `limit` from which on every one denies at most `many` keys, else
    /// the highest; `None` when no limit could be tried.
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

    /// The result for exactly this limit; `None` when it was not tried.
    pub fn at(&self, now: &Limiter, limit: u64) -> Option<Outcome> {
        let limiter = at_limit(now, limit).ok().filter(|_| !self.is_left_out())?;
        self.of(limiter)
    }

    fn of(&self, limiter: Limiter) -> Option<Outcome> {
        let tried = self.candidates.iter().find(|candidate| candidate.limiter == limiter)?;
        Some(Outcome { limiter, denied: tried.denied, requests: tried.requests })
    }
}

/// Bytes per key in the map, without its states.
const OF_A_KEY: usize = 64;

impl TrialState {
    fn ask(&mut self, candidates: &mut [Candidate], at: Timestamp, cost: u64) {
        let (mut from, mut bit) = (0, 1_u128);
        for candidate in candidates {
            let state = self.states.get_mut(from..candidate.end);
            let verdict = state.map(|state| {
                let verdict = candidate.limiter.admit(state, at, cost).verdict();
                if verdict == Verdict::Deny {
                    candidate.limiter.punish(state, at, cost);
                }
                verdict
            });
            if verdict == Some(Verdict::Deny) {
                candidate.requests = candidate.requests.saturating_add(1);
                candidate.denied = candidate.denied.saturating_add((self.denied & bit == 0).into());
                self.denied |= bit;
            }
            (from, bit) = (candidate.end, bit << 1);
        }
    }
}

/// The limits that are tried in place of one, upwards from it.
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

/// The greatest count with which a key is never denied.
///
/// For GCRA and similar algorithms with interval T and burst b: a key with at most P units in any
/// window w has, a time D after its debt was zero, a debt of at most P x T x (D / w + 1) - D. This
/// is at most P x T where P x T <= w; so P <= b and P <= w / T suffice. The sliding window and the
/// buckets count at most two windows.
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
