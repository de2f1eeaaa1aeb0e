//! The parts of a request, read as HTTP defines them: paths, addresses, hosts, values, cookies; and
//! the numbers in a response's JSON.
//!
//! Invariant: nothing here depends on policies or documents, and nothing fails on any bytes. A
//! value with several readings is reported as such ([`Malformed`](malformed::Malformed)), never
//! guessed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod json_body;
mod event_stream;
mod json_text;
pub mod json_pointer;
pub mod forwarded;
pub mod cookies;
pub mod query;
pub mod header;
pub mod values;
pub mod repeated;
pub mod authority;
pub mod readings;
pub mod path;
pub mod address;
pub mod token;
pub mod malformed;
pub mod percent;
pub mod byte_set;
pub mod alternatives;
pub mod sort;
