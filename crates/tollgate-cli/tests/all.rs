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

mod budgets;
mod claims;
mod cli;
mod compile;
mod convert;
mod convert_oracle;
mod docs;
mod embed;
mod envoy_config;
mod manager;
mod metrics;
mod output_files;
mod pk;
mod replay;
mod schema;
mod simulate;
mod streams;
mod support;
mod table;
mod tenants;
