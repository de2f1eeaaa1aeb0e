//! The quota: a limit per window, and how much of it at once.
//!
//! Invariant: a [`Quota`] is valid by construction, so every algorithm may multiply its spans
//! without overflow. Building an impossible quota is the core's only error.

use core::fmt;

use crate::time::{MAX_BURST_SPAN, Span};

/// The shortest window: 1 ms.
pub const MIN_WINDOW: Span = Span::from_millis(1);
/// The longest window: 366 days.
pub const MAX_WINDOW: Span = Span::from_secs(366 * 86_400);
/// The highest limit: 15 decimal digits, the largest Integer of a structured field (RFC 9651,
/// 3.3.1).
pub const MAX_LIMIT: u64 = 999_999_999_999_999;

/// The highest limit of [`Algorithm::SlidingBuckets`](crate::Algorithm::SlidingBuckets): its
/// counters are `u32`.
pub const MAX_LIMIT_OF_BUCKETS: u64 = 4_294_967_295;
/// The highest limit of [`Algorithm::SlidingLog`](crate::Algorithm::SlidingLog): 8 bytes are kept
/// for every unit of it.
pub const MAX_LIMIT_OF_LOG: u64 = 1024;
/// The fewest parts of a window of [`Algorithm::SlidingBuckets`](crate::Algorithm::SlidingBuckets).
pub const MIN_BUCKETS: u16 = 2;
/// The most parts of a window of [`Algorithm::SlidingBuckets`](crate::Algorithm::SlidingBuckets):
/// 10 s of an hour.
pub const MAX_BUCKETS: u16 = 360;

/// A number of quota units per length of time, valid by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u64,
    window: Span,
    burst: u64,
    strict: bool,
}

impl Quota {
    /// `limit` quota units per `window`, all of them at once when idle.
    ///
    /// # Errors
    /// `limit` outside 1 to [`MAX_LIMIT`], `window` outside [`MIN_WINDOW`] to [`MAX_WINDOW`], or
    /// more than one unit per nanosecond.
    pub const fn new(limit: u64, window: Span) -> Result<Self, QuotaError> {
        if limit == 0 || limit > MAX_LIMIT {
            return Err(QuotaError::Limit);
        }
        if window.as_nanos() < MIN_WINDOW.as_nanos() || window.as_nanos() > MAX_WINDOW.as_nanos() {
            return Err(QuotaError::Window);
        }
        if limit > window.as_nanos() {
            return Err(QuotaError::TooDense { max_limit: window.as_nanos() });
        }
        Ok(Self { limit, window, burst: limit, strict: false })
    }

    /// No units, ever: limit and burst are 0. `window` is only reported; zero where there is none.
    ///
    /// # Errors
    /// `window` neither zero nor within [`MIN_WINDOW`] to [`MAX_WINDOW`].
    pub(crate) const fn closed(window: Span) -> Result<Self, QuotaError> {
        let nanos = window.as_nanos();
        if nanos > 0 && nanos < MIN_WINDOW.as_nanos() || nanos > MAX_WINDOW.as_nanos() {
            return Err(QuotaError::Window);
        }
        Ok(Self { limit: 0, window, burst: 0, strict: false })
    }

    /// The same quota for a request with a limit of its own, at most [`Quota::limit`]: it fits
    /// where the counted units and its cost are at most the burst.
    pub(crate) const fn within(mut self, limit: u64) -> Self {
        self.burst = if limit < self.limit { limit } else { self.limit };
        self
    }

    /// The same quota allowing `burst` units at once when idle, in place of `limit`. The window
    /// counters and the log have no burst and reject one that differs
    /// ([`Limiter::new`](crate::Limiter::new)).
    ///
    /// # Errors
    /// `burst` 0, or so large that growing it back takes longer than [`MAX_BURST_SPAN`].
    pub const fn with_burst(mut self, burst: u64) -> Result<Self, QuotaError> {
        let interval = self.window.as_nanos().div_ceil(self.limit);
        let largest_burst = Span::div_floor(MAX_BURST_SPAN, Span::from_nanos(interval));
        if burst == 0 || burst > largest_burst {
            return Err(QuotaError::Burst { largest_burst });
        }
        self.burst = burst;
        Ok(self)
    }

