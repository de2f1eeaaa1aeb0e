//! The compiled policy: what every request is planned with.
//!
//! Invariant: immutable once compiled; nothing here reads a document or a request.

pub(crate) mod index;
pub(crate) mod jwt;
pub(crate) mod label;
pub(crate) mod record;
pub(crate) mod table_size;
