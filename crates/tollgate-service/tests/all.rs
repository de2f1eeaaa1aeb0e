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

mod common;
mod contract;
mod docs;
mod every_answer;
mod key_work;
mod masks;
mod policy;
mod types;
