//! What the tests of the core share: limiters from vectors, and one helper per feature.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

#[path = "../../../../tests/vectors/format.rs"]
pub mod format;
pub mod replay;
