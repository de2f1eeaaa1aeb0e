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

use tollgate_server::messages; // by this name in the fuzz target's laws

mod batches;
mod calendar;
mod cases;
mod in_flight;
mod leases;
mod oracle;
mod table;
