//! The integration tests of this crate as one program, which is compiled and linked once. Tests
//! that need their own process or target are separate programs.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may panic, and overflow"
)]

mod budgets;
mod corpora;
mod docs;
mod engine;
mod laws;
mod needs;
mod node;
mod run;
mod support;
mod tenants;
mod traffic;
