//! The decision about a request when a rule's state cannot be read or written.
//!
//! Invariant: this is configuration; no other code decides it.

/// The decision when state cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The request is allowed.
    Allow,
    /// The request is denied with 503.
    Deny,
}
