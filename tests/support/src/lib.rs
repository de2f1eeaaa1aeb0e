//! Helpers that the tests of several crates share.
//!
//! Invariant: nothing here depends on a crate of this workspace, so the tests of every crate can
//! use it. It builds for wasm32; only [`golden`] needs files.

pub mod golden;
mod random;

pub use random::Random;

/// The bytes as hexadecimal digits in lower case: `[0x0f, 0xa0]` gives "0fa0".
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
