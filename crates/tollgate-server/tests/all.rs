//! One program, so that it is built and linked once; who needs a process or a target of its own
//! stands beside it.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may panic, and overflow"
)]

mod batches;
mod cases;
mod leases;
mod table;
