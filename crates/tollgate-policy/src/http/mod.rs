//! The parts of a request, read as HTTP defines them: paths, addresses, hosts, values, cookies.
//!
//! Invariant: nothing here depends on policies or documents, and nothing fails on any bytes. A
//! value with several readings is reported as such ([`Malformed`](malformed::Malformed)), never
//! guessed.

pub(crate) mod forwarded;
pub(crate) mod cookies;
pub(crate) mod query;
pub(crate) mod header;
pub(crate) mod values;
pub(crate) mod repeated;
pub(crate) mod authority;
pub(crate) mod readings;
pub(crate) mod path;
pub(crate) mod address;
pub(crate) mod token;
pub(crate) mod malformed;
pub(crate) mod byte_set;
