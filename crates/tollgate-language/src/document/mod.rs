//! The policy document, version 1, as people write it.
//!
//! Invariant: the types that read the document are its declaration; the schema is generated from
//! them.

pub(crate) mod root;
pub(crate) mod tenant;
pub(crate) mod penalty;
pub(crate) mod limit_from;
pub(crate) mod plugin;
pub(crate) mod deny;
pub(crate) mod rule;
pub(crate) mod scope;
pub(crate) mod action;
pub(crate) mod charging;
pub(crate) mod cost;
pub(crate) mod key;
pub(crate) mod concurrency;
pub(crate) mod conditions;
pub(crate) mod condition_values;
pub(crate) mod descriptor;
pub(crate) mod jwt;
pub(crate) mod client_ip;
pub(crate) mod calendar;
pub(crate) mod scalar;
pub(crate) mod lists;
