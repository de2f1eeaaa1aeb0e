//! Documents as trees, and how they are read into types with every mistake at its place.
//!
//! Invariant: nothing here knows what a document is about.

pub(crate) mod reader;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub(crate) mod suggest;
pub(crate) mod place;
pub(crate) mod quote;
pub(crate) mod node;
pub(crate) mod problem;
