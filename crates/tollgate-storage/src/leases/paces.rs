//! The quotas that are paced under overload (`pace`), and their intervals.
//!
//! Invariant: an interval is no longer than the time in which half of the burst grows back.

use tollgate_core::{Algorithm, Limiter, Span};

/// The requests that one lease request should be worth.
pub(crate) const WORTH: u64 = 13;
/// A denial is remembered for at most this time: units leased by other nodes may be given back.
pub(crate) const REMEMBERED_DENIAL: Span = Span::from_secs(1);
/// The burst units per node that intervals need to begin.
pub(crate) const NODE_BURST: u64 = 20;
/// A quota with a smaller burst is not paced: three nodes need this much.
const SMALLEST_BURST: u64 = 3 * NODE_BURST;
/// A shorter interval has no effect: a node checks its holdings about as often.
pub(crate) const SHORTEST: Span = Span::from_millis(4);

/// How often a node may ask for units of a quota set under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paces {
    /// The first interval: the time in which [`WORTH`] units grow back. Zero when every request
    /// asks.
    pub(crate) first: Span,
    /// The time in which half of the burst grows back. In a longer interval the burst would become
    /// full.
    pub(crate) half: Span,
    /// The smallest burst of the set.
    pub(crate) burst: u64,
}

impl Paces {
    /// The paces of a set with these limiters.
    pub fn of<'l>(limiters: impl Iterator<Item = &'l Limiter>) -> Self {
        let (mut first, mut half, mut burst) = (Span::MAX, Span::MAX, u64::MAX);
        for limiter in limiters {
            if !may_be_paced(limiter) {
                return Self::default();
            }
            first = first.min(regrown(limiter, WORTH));
            half = half.min(regrown(limiter, limiter.capacity().div_ceil(2)));
            burst = burst.min(limiter.capacity());
        }
        let half = half.max(SHORTEST);
        Self { first: first.clamp(SHORTEST, half.min(REMEMBERED_DENIAL)), half, burst }
    }

    /// The longest interval.
    pub(crate) fn longest(&self) -> Span {
        self.half.min(REMEMBERED_DENIAL)
    }
}

/// True for the GCRA family, whose units grow back steadily, with a burst that several nodes can
/// share. The units of a window return all at once, and those of a sliding window or log return a
/// window after they are charged: units that are denied between two lease requests, or reported
/// later, would be lost.
pub(crate) const fn may_be_paced(limiter: &Limiter) -> bool {
    let is_steady = matches!(
        limiter.algorithm(),
        Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket
    );
    is_steady && limiter.capacity() >= SMALLEST_BURST
}

/// The time in which this many units grow back.
fn regrown(limiter: &Limiter, units: u64) -> Span {
    let window = u128::from(limiter.window().as_nanos());
    let nanos = window.saturating_mul(units.into()).checked_div(limiter.limit().into());
    Span::from_nanos(nanos.and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(u64::MAX))
}
