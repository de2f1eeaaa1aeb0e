//! Points in time and lengths of time, as the core counts them: whole nanoseconds in a `u64`.
//!
//! Invariant: no operation here wraps or panics; every one saturates and says at which end. A
//! [`Timestamp`] counts from an epoch that the surface chooses (Unix time, or the start of a
//! monotonic clock) and must keep for as long as it keeps the states. Nothing here reads a clock.

/// How far back a clock may step while every state stands as it is.
///
/// A clock that is at most this far behind the time a state was last charged at is taken to be
/// late: the state is believed, so that no interval is credited twice when a clock oscillates. A clock that is
/// further behind was set anew, and the state is brought within one burst of debt at the new time.
/// 30 s covers NTP steps and the drift between two hosts; it is also the longest that a client can
/// be made to wait beyond its quota's own time by a clock that stepped back.
pub const ALLOWED_SKEW: Span = Span::from_secs(30);

/// A point in time: nanoseconds since the surface's epoch, up to 584 years of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The last point in time that can be written down.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `millis` milliseconds after the epoch, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// `span` earlier, at least [`Timestamp::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The later of two points.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
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
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `millis` milliseconds, at most [`Span::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `secs` seconds, at most [`Span::MAX`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up: 1 ns is 1 s. For `Retry-After`, which must never be too early.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Whole milliseconds, rounded up.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The sum, at most [`Span::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `count` times this length, at most [`Span::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// How many whole `unit`s fit in, rounded down; none when `unit` is zero.
    #[must_use]
    pub const fn div_floor(self, unit: Self) -> u64 {
        match self.0.checked_div(unit.0) {
            Some(count) => count,
            None => 0,
        }
    }

    /// The shorter of two lengths.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.0 <= other.0 { self } else { other }
    }
}
