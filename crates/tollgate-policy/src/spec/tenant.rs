//! A tenant's entry: other quotas for one tenant, kept in a store and not in the policy.
//!
//! Invariant: an entry means the same under every policy; under a policy that does not have one of
//! its rules or tiers, that part has no effect.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::spec::quota::QuotaSpec;

/// The longest entry, in bytes: 16 KiB, so that a page of a hundred is small and an isolate may
/// keep thousands.
pub const MAX_TENANT_ENTRY: usize = 16 << 10;
/// The longest name of a tenant, in bytes of its identifier: as long as the longest header value
/// that most servers accept, and far above any name.
pub const MAX_TENANT_ID: usize = 1024;

/// A tenant's entry.
#[derive(Clone, Debug)]
pub struct TenantEntry {
    /// The tier whose quotas the tenant has in rules where it has no quotas of its own.
    pub tier: Option<String>,
    /// The names of rules, and the tenant's own quotas in them.
    pub quotas: Vec<(String, Vec<QuotaSpec>)>,
    /// A matching tier with a higher priority has precedence.
    pub priority: u32,
    /// The time from which the entry has no effect.
    pub expires_at: Option<Timestamp>,
    /// The note for people: one line, without controls, at most 256 characters. It is text,
    /// whatever it looks like.
    pub note: Option<String>,
}
