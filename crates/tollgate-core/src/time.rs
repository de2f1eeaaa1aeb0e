//! Points in time and lengths of time, as the core counts them: whole nanoseconds in a `u64`.
//!
//! Invariant: no public operation here wraps or panics; every one saturates, and its documentation
//! names the end. A [`Timestamp`] counts from an epoch that the surface chooses (Unix time, or the
//! start of a monotonic clock) and must keep for as long as it keeps the states. Nothing here reads
//! a clock.

use core::num::NonZeroU64;

/// The longest time a full burst may take to grow back: 732 days, twice the longest window, because
/// the emission interval is rounded up by less than one nanosecond per unit.
pub const MAX_BURST_SPAN: Span = Span::from_secs(732 * 86_400);

/// How far back a clock may step while every state keeps its meaning.
///
/// A clock that is at most this far behind the time a state was last charged at is taken to be
/// late: the state is used, so that no interval is credited twice when a clock oscillates.
///
/// A state beyond the largest debt (two bursts) plus this skew is foreign: the clock was set back,
/// or something else wrote it. The next request whose cost can fit is allowed, and the debt it
/// leaves is the old one reduced to one burst at the new time. It is allowed because a denial
/// writes nothing: a debt that was reduced to one burst again at every read would never drain, and
/// the key would stay locked out until the clock has caught up.
///
/// So a request, at any time and on any state, is denied for no longer than two bursts and 30 s
/// (window counters and the log: their windows and 30 s). 30 s covers NTP steps and the drift
/// between two hosts. Hosts that share states must agree on the time to within it.
pub const ALLOWED_SKEW: Span = Span::from_secs(30);

/// The last point in time at which decisions are made: 575 years after the epoch.
///
/// A later `now` counts as this one: time then no longer advances, and used units stay used. It
/// leaves room for every span that an algorithm adds to `now` (at most two bursts and the skew, or
/// three windows), so that no sum saturates and makes a debt look smaller than it is.
pub const LATEST: Timestamp = Timestamp(u64::MAX - 4 * MAX_BURST_SPAN.0);

/// Up to here, 292 years after the epoch, decisions use the fast way: half of the range, so that
/// one bit shows it, and far before [`LATEST`].
pub(crate) const NEAR: Timestamp = Timestamp(u64::MAX / 2);

/// A point in time: nanoseconds since the surface's epoch, up to 584 years of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The last point in time that can be represented.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the epoch.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `millis` milliseconds after the epoch, at most [`Timestamp::MAX`].
    #[must_use]
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The time from `earlier` to `self` where the caller knows that it is not later; wraps around
    /// where it is.
    #[must_use]
    #[inline]
    pub(crate) const fn wrapping_since(self, earlier: Self) -> Span {
        Span(self.0.wrapping_sub(earlier.0))
    }

    /// The time from `earlier` to `self`; `None` when `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn checked_since(self, earlier: Self) -> Option<Span> {
        Span(self.0).checked_sub(Span(earlier.0))
    }

    /// `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    #[inline]
    pub const fn saturating_add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// `span` later where the caller knows that the sum fits; wraps around where it does not.
    #[must_use]
    #[inline]
    pub(crate) const fn wrapping_add(self, span: Span) -> Self {
        Self(self.0.wrapping_add(span.0))
    }

    /// `span` earlier, at least [`Timestamp::ZERO`].
    #[must_use]
    #[inline]
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The later of two points.
    #[must_use]
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
    }

    /// The earlier of two points.
    #[must_use]
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if self.0 <= other.0 { self } else { other }
    }

    /// The index of the interval of length `span` that this point falls in, counted from the epoch;
    /// 0 when `span` is zero.
    #[must_use]
    pub(crate) const fn index_of(self, span: Span) -> u64 {
        Span(self.0).div_floor(span)
    }

    /// The start of the `index`-th interval of length `span`, at most [`Timestamp::MAX`].
    #[must_use]
    pub(crate) const fn start_of(index: u64, span: Span) -> Self {
        Self(span.0.saturating_mul(index))
    }
}

/// A length of time in nanoseconds, up to 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest length of time.
    pub const MAX: Self = Self(u64::MAX);

    /// `nanos` nanoseconds.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `millis` milliseconds, at most [`Span::MAX`].
    #[must_use]
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `secs` seconds, at most [`Span::MAX`].
    #[must_use]
    #[inline]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Whole nanoseconds.
    #[must_use]
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded down: 1,999 ms is 1 s.
    #[must_use]
    #[inline]
    pub const fn as_secs_floor(self) -> u64 {
        match self.0.checked_div(1_000_000_000) {
            Some(secs) => secs,
            None => 0,
        }
    }

    /// Whole seconds, rounded up: 1 ns is 1 s. For `Retry-After`, which must never be too early.
    #[must_use]
    #[inline]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Whole milliseconds, rounded up.
    #[must_use]
    #[inline]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The sum, at most [`Span::MAX`].
    #[must_use]
    #[inline]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The difference where the caller knows that `other` is not longer; wraps around where it is.
    #[must_use]
    #[inline]
    pub(crate) const fn wrapping_sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// The difference; `None` when `other` is longer.
    #[must_use]
    #[inline]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// `count` times this length, at most [`Span::MAX`].
    #[must_use]
    #[inline]
    pub const fn saturating_mul(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// How many whole `unit`s fit in, rounded down; none when `unit` is zero.
    #[must_use]
    #[inline]
    pub const fn div_floor(self, unit: Self) -> u64 {
        match self.0.checked_div(unit.0) {
            Some(count) => count,
            None => 0,
        }
    }

    /// How many whole `unit`s fit in, where the unit is known not to be zero: nothing is tested.
    #[must_use]
    #[inline]
    pub(crate) fn div_floor_by(self, unit: NonZeroU64) -> u64 {
        self.0 / unit
    }

    /// How many `unit`s cover this length: the quotient rounded up; none when `unit` is zero.
    #[must_use]
    #[inline]
    pub const fn div_ceil(self, unit: Self) -> u64 {
        if unit.0 == 0 { 0 } else { self.0.div_ceil(unit.0) }
    }

    /// The longer of two lengths.
    #[must_use]
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
    }

    /// The shorter of two lengths.
    #[must_use]
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if self.0 <= other.0 { self } else { other }
    }
}
