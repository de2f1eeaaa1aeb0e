//! The integration tests of this crate as one program, which is compiled and linked once. Tests
//! that need their own process or target are separate programs.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may panic, and overflow"
)]

mod calendar;
mod carry;
mod faults;
mod foreign;
mod golden;
mod governor;
mod holding;
mod holds;
mod in_flight;
mod laws;
mod layout;
mod oracle;
mod penalty;
mod recorded;
mod support;
mod usage;
mod within;