    /// The same quota, held more strictly. GCRA and its kin slow down to T = window / (limit -
    /// burst + 1) and are then never over `limit` in any window: leave room between burst and
    /// limit, because with burst = limit one unit grows back in a whole window. The sliding window
    /// rounds its estimate up: at most 2 x limit - 1. The sliding buckets and the log never exceed
    /// it anyway, and the fixed window cannot be strict: [`Limiter::new`](crate::Limiter::new)
    /// rejects it.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Quota units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.window
    }

    /// Quota units allowed at once when idle.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// True after [`Quota::strict`].
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.strict
    }
}

/// The reason why a quota is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaError {
    /// The limit is not within 1 to [`MAX_LIMIT`].
    Limit,
    /// The window is not within [`MIN_WINDOW`] to [`MAX_WINDOW`].
    Window,
    /// More than one unit per nanosecond.
    TooDense {
        /// The highest limit in this window.
        max_limit: u64,
    },
    /// The burst is 0 or above the highest one at this rate.
    Burst {
        /// The largest burst at this rate.
        largest_burst: u64,
    },
    /// A strict burst above the limit would allow more than the limit at once.
    StrictBurst {
        /// The largest burst of a strict quota: its limit.
        largest_burst: u64,
    },
    /// This algorithm has no burst of its own: it allows up to the limit at once.
    NoBurst,
    /// A fixed window allows up to twice its limit across a boundary, and cannot be held strictly.
    NoStrict,
    /// This algorithm counts units up to a smaller limit.
    LimitOfAlgorithm {
        /// The highest limit of this algorithm.
        max_limit: u64,
    },
    /// The number of sub-windows is not within 2 to 360.
    Buckets,
    /// A calendar is more than [`MAX_UTC_OFFSET`](crate::MAX_UTC_OFFSET) from UTC.
    UtcOffset,
    /// The anchor day of a calendar is not within 1 to 31.
    AnchorDay,
    /// The time after which an unconfirmed request is no longer counted is not within
    /// [`MIN_MAX_AGE`](crate::MIN_MAX_AGE) to [`MAX_MAX_AGE`](crate::MAX_MAX_AGE).
    MaxAge,
    /// The steps of a penalty are not 1 to 6 times from 1 s to [`MAX_WINDOW`], each longer than the
    /// one before.
    Penalty,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit => write!(f, "limit must be 1 to {MAX_LIMIT}"),
            Self::Window => f.write_str("window must be 1ms to 366d"),
            Self::TooDense { max_limit } => {
                write!(f, "limit must be at most {max_limit} in this window, one per nanosecond")
            }
            Self::Burst { largest_burst } => {
                write!(f, "burst must be 1 to {largest_burst} at this rate")
            }
            Self::StrictBurst { largest_burst } => {
                write!(f, "burst of a strict quota must be at most its limit, {largest_burst}")
            }
            Self::NoBurst => {
                f.write_str("this algorithm allows up to its limit at once; leave burst out")
            }
            Self::NoStrict => {
                f.write_str("a fixed window cannot be strict; use sliding-log or sliding-buckets")
            }
            Self::LimitOfAlgorithm { max_limit } => {
                write!(f, "limit must be at most {max_limit} with this algorithm")
            }
            Self::Buckets => write!(f, "buckets must be {MIN_BUCKETS} to {MAX_BUCKETS}"),
            Self::UtcOffset => f.write_str("offset from UTC must be -14:00 to +14:00"),
            Self::AnchorDay => f.write_str("anchor day must be 1 to 31"),
            Self::MaxAge => f.write_str("max_age must be 1s to 1d"),
            Self::Penalty => f.write_str(
                "penalty must be 1 to 6 times of whole seconds up to 366d, each longer than the last",
            ),
        }
    }
}

impl core::error::Error for QuotaError {}
