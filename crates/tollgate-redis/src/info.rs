//! The text of `INFO`: its fields, and warnings about an engine that an operator should read before
//! relying on it.
//!
//! Invariant: a warning changes nothing: the engine is used all the same.

use std::fmt;

/// A warning about the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// With this policy it forgets keys when its memory is full, exhausted ones too: a flood of
    /// keys then frees denied clients. Set `maxmemory-policy noeviction`.
    Evicts(String),
    /// It does not report its behaviour when its memory is full.
    Unknown,
}

impl Warning {
    /// The warning from the text of `INFO memory`.
    pub(crate) fn of_memory(info: &str) -> Option<Self> {
        match field(info, "maxmemory_policy") {
            Some("noeviction") => None,
            Some(policy) => Some(Self::Evicts(policy.to_owned())),
            None => Some(Self::Unknown),
        }
    }
}

/// A field of the text of `INFO`.
pub(crate) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts(policy) => write!(
                f,
                "the engine's maxmemory-policy is {policy}: when its memory is full, it deletes counts, and denied clients are allowed again; set noeviction"
            ),
            Self::Unknown => f.write_str(
                "the engine does not report its maxmemory-policy; set \
                 maxmemory-policy noeviction",
            ),
        }
    }
}
