//! The integration tests of this crate as one program, which is compiled and linked once. Tests
//! that need their own process or target are separate programs.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may panic, and overflow"
)]

mod bad;
mod places;
mod plugin;
mod problems;
