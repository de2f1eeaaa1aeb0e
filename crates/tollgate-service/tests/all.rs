//! The integration tests of this crate as one program, which is compiled and linked once. Tests
//! that need their own process or target are separate programs.
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
mod drive;
mod drive_waiting;
mod every_answer;
mod following;
mod ids;
mod key_work;
mod masks;
mod policy;
mod queries;
mod cached_denials;
mod types;
mod usage_work;
