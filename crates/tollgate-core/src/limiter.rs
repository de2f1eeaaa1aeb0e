//! One enum over the algorithms, working on bytes that any store can hold.
//!
//! Invariant: `check` writes the state only when it admits a cost above zero; a denial and a peek
//! leave every byte as it was. Dispatch is a `match`: the set of algorithms is closed.

use crate::algorithms::gcra::{Gcra, GcraState};
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::Encoded;
use crate::quota::{Algorithm, Quota, QuotaError};
use crate::time::{Span, Timestamp};

/// The compiled parameters of one quota: what decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// See [`Algorithm::Gcra`].
    Gcra(Gcra),
}

impl Limiter {
    /// The limiter that holds `quota` by `algorithm`.
    ///
    /// # Errors
    /// A quota that this algorithm cannot hold.
    pub const fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, QuotaError> {
        match algorithm {
            Algorithm::Gcra => match Gcra::new(quota) {
                Ok(gcra) => Ok(Self::Gcra(gcra)),
                Err(error) => Err(error),
            },
            _ => Err(QuotaError::NoBurst), // the other algorithms follow
        }
    }

    /// Bytes of one state: 8 for GCRA, up to 8,200 for a log of 1024.
    #[must_use]
    pub const fn state_len(&self) -> usize {
        match self {
            Self::Gcra(_) => GcraState::LEN,
        }
    }

    /// Decides on `cost` quota units at `now` and, when admitted, records them in `state`.
    ///
    /// `state` is [`Limiter::state_len`] bytes, all zero when never seen. Bytes of another length are no state of
    /// this limiter: the cost is denied, with no `retry_after`. A cost of 0 is always admitted and
    /// changes nothing. Never fails.
    pub fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        if state.len() != self.state_len() {
            return self.not_a_state();
        }
        match self {
            Self::Gcra(gcra) => step(state, |s| gcra.check(s, now, cost)),
        }
    }

    /// What [`Limiter::check`] would answer, without recording anything.
    #[must_use]
    pub fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        if state.len() != self.state_len() {
            return self.not_a_state();
        }
        match self {
            Self::Gcra(gcra) => gcra.check(GcraState::decode(state), now, cost).0,
        }
    }

    /// Takes `charge` back at `now`: the roll-back of layered limits, or the settling of a cost known only
    /// afterwards. At the time of the charge it undoes it exactly; later it gives back at most what
    /// was charged, and never so much that a window exceeds the quota's bound.
    pub fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        if state.len() != self.state_len() {
            return;
        }
        match self {
            Self::Gcra(gcra) => gcra.refund(GcraState::decode(state), charge, now).encode(state),
        }
    }

    /// The time from which `state` decides like a state never seen: a store may forget it then,
    /// without loss.
    #[must_use]
    pub fn idle_at(&self, state: &[u8]) -> Timestamp {
        match self {
            Self::Gcra(gcra) => gcra.idle_at(GcraState::decode(state)),
        }
    }

    /// The quota's limit, in quota units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match self {
            Self::Gcra(gcra) => gcra.limit(),
        }
    }

    const fn not_a_state(&self) -> Decision {
        Decision {
            verdict: Verdict::Deny,
            limit: self.limit(),
            remaining: 0,
            retry_after: None,
            reset_after: Span::ZERO,
        }
    }
}

/// Decodes, decides, and encodes the next state if it was admitted.
fn step<S: Encoded>(bytes: &mut [u8], check: impl FnOnce(S) -> (Decision, S)) -> Decision {
    let (decision, next) = check(S::decode(bytes));
    if decision.is_admitted() {
        next.encode(bytes);
    }
    decision
}
