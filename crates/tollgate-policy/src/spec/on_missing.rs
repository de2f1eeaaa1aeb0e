//! The behaviour of a rule for a request that lacks a part of its key.

/// The behaviour when the request lacks a key part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// The rule does not apply.
    Skip,
    /// The request is denied.
    Deny,
    /// All requests without the part share one count.
    Shared,
}
