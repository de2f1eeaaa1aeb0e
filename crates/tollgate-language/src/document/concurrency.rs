//! The limit on requests in flight of a rule or a tier.
//!
//! Invariant: the core checks the bounds of `max_age`. Deliberately not here: which rules can have
//! one, which is in `compile`.

use alloc::format;

use tollgate_core::{MAX_MAX_AGE, MIN_MAX_AGE, QuotaError, Span};
use tollgate_policy::spec::{Bounded, Name};

use crate::document::scalar::parse_span;
use crate::json::node::{Node, quoted};
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};

record! {
    /// A limit on requests in flight: how many of one key run at the same time.
    ConcurrencyDoc {
        /// The number of requests that may run at the same time.
        limit: Bounded<1, 1_000_000>,
        /// The time after which a request is no longer counted when nothing confirmed that it still
        /// runs, because its proxy was killed: 1s to 1d; 60s by default.
        max_age: Option<MaxAge>,
        /// The name of the limit in responses; the rule's name by default, with .concurrency where
        /// the rule has quotas, too.
        name: Option<Name>,
    }
}

/// A time from 1 s to 1 day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxAge(pub(crate) Span);

impl FromNode for MaxAge {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let span = if let Node::Text(text) = node { parse_span(text) } else { None };
        let Some(span) = span else { return at.not_text(node, "a time such as \"60s\"") };
        if !(MIN_MAX_AGE..=MAX_MAX_AGE).contains(&span) {
            at.problem(format!("{} is not valid: {}", quoted(node), QuotaError::MaxAge));
            return None;
        }
        Some(Self(span))
    }

    schema!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"});
}
