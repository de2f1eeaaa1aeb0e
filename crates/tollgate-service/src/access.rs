//! Who may do what: the four tokens of an operator.
//!
//! Invariant: what has no secret is off. A token is compared in constant time, with every secret
//! that there is, so that the time says nothing about which ones there are.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::bearer::Token;

/// Which token a request came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// `ADMIN_TOKEN`: reads and writes.
    Admin,
    /// `READ_TOKEN`: reads.
    Read,
    /// `METRICS_TOKEN`: metrics, and nothing else.
    Metrics,
    /// `FOLLOW_TOKEN`: the policy in force, with its keys masked, and nothing else.
    Follow,
}

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// What the header says that the operator names in a setting; bounded, on one line.
    pub name: Option<String>,
    /// Which token it came with.
    pub token: Access,
}

/// The secrets that there are.
#[derive(Default)]
pub struct Tokens {
    /// `ADMIN_TOKEN`.
    pub admin: Option<Token>,
    /// `READ_TOKEN`.
    pub read: Option<Token>,
    /// `METRICS_TOKEN`.
    pub metrics: Option<Token>,
    /// `FOLLOW_TOKEN`.
    pub follow: Option<Token>,
}

impl Tokens {
    /// True when somebody can read metrics.
    #[must_use]
    pub const fn read_metrics(&self) -> bool {
        let Self { admin, read, metrics, follow: _ } = self;
        admin.is_some() || read.is_some() || metrics.is_some()
    }

    /// What whoever sends this `authorization` may do; `None` when it names no token of ours.
    #[must_use]
    pub fn access(&self, authorization: Option<&str>) -> Option<Access> {
        let is =
            |token: &Option<Token>| token.as_ref().is_some_and(|t| t.authorizes(authorization));
        let found = [
            (is(&self.admin), Access::Admin),
            (is(&self.read), Access::Read),
            (is(&self.metrics), Access::Metrics),
            (is(&self.follow), Access::Follow),
        ];
        found.into_iter().find(|(is_it, _)| *is_it).map(|(_, access)| access)
    }
}
