//! What is said over gRPC: Envoy's rate limit service, its external authorization, and gRPC's
//! health protocol, as messages.
//!
//! Invariant: whatever bytes come, they are a message or a refusal that says why. Messages are read
//! in place: what is not asked for is skipped, so a message of a megabyte that is ten thousand
//! descriptors allocates nothing before it is refused. Deliberately absent: sockets, what the
//! answers are, and a compiler of `.proto` files; the field numbers stand here, with their names.
//!
//! The modules stand in the order in which they import: each only what is declared below it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod authorization;
pub mod health;
pub mod rate_limit;
pub mod header_value;
pub mod frame;
pub mod status;
pub mod wire;
