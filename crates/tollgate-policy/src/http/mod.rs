//! What stands in a request, read as HTTP has it: paths, addresses, hosts, values, cookies.
//!
//! Invariant: nothing here knows of policies or documents, and nothing fails on any bytes. What has several readings is
//! told as such ([`Malformed`](malformed::Malformed)), never guessed.

pub(crate) mod address;
pub(crate) mod authority;
pub(crate) mod cookies;
pub(crate) mod forwarded;
pub(crate) mod malformed;
pub(crate) mod path;
pub(crate) mod readings;
pub(crate) mod values;
