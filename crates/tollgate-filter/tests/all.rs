//! The integration tests of this crate as one program, which is compiled and linked once. Tests
//! that need their own process or target are separate programs.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::type_complexity,
    clippy::unwrap_used,
    reason = "tests may panic, and overflow"
)]

mod calendar;
mod clock;
mod concurrency;
mod eviction;
mod denials;
mod follow;
mod growth;
mod predicted_writes;
mod waiting;
mod hostile;
mod layout;
mod leases;
mod numbering;
mod one_request;
mod refunds;
mod succession;
mod support;
