//! The bounded table that the filter keeps in Envoy's shared data: how a bucket's bytes are read
//! and written, and which key a new key replaces in a full bucket.
//!
//! Invariant: pure functions; the filter, the command line's tests and the simulator use the same
//! code. Deliberately absent: host calls, and how a table grows; that is the filter's
//! `bucket_lookup.rs`.

mod bucket;
mod size;

pub use bucket::{
    Bucket, Corrupt, Extent, LAYOUT_VERSION, Seed, Table, bucket_of, digest, origin_of,
};
pub use size::TableSize;
