//! The scope of a rule's count, and how long its units are leased.
//!
//! Invariant: a scope names where a count is kept. Except for the share, it never changes what the
//! count allows. Each surface defines whether it can reach an authority.

use tollgate_core::Span;

/// The place of a rule's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each node keeps its own count.
    Local,
    /// All nodes have one count, which an authority keeps.
    Fleet,
    /// Each node keeps its own count, with this part of every limit and burst, rounded down: 12 is
    /// a twelfth.
    Share(u32),
}

/// The most nodes that share the limits of a rule.
pub const MAX_NODES: u32 = 1_000_000;

/// True for a valid lease duration.
pub fn is_lease(span: Span) -> bool {
    (MIN_LEASE..=MAX_LEASE).contains(&span)
}

/// The shortest lease: shorter leases would be requested as often as units without a lease.
const MIN_LEASE: Span = Span::from_millis(100);
/// The lease of a rule that does not set one.
pub use tollgate_storage::DEFAULT_LEASE;
/// The longest life of a lease: a lost node strands its units for at most this long.
pub use tollgate_storage::MAX_LEASE_LIFE as MAX_LEASE;
