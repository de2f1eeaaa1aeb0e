//! Penalties: a key that was denied stays denied for a fixed time, and longer at each next offence.
//!
//! State: the end of the last penalty, and how many steps were taken. With `longest` the last step:
//!
//! ```text
//! runs(now)     until > now
//! punish(now)   nothing while it runs; else, where until + longest <= now, steps = 0;
//!               then until = now + length[min(steps, last)], steps += 1
//! idle          until + longest
//! ```
//!
//! Denials while it runs do not extend it, so the `retry_after` of each is true, and two processes
//! that deny at the same time take one step. An end further ahead of `now` than a penalty and
//! [`ALLOWED_SKEW`] can have set it is foreign and is none: a clock that was set back, or damage,
//! locks no key out.
//!
//! Source: `bantime.increment` of fail2ban; the steps are a list here, so that a policy shows them.
//!
//! Deliberately not here: the state of the quota next to it, and which denials count.

use crate::decision::{Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{MAX_WINDOW, QuotaError};
use crate::time::{ALLOWED_SKEW, Span, Timestamp};

/// The most steps of a penalty.
pub const MAX_PENALTY_STEPS: usize = 6;

/// The steps of a penalty, valid by construction: 1 to [`MAX_PENALTY_STEPS`] whole seconds, 1 s to
/// [`MAX_WINDOW`], each longer than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Penalty {
    /// Seconds; 0 after the last one.
    seconds: [u32; MAX_PENALTY_STEPS],
}

/// The state of a penalty. All zero: no offence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PenaltyState {
    /// The end of the last penalty.
    pub(crate) until: Timestamp,
    /// The steps taken, since the last one that was forgotten.
    pub(crate) steps: u64,
}

impl Penalty {
    /// The penalty with these steps.
    ///
    /// # Errors
    /// [`QuotaError::Penalty`] for none or too many of them, one that is not a whole number of
    /// seconds from 1 s to [`MAX_WINDOW`], or one that is not longer than the one before.
    pub fn new(steps: &[Span]) -> Result<Self, QuotaError> {
        let mut seconds = [0; MAX_PENALTY_STEPS];
        if steps.is_empty() || steps.len() > MAX_PENALTY_STEPS {
            return Err(QuotaError::Penalty);
        }
        let mut before = Span::ZERO;
        for (slot, step) in seconds.iter_mut().zip(steps) {
            let secs = step.as_secs_floor();
            if *step <= before || *step > MAX_WINDOW || Span::from_secs(secs) != *step {
                return Err(QuotaError::Penalty);
            }
            *slot = u32::try_from(secs).unwrap_or(u32::MAX);
            before = *step;
        }
        Ok(Self { seconds })
    }

    /// The lengths, the first offence's first.
    pub fn steps(&self) -> impl Iterator<Item = Span> {
        self.seconds.iter().filter(|secs| **secs > 0).map(|secs| Span::from_secs(u64::from(*secs)))
    }

    /// The last step, which is the longest.
    #[must_use]
    pub fn longest(&self) -> Span {
        self.steps().last().unwrap_or(Span::ZERO)
    }

    /// The time from which `state` equals none.
    pub(crate) fn idle_at(&self, state: PenaltyState) -> Timestamp {
        match state.until {
            Timestamp::ZERO => Timestamp::ZERO,
            until => until.saturating_add(self.longest()),
        }
    }

    /// `state`, or none for one that is foreign at `now`.
    pub(crate) fn seen(&self, state: PenaltyState, now: Timestamp) -> PenaltyState {
        let latest = now.saturating_add(self.longest()).saturating_add(ALLOWED_SKEW);
        if state.until > latest { PenaltyState::default() } else { state }
    }

    /// The state after an offence at `now`, while none runs.
    pub(crate) fn begun(&self, state: PenaltyState, now: Timestamp) -> PenaltyState {
        let is_forgotten = self.idle_at(state) <= now;
        let taken = if is_forgotten { 0 } else { state.steps };
        let steps = || self.steps().zip(0_u64..);
        let step = steps().find(|(_, place)| *place == taken).map(|(step, _)| step);
        let steps = taken.saturating_add(1);
        PenaltyState { until: now.saturating_add(step.unwrap_or(self.longest())), steps }
    }
}

impl Decision {
    /// The decision on `cost` while a penalty runs for the time `left`. A cost that can never be
    /// allowed still never is.
    pub(crate) fn in_penalty(self, left: Span, cost: u64) -> Self {
        let reset_after = self.reset_after.max(left);
        let penalised = Self { remaining: 0, reset_after, ..self };
        match self.retry_after {
            _ if cost == 0 => penalised,
            None if !self.is_admitted() => penalised,
            wait => {
                let retry_after = Some(wait.unwrap_or(Span::ZERO).max(left));
                Self { verdict: Verdict::Penalty, retry_after, ..penalised }
            }
        }
    }
}

impl Encoded for PenaltyState {
    const LEN: usize = 16;

    fn decode(bytes: &[u8]) -> Self {
        Self { until: Timestamp::from_nanos(read_u64(bytes, 0)), steps: read_u64(bytes, 1) }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.until.as_nanos());
        write_u64(bytes, 1, self.steps);
    }
}
