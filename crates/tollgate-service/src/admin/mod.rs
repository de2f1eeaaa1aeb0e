//! The admin API: the store calls of each operation, and its response.
//!
//! Invariant: a request that comes here is allowed (its [head](crate::request_head::RequestHead)
//! was read). An operation is a few steps, each either the response or one more call of the store.

pub(crate) mod key_history;
pub(crate) mod usage;
pub(crate) mod keys;
pub(crate) mod metrics;
pub(crate) mod tenants;
pub(crate) mod policy;
pub(crate) mod policy_documents;
pub(crate) mod json_body;
pub(crate) mod precondition;
pub(crate) mod step;
