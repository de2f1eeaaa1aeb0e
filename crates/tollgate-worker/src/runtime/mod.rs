//! The platform's runtime, seen from Rust: JavaScript functions and promises.
//!
//! Invariant: an exception of JavaScript is a value here. Deliberately not here: the use of any of
//! it.

pub(crate) mod js;
pub(crate) mod tasks;
