//! Shared by the tests of the core: limiters, traces, and one helper per feature.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; each test binary uses a part"
)]

#[cfg(not(target_arch = "wasm32"))]
pub mod arbitrary;
#[path = "../../../../tests/vectors/format.rs"]
pub mod format;
#[cfg(not(target_arch = "wasm32"))]
pub mod oracle;
pub mod replay;
