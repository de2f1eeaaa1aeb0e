//! One step of an algorithm whose state is a few numbers: bytes in, decision and bytes out.
//!
//! Invariant: bytes are written when, and only when, a cost above zero is allowed. An algorithm has
//! two ways to the same decision: a fast one for the usual case, which may decline, and a slow one
//! that decides on any bytes, times and costs. The slow one is the definition.
//!
//! Deliberately not here: the ring of the log and the buckets, which works on its bytes in place.

use crate::decision::{Admission, Decision};
use crate::encoding::Encoded;
use crate::time::Timestamp;

/// An algorithm whose state is a few numbers.
pub(crate) trait Step {
    /// Its memory of a key.
    type State: Encoded;

    /// The quota's limit, for a decision on bytes that are not a state.
    fn limit(&self) -> u64;

    /// The decision, in the usual case: a clock that is not late, a state that such a clock left, a
    /// cost of at least one that can fit. `None` otherwise. Calls `record` with the next state when
    /// allowed.
    #[inline]
    fn check_fast(
        &self,
        _state: Self::State,
        _now: Timestamp,
        _cost: u64,
        _record: impl FnOnce(Self::State),
    ) -> Option<Decision> {
        None
    }

    /// The decision on a cost of 0 in the usual case.
    #[inline]
    fn look_fast(&self, _state: Self::State, _now: Timestamp) -> Option<Decision> {
        None
    }

    /// The decision in every case; the same state when denied or when `cost` is 0.
    fn check_slow(&self, state: Self::State, now: Timestamp, cost: u64) -> (Decision, Self::State);
}

/// Decides and records in the usual case; `None` when it is another case, or the bytes are not a
/// state.
#[inline]
pub(crate) fn check_fast<A: Step>(
    algorithm: &A,
    bytes: &mut [u8],
    now: Timestamp,
    cost: u64,
) -> Option<Decision> {
    if bytes.len() != A::State::LEN {
        return None;
    }
    algorithm.check_fast(A::State::decode(bytes), now, cost, |next| next.encode(bytes))
}

/// As [`check_fast`]. Numbers that a ruling does not contain are not computed: it is inlined, and
/// nothing else uses it.
#[inline]
pub(crate) fn admit_fast<A: Step>(
    algorithm: &A,
    bytes: &mut [u8],
    now: Timestamp,
    cost: u64,
) -> Option<Admission> {
    check_fast(algorithm, bytes, now, cost).map(|decision| Admission::from(&decision))
}

/// The decision that [`check_fast`] would return.
#[inline]
pub(crate) fn peek_fast<A: Step>(
    algorithm: &A,
    bytes: &[u8],
    now: Timestamp,
    cost: u64,
) -> Option<Decision> {
    if bytes.len() != A::State::LEN {
        return None;
    }
    let state = A::State::decode(bytes);
    if cost == 0 {
        algorithm.look_fast(state, now)
    } else {
        algorithm.check_fast(state, now, cost, |_| ())
    }
}

/// Decides and records.
#[inline(never)]
pub(crate) fn check<A: Step>(
    algorithm: &A,
    bytes: &mut [u8],
    now: Timestamp,
    cost: u64,
) -> Decision {
    check_fast(algorithm, bytes, now, cost)
        .unwrap_or_else(|| check_slow(algorithm, bytes, now, cost))
}

/// Decides and records in every case.
#[cold]
#[inline(never)]
pub(crate) fn check_slow<A: Step>(
    algorithm: &A,
    bytes: &mut [u8],
    now: Timestamp,
    cost: u64,
) -> Decision {
    if bytes.len() != A::State::LEN {
        return Decision::of_no_state(algorithm.limit());
    }
    let (decision, next) = algorithm.check_slow(A::State::decode(bytes), now, cost);
    if decision.is_admitted() {
        next.encode(bytes);
    }
    decision
}

/// The decision that [`check`] would return.
#[inline(never)]
pub(crate) fn peek<A: Step>(algorithm: &A, bytes: &[u8], now: Timestamp, cost: u64) -> Decision {
    peek_fast(algorithm, bytes, now, cost).unwrap_or_else(|| peek_slow(algorithm, bytes, now, cost))
}

/// The decision that [`check_slow`] would return.
#[cold]
#[inline(never)]
pub(crate) fn peek_slow<A: Step>(
    algorithm: &A,
    bytes: &[u8],
    now: Timestamp,
    cost: u64,
) -> Decision {
    if bytes.len() != A::State::LEN {
        return Decision::of_no_state(algorithm.limit());
    }
    algorithm.check_slow(A::State::decode(bytes), now, cost).0
}
