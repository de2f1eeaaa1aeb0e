//! Documents as trees, and how they are read into types with every mistake at its place.
//!
//! Invariant: nothing here depends on the subject of a document.

pub(crate) mod reader;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub(crate) mod suggest;
pub(crate) mod place;
pub(crate) mod quote;
pub(crate) mod node;
