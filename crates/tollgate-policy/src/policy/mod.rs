//! The compiled policy, with which every request is planned.
//!
//! Invariant: immutable once compiled, except for the secret of the surface and the version that
//! the surface assigns.

pub(crate) mod eviction_claim;
pub(crate) mod carried;
pub(crate) mod fleet;
pub(crate) mod fallback;
pub(crate) mod lone;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod directory;
pub(crate) mod to_spec;
pub(crate) mod from_spec;
pub(crate) mod compiled;
pub(crate) mod tenant_name;
pub(crate) mod tenant_quotas;
pub(crate) mod tenant;
pub(crate) mod deny;
pub(crate) mod rule;
pub(crate) mod group;
pub(crate) mod quota;
pub(crate) mod field_template;
pub(crate) mod index;
pub(crate) mod by_value;
pub(crate) mod settings;
pub(crate) mod sparse;
pub(crate) mod client_address;
