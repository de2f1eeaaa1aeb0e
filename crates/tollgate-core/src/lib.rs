//! Rate limiting as a pure function: `(parameters, state, now, cost) -> (decision, next state)`.
//!
//! A surface (a proxy filter, a Durable Object, a browser, a command line) loads a few bytes, calls
//! a [`Limiter`] and commits the bytes; all deciding code is here. The one invariant: the same
//! parameters, bytes, time and cost give the same decision and the same bytes on every target.
//!
//! The documentation of each of the [`algorithms`] contains its formula, its bound and its source.
//!
//! Deliberately absent: no clock, no I/O, no allocation, no float, no `unsafe`, no panic, no
//! dependency. Built for `wasm32-unknown-unknown` the crate imports nothing.
//!
//! ```
//! use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp, Verdict};
//!
//! // 2 requests per second: one every 500 ms, both at once when idle.
//! let limiter = Limiter::new(Algorithm::Gcra, Quota::new(2, Span::from_secs(1))?)?;
//! let mut state = [0; 8]; // all zero bytes: never seen
//! let now = Timestamp::from_nanos(1_000);
//!
//! assert_eq!(limiter.check(&mut state, now, 1).verdict, Verdict::Allow);
//! assert_eq!(limiter.check(&mut state, now, 1).verdict, Verdict::Allow);
//! let denied = limiter.check(&mut state, now, 1);
//! assert_eq!(denied.verdict, Verdict::Deny);
//! assert_eq!(denied.retry_after, Some(Span::from_millis(500)));
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod algorithms;
mod calendar;
mod calendar_time;
mod carry;
mod debit;
mod decision;
mod encoding;
mod holding;
mod layout;
mod limiter;
mod method;
mod penalty;
mod punish;
mod quota;
mod settle;
mod time;
mod usage;
mod used;

pub use algorithms::calendar_window::{CalendarWindow, CalendarWindowState};
pub use algorithms::fixed_window::{FixedWindow, FixedWindowState};
pub use algorithms::gcra::{Gcra, GcraState};
pub use algorithms::holds::{HOLD_AGE, Holds};
pub use algorithms::in_flight::{InFlight, InFlightState, MAX_IN_FLIGHT, MAX_MAX_AGE, MIN_MAX_AGE};
pub use algorithms::leaky_bucket::{LeakyBucket, LeakyBucketState};
pub use algorithms::leaky_queue::{LeakyQueue, LeakyQueueState};
pub use algorithms::sliding_buckets::SlidingBuckets;
pub use algorithms::sliding_log::SlidingLog;
pub use algorithms::sliding_window::{SlidingWindow, SlidingWindowState};
pub use algorithms::token_bucket::{TokenBucket, TokenBucketState};
pub use algorithms::{Algorithm, DEFAULT_BUCKETS};
pub use calendar::{Calendar, CalendarSpan, CalendarUnit, MAX_ANCHOR_DAY, MAX_UTC_OFFSET, Weekday};
pub use calendar_time::CalendarTime;
pub use decision::{Admission, Charge, Decision, Verdict};
pub use holding::Holding;
pub use layout::ENCODING_VERSION;
pub use limiter::Limiter;
pub use penalty::{MAX_PENALTY_STEPS, Penalty};
pub use quota::{
    MAX_BUCKETS, MAX_LIMIT, MAX_LIMIT_OF_BUCKETS, MAX_LIMIT_OF_LOG, MAX_WINDOW, MIN_BUCKETS,
    MIN_WINDOW, Quota, QuotaError,
};
pub use time::{ALLOWED_SKEW, LATEST, MAX_BURST_SPAN, Span, Timestamp};
pub use usage::{CalendarUsage, PeriodUsage};
pub use used::FULLY_USED;

/// The example of the package's front page runs, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
