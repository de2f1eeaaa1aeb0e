//! One program, so that it is built and linked once; who needs a process or a target of its own
//! stands beside it.
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

mod carry;
mod faults;
mod foreign;
mod golden;
mod governor;
mod holds;
mod laws;
mod layout;
mod oracle;
mod recorded;
mod support;
