//! Replays access logs through a policy: which clients would have been limited, when, how often and
//! by which quota; and which limit would affect which clients.
//!
//! Invariant: no I/O and no clock; memory is constant per live key. Facts that the log does not
//! contain are named before anything is counted.

// Each imports only modules below it.
mod report;
mod fail_if;
mod source;
mod summarise;
mod tenants;
mod engine;
mod shortcuts;
mod lane;
mod facts;
mod needs;
mod assumed;
pub mod suggest;
mod observer;
mod label;
mod names;
mod clients;
mod timeline;
mod top;
mod waits;
mod options;
mod summary;
mod time;

pub use assumed::{AssumedValues, field};
pub use engine::Replay;
pub use fail_if::FailIf;
pub use needs::{Need, defaults, needs, wanted};
pub use observer::{CountedRequest, Observer};
pub use options::{Options, REFUSED};
pub use source::Source;
pub use summarise::{LogCounts, WITHOUT_ENTRIES};
pub use summary::{
    Bin, Cause, ChangeCounts, Clients, ConditionResult, Damage, Example, FirstLimited, LimitedKey,
    LogSummary, PolicyComparison, QuotaSummary, RuleSummary, Sample, Summary, Tally, Timeline,
    TopKeys, Waits,
};
pub use time::Moment;
