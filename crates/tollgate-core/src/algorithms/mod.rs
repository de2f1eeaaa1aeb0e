//! The algorithms, one module each: its formula, its bound and its source.
//!
//! Seven more are not public. `holds` keeps units that a request takes before it is known whether
//! they are used. Five contain the parts that several algorithms share: `rate` the parameters of
//! GCRA and its kin, `skew` the meaning of a late clock for a counter, `ring` the decision of the
//! log and the buckets, `weight` the count of units of which the window covers a part, `step` the
//! reading and writing of a small state; `counters` is the byte layout of the buckets.
//! `calendar_window` is the fixed window by a calendar, and `in_flight` limits requests at the same
//! time, not in a window. Invariant: an algorithm never imports
//! another, and the list here is the only one: a new algorithm is its file, its lines here and its
//! arms in [`Limiter`](crate::Limiter).

pub mod calendar_window;
pub(crate) mod counters;
pub mod fixed_window;
pub mod gcra;
pub(crate) mod holds;
pub mod in_flight;
pub mod leaky_bucket;
pub mod leaky_queue;
pub(crate) mod rate;
pub(crate) mod ring;
pub(crate) mod skew;
pub mod sliding_buckets;
pub mod sliding_log;
pub mod sliding_window;
pub(crate) mod step;
pub mod token_bucket;
pub(crate) mod weight;
mod within;

/// The default number of parts of a window of [`Algorithm::SlidingBuckets`]: 1 s of a minute.
pub const DEFAULT_BUCKETS: u16 = 60;

/// The algorithms; the set is closed. The module of each has its formula, its bound and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Generic cell rate algorithm: 8 bytes, exact retry times. See [`gcra`].
    Gcra,
    /// The same decisions as GCRA, counted in tokens. See [`token_bucket`].
    TokenBucket,
    /// The same decisions as GCRA, as a level that leaks. See
    /// [`leaky_bucket`].
    LeakyBucket,
    /// Shaping: returns how long to wait, up to a queue of `burst`. See [`leaky_queue`].
    LeakyQueue,
    /// A counter per window aligned to the clock. See [`fixed_window`], and [`calendar_window`] for
    /// windows of a calendar.
    FixedWindow,
    /// Two counters, the previous one weighted by how much of it the window still covers. See
    /// [`sliding_window`].
    SlidingWindow,
    /// A rolling window counted in this many parts, 2 to 360. See
    /// [`sliding_buckets`].
    SlidingBuckets {
        /// The number of parts of the window.
        buckets: u16,
        /// The part that contains the window's start counts in proportion to the time of it that
        /// the window still covers, not whole: closer to an exact log with few parts, and at worst
        /// twice the limit.
        weighted: bool,
    },
    /// The time of every allowed unit; exact. Limits up to 1024. See [`sliding_log`].
    SlidingLog,
}

impl Algorithm {
    /// All of them, in the order in which documents list them; the buckets with
    /// [`DEFAULT_BUCKETS`], none weighted.
    pub const ALL: [Self; 8] = [
        Self::Gcra,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::LeakyQueue,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingBuckets { buckets: DEFAULT_BUCKETS, weighted: false },
        Self::SlidingLog,
    ];

    /// The name in policies, reports and stored identities.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gcra => "gcra",
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::LeakyQueue => "leaky-queue",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingBuckets { .. } => "sliding-buckets",
            Self::SlidingLog => "sliding-log",
        }
    }

    /// The name in words, for people that read a list of algorithms.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Gcra => "Generic cell rate algorithm",
            Self::TokenBucket => "Token bucket",
            Self::LeakyBucket => "Leaky bucket as a meter",
            Self::LeakyQueue => "Leaky bucket as a queue",
            Self::FixedWindow => "Fixed window",
            Self::SlidingWindow => "Sliding window counter",
            Self::SlidingBuckets { .. } => "Rolling window in parts",
            Self::SlidingLog => "Sliding window log",
        }
    }

    /// The algorithm of this [`name`](Self::name), the buckets with [`DEFAULT_BUCKETS`]; `None` for
    /// any other text.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The number of parts of the window; `None` unless it is counted in parts.
    #[must_use]
    pub const fn buckets(self) -> Option<u16> {
        match self {
            Self::SlidingBuckets { buckets, .. } => Some(buckets),
            Self::Gcra
            | Self::TokenBucket
            | Self::LeakyBucket
            | Self::LeakyQueue
            | Self::FixedWindow
            | Self::SlidingWindow
            | Self::SlidingLog => None,
        }
    }

    /// The same algorithm with this many parts, if its window is counted in parts.
    #[must_use]
    pub const fn with_buckets(self, buckets: u16) -> Self {
        match self {
            Self::SlidingBuckets { weighted, .. } => Self::SlidingBuckets { buckets, weighted },
            other => other,
        }
    }

    /// True where the oldest part of the window is weighted.
    #[must_use]
    pub const fn is_weighted(self) -> bool {
        matches!(self, Self::SlidingBuckets { weighted: true, .. })
    }

    /// The same algorithm with its oldest part weighted, if its window is counted in parts.
    #[must_use]
    pub const fn weighted(self) -> Self {
        match self {
            Self::SlidingBuckets { buckets, .. } => {
                Self::SlidingBuckets { buckets, weighted: true }
            }
            other => other,
        }
    }

    /// True for GCRA and its kin, which allow a burst and regain it unit by unit; the others allow
    /// up to their limit and reject a burst that differs.
    #[must_use]
    pub const fn has_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket | Self::LeakyQueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_its_own_and_is_read_back() {
        for (i, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            assert_eq!(Algorithm::parse(algorithm.name()), Some(algorithm));
            for other in Algorithm::ALL.into_iter().skip(i + 1) {
                assert_ne!(other.name(), algorithm.name());
                assert_ne!(other.title(), algorithm.title());
            }
        }
        for wrong in ["", "GCRA", "gcra ", "sliding", "sliding-buckets-60"] {
            assert_eq!(Algorithm::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_what_is_counted_in_parts_has_parts() {
        for algorithm in Algorithm::ALL {
            let parted = algorithm.with_buckets(7);
            assert_eq!(parted.buckets().is_some(), algorithm.buckets().is_some());
            assert!(parted.buckets().is_none_or(|buckets| buckets == 7));
            assert_eq!(parted.name(), algorithm.name());
            let weighted = algorithm.weighted();
            assert_eq!(weighted.is_weighted(), algorithm.buckets().is_some());
            assert_eq!(weighted.buckets(), algorithm.buckets());
            assert!(
                !algorithm.is_weighted()
                    && weighted.with_buckets(7).is_weighted() == weighted.is_weighted()
            );
        }
    }
}
