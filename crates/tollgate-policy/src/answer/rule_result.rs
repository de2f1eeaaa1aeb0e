//! What one rule said about one request, for metrics and explanations.
//!
//! Invariant: the words are part of metric names on every surface, so they never change.

/// What one rule said, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// Every quota of it admitted the request.
    Allowed,
    /// A quota of it denied, or a key part was missing.
    Denied,
    /// Admitted after a wait.
    Delayed,
    /// Over the limit, passed with a mark.
    Marked,
    /// Over the limit, but the rule is not enforced for this key.
    Shadowed,
    /// Its state could not be read or written.
    Failed,
    /// What it counts by cannot be read from the request.
    Malformed,
    /// An operator blocked the key.
    Blocked,
}

impl RuleResult {
    /// Every result, in the order of [`RuleResult::index`].
    pub const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Denied,
        Self::Delayed,
        Self::Marked,
        Self::Shadowed,
        Self::Failed,
        Self::Malformed,
        Self::Blocked,
    ];

    /// Its place in [`RuleResult::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::Denied => 1,
            Self::Delayed => 2,
            Self::Marked => 3,
            Self::Shadowed => 4,
            Self::Failed => 5,
            Self::Malformed => 6,
            Self::Blocked => 7,
        }
    }

    /// The word for metrics: `allowed`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Delayed => "delayed",
            Self::Marked => "marked",
            Self::Shadowed => "shadowed",
            Self::Failed => "failed",
            Self::Malformed => "malformed",
            Self::Blocked => "blocked",
        }
    }
}
