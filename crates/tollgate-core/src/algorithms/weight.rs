//! The weight of units of which the window covers only a part.
//!
//! Both sliding counters know how many units an interval had, and not when: they treat them as
//! spread evenly. Invariant: all products are exact, and a weight is rounded once, down or up as
//! the quota is held. Deliberately not here: which interval that is.

use crate::quota::Quota;
use crate::time::Span;

/// The weighing of the units of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// The interval, in nanoseconds.
    interval: u64,
    /// Up, so that no unit is ever given back early.
    rounds_up: bool,
}

impl Weight {
    /// The weight of units in an interval as long as `interval`: rounded up when `quota` is strict.
    #[inline]
    pub(crate) const fn new(interval: Span, quota: &Quota) -> Self {
        Self { interval: interval.as_nanos(), rounds_up: quota.is_strict() }
    }

    /// `units x left / interval`, rounded: the weight of `units` while `left` of the interval is
    /// covered.
    #[inline]
    pub(crate) fn of(self, units: u64, left: Span) -> u64 {
        let rounding = if self.rounds_up { self.interval.saturating_sub(1) } else { 0 };
        mul_add_div(units, left.as_nanos(), rounding, self.interval)
    }

    /// How much of the interval is left when `units` begin to weigh at most `room`, where they are
    /// more: `floor(units x left / interval) <= room` holds up to `left = floor(((room + 1) x
    /// interval - 1) / units)`, `ceil(units x left / interval) <= room` up to `left = floor(room x
    /// interval / units)`.
    #[inline]
    pub(crate) fn at_most(self, units: u64, room: u64) -> Span {
        let more = if self.rounds_up { 0 } else { self.interval.saturating_sub(1) };
        Span::from_nanos(mul_add_div(room, self.interval, more, units).min(self.interval))
    }
}

/// floor((a x b + c) / divisor), at most [`u64::MAX`]; widened only where 64 bits would overflow.
/// 0 when `divisor` is 0.
#[inline]
pub(crate) fn mul_add_div(a: u64, b: u64, c: u64, divisor: u64) -> u64 {
    match a.checked_mul(b).and_then(|product| product.checked_add(c)) {
        Some(sum) => sum.checked_div(divisor).unwrap_or(0),
        None => {
            let sum = u128::from(a).saturating_mul(u128::from(b)).saturating_add(u128::from(c));
            let quotient = sum.checked_div(u128::from(divisor)).unwrap_or(0);
            u64::try_from(quotient).unwrap_or(u64::MAX)
        }
    }
}
