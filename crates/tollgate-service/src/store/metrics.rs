//! What was counted, as a store gives it.
//!
//! Invariant: reading changes nothing.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// An operation on the counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsCall {
    /// All of them: [`MetricsReply::Text`].
    Read,
}

/// What is answered to a [`MetricsCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsReply {
    /// In the text format of Prometheus.
    Text(String),
}
