//! The interface that the filter needs of its host, as traits, and small types over them.
//!
//! Invariant: every failure of the host is a value. Deliberately not here: the ABI of a host; each
//! host is a crate of its own.

pub mod calls;
pub mod headers;
pub mod proxy;
pub mod reply;
pub mod shared_data;
pub mod streams;
pub(crate) mod timer;

pub use tollgate_storage::table::Seed;
