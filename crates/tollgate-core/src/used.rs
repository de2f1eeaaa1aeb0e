//! The used share of a quota, by which a store compares keys.
//!
//! Invariant: one formula for all algorithms, rounded up. Deliberately not here: which key a store
//! forgets.

use crate::limiter::Limiter;
use crate::time::Timestamp;

/// A whole quota, in the parts that [`Limiter::used`] counts.
pub const FULLY_USED: u32 = 65_536;

impl Limiter {
    /// The share of the quota that `state` has used at `now`, in parts of [`FULLY_USED`], rounded
    /// up: `ceil((capacity - remaining) x 65,536 / capacity)`, where `remaining` is the number that
    /// a decision at `now` would report. 0 is "decides like never seen", 1 the least that counts,
    /// and 65,536 means that not even one more unit is allowed. Limit 10, 3 used: 19,661.
    ///
    /// One formula for all algorithms, because each defines its remaining units; the used units are
    ///
    /// | algorithm | units used at `now` |
    /// |---|---|
    /// | `gcra`, `leaky-bucket` | `ceil(debt / T)`, at most the burst |
    /// | `token-bucket` | the tokens missing from a full bucket |
    /// | `leaky-queue` | the slots taken, of `burst` |
    /// | `fixed-window`, also by a calendar | the units of this window |
    /// | `sliding-window` | the estimate, rounded as for decisions |
    /// | `sliding-buckets`, `sliding-log` | the units that have not left; weighted, the estimate |
    ///
    /// It never falls by a charge and never grows by time alone, so a store that must forget a key
    /// forgets the one that used least. 0 for bytes that are not a state of this limiter: there is
    /// nothing to lose.
    #[must_use]
    pub fn used(&self, state: &[u8], now: Timestamp) -> u32 {
        if state.len() != self.state_len() {
            return 0;
        }
        let capacity = self.capacity();
        let used = capacity.saturating_sub(self.peek(state, now, 0).remaining);
        parts(used, capacity)
    }
}

/// ceil(used x 65,536 / capacity), at most 65,536; widened only where 64 bits would overflow. 0
/// when `capacity` is 0, which no quota's is.
fn parts(used: u64, capacity: u64) -> u32 {
    let parts = match used.checked_mul(u64::from(FULLY_USED)) {
        Some(product) if capacity > 0 => product.div_ceil(capacity),
        Some(_) => 0,
        None => {
            let product = u128::from(used).saturating_mul(u128::from(FULLY_USED));
            // More than 2^48 are used, so the capacity is not 0.
            let parts = product.div_ceil(u128::from(capacity.max(1)));
            u64::try_from(parts).unwrap_or(u64::MAX)
        }
    };
    u32::try_from(parts).unwrap_or(FULLY_USED).min(FULLY_USED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_up_and_never_overflow() {
        for (used, capacity, expected) in [
            (0, 10, 0),
            (1, 1_000_000, 1),
            (3, 10, 19_661),
            (5, 10, 32_768),
            (10, 10, FULLY_USED),
            (1 << 47, u64::MAX, 1),
            (1 << 48, u64::MAX, 2),
            (u64::MAX / 2, u64::MAX, 32_768),
            (u64::MAX - 1, u64::MAX, FULLY_USED),
            (u64::MAX, u64::MAX, FULLY_USED),
            (7, 0, 0),
        ] {
            assert_eq!(parts(used, capacity), expected, "{used} of {capacity}");
        }
    }
}
