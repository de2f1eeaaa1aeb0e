//! Reads access logs: their formats, their order and their time.
//!
//! Invariant: no I/O. The caller passes bytes in pieces and gets records, and memory is bounded
//! whatever a line holds. A line that cannot be read is counted and shown, never fatal.
#![forbid(unsafe_code)]

// Each module imports only modules below it.
mod batch;
mod queue;
mod order;
mod spool;
mod detect;
mod reader;
mod format;
mod lines;
mod template;
mod columns;
mod json;
mod names;
mod source;
mod draft;
mod request_line;
mod strftime;
mod escape;
mod address;
mod time;
mod civil;
mod record;
mod counts;
mod field;

pub use batch::Batch;
pub use counts::{Cause, Counts, Sample};
pub use field::{Field, Wanted};
pub use format::{FORMAT_NAMES, Format, FormatError};
pub use order::{Bounds, Order, OrderCounts};
pub use queue::Queue;
pub use reader::{Limits, Reader, Refused};
pub use record::{Client, Record, Time};
