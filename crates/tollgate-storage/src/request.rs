//! The fixed parts of a request of format 2, as its sender writes them; the format is in `wire`.
//!
//! Invariant: a flag that says that a field follows is set exactly where the field is written.

use alloc::vec::Vec;

use tollgate_core::Span;

use crate::wire::{MAGIC, UNDER, WAITS};

/// The beginning of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The version of the policy with which it was planned; 0 when versions are not counted.
    pub version: u64,
    /// The identity of the key's group.
    pub group: u64,
    /// The flags of a request, except for `UNDER`.
    pub flags: u8,
    /// The revision of the tenant's entry with which it was planned, where that matters.
    pub under: Option<u64>,
}

/// The beginning of a rule in a request. The parameters of its quotas follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleHead {
    /// The flags of a rule, except for `WAITS`.
    pub flags: u8,
    /// The stable identity of the rule.
    pub rule: u64,
    /// Its cost in units.
    pub cost: u64,
    /// The longest wait that is not a denial.
    pub longest: Option<Span>,
}

impl Head {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend(self.group.to_le_bytes());
        out.push(self.flags | if self.under.is_some() { UNDER } else { 0 });
        if let Some(revision) = self.under {
            out.extend(revision.to_le_bytes());
        }
    }
}

impl RuleHead {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.flags | if self.longest.is_some() { WAITS } else { 0 });
        out.extend(self.rule.to_le_bytes());
        out.extend(self.cost.to_le_bytes());
        if let Some(longest) = self.longest {
            out.extend(longest.as_nanos().to_le_bytes());
        }
    }
}
