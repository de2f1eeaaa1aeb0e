//! Documents as trees, and how they are read into types with every mistake at its place.
//!
//! Invariant: nothing here depends on the subject of a document.

pub(crate) mod reader;
pub(crate) mod suggest;
pub(crate) mod place;
pub(crate) mod node;
