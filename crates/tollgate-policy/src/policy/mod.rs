//! The compiled policy: what every request is planned with.
//!
//! Invariant: immutable once compiled, but for the secret of the surface and the version it counts
//! the policy as.

pub(crate) mod carried;
pub(crate) mod table_size;
pub(crate) mod fleet;
pub(crate) mod fallback;
pub(crate) mod lone;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod directory;
pub(crate) mod stored_set;
pub(crate) mod compiled;
pub(crate) mod tenant;
pub(crate) mod rule;
pub(crate) mod group;
pub(crate) mod by_id;
pub(crate) mod quota;
pub(crate) mod index;
pub(crate) mod by_value;
pub(crate) mod settings;
pub(crate) mod sparse;
pub(crate) mod jwt;
pub(crate) mod client_address;
pub(crate) mod label;
pub(crate) mod limits;
pub(crate) mod bounds;
pub(crate) mod surface;
