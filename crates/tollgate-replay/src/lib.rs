//! Replays access logs through a policy: who would have been limited, when, how often and by which
//! quota; and which limit would touch whom.
//!
//! Invariant: no I/O and no clock; memory is constant per live key. What the log cannot tell is
//! named before anything is counted.
#![forbid(unsafe_code)]

mod observer;
mod options;
pub mod suggest;
mod summary;

pub use observer::{Counted, Observer};
pub use options::{Options, REFUSED};
pub use summary::{
    Against, Bin, Cause, Changed, Clients, Example, First, LimitedKey, LogSummary, QuotaSummary,
    RuleSummary, Sample, Summary, Tally, Timeline, TopKeys, Waits,
};
