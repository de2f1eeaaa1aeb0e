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

mod claims;
mod cli;
mod compile;
mod convert;
mod convert_oracle;
mod docs;
mod embed;
mod envoy_config;
mod manager;
mod output_files;
mod pk;
mod replay;
mod schema;
mod simulate;
mod streams;
mod support;
mod table;
mod tenants;
