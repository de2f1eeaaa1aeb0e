//! The counts in the host's shared data: load, decide, commit by compare-and-swap.
//!
//! Invariant: at any moment one bucket decides a key, and a lost race is decided again.
//! Deliberately not here: the decision itself (`tollgate-policy`) and the layout of a bucket
//! (`tollgate_storage::table`).

pub(crate) mod agreement;
pub mod bucket_lookup;
pub(crate) mod cached_denials;
pub mod clock;
pub mod commit_stats;
pub mod denial_cache;
pub mod directories;
pub mod enforce;
pub mod extents;
pub mod final_denials;
pub mod numbering;
pub(crate) mod predicted_writes;
pub mod scratch;
mod uncharged;
