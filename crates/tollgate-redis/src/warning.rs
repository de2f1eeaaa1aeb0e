//! What an operator should know of an engine before it is relied on.
//!
//! Invariant: a warning changes nothing: the engine is asked all the same.

use std::fmt;

/// What an operator should know of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// By this policy it forgets keys when its memory is full, exhausted ones too: a flood of keys
    /// then frees whoever is refused. Set `maxmemory-policy noeviction`.
    Evicts(String),
    /// It does not say what it does when its memory is full.
    Unknown,
}

impl Warning {
    /// What `INFO memory` tells.
    pub(crate) fn of_memory(info: &str) -> Option<Self> {
        match field(info, "maxmemory_policy") {
            Some("noeviction") => None,
            Some(policy) => Some(Self::Evicts(policy.to_owned())),
            None => Some(Self::Unknown),
        }
    }
}

/// A field of what `INFO` tells.
pub(crate) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts(policy) => write!(
                f,
                "the engine's maxmemory-policy is {policy}: when its memory is full it forgets who \
                 is refused; set noeviction"
            ),
            Self::Unknown => f.write_str(
                "the engine does not say what it does when its memory is full; set \
                 maxmemory-policy noeviction",
            ),
        }
    }
}
