//! The units that clients of a rule have used in the periods of a calendar.
//!
//! Invariant: a client is named by its key, which the caller knows; clients are never listed.

use alloc::string::String;
use alloc::vec::Vec;

/// A report of what clients of a rule have used: [`UsageReply::Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageCall {
    /// The rule's name.
    pub rule: String,
    /// The parts of each client's key in the rule's order, one client after the other.
    pub keys: Vec<String>,
    /// The tenant whose own quotas count separately; `None` for the counts of the rule.
    pub tenant: Option<String>,
    /// The format of the report.
    pub format: UsageFormat,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageFormat {
    /// A JSON object.
    Json,
    /// Lines of comma-separated values, with a header line (RFC 4180).
    Csv,
}

/// The reply to a [`UsageCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageReply {
    /// The report.
    Report(String),
    /// The policy has no rule of this name.
    NoRule,
    /// The call is not one for this rule.
    Wrong {
        /// The wrong part: `rule`, `key`, `key[1]`, `tenant`.
        path: String,
        /// The reason.
        why: String,
    },
}
