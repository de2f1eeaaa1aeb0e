//! The counters, as a store returns them.
//!
//! Invariant: reading changes nothing.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::metrics::Format;

/// An operation on the counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsCall {
    /// All of them, in this format: [`MetricsReply::Text`].
    Read(Format),
}

/// The reply to a [`MetricsCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsReply {
    /// The sums as text ([`Sums::text`](crate::metrics::Sums::text)).
    Text(String),
}
