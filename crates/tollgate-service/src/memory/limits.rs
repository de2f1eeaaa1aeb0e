//! The limits of a store in memory.
//!
//! Invariant: every kind of data has a bound.

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Versions in the history.
    pub versions: usize,
    /// Bytes of the texts of policies. The newest versions keep theirs, and the one in force
    /// always.
    pub text_bytes: usize,
    /// Entries of tenants.
    pub tenants: usize,
}

impl Default for MemoryLimits {
    /// 1,000 versions, the texts of the last in 16 MiB, and 100,000 tenants.
    fn default() -> Self {
        Self { versions: 1000, text_bytes: 16 << 20, tenants: 100_000 }
    }
}
