//! The permissions: the four tokens of an operator.
//!
//! Invariant: an API without a secret is off. A token is compared in constant time, with every
//! configured secret, so that the time does not show which ones are configured.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::bearer::Token;

/// The token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// `ADMIN_TOKEN`: reads and writes.
    Admin,
    /// `READ_TOKEN`: reads.
    Read,
    /// `METRICS_TOKEN`: reads metrics only.
    Metrics,
    /// `FOLLOW_TOKEN`: reads only the policy in force, with its keys masked.
    Follow,
}

/// The author of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The value of the header that the operator names in a setting; bounded, on one line.
    pub name: Option<String>,
    /// The token of its request.
    pub token: Access,
}

/// The configured secrets.
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
    /// True when a token can read metrics.
    #[must_use]
    pub const fn read_metrics(&self) -> bool {
        let Self { admin, read, metrics, follow: _ } = self;
        admin.is_some() || read.is_some() || metrics.is_some()
    }

    /// The access of this `authorization`; `None` when it contains no token of ours.
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
