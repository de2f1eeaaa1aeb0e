//! Tollgate as a server that is asked.
//!
//! Invariant: it decides nothing about quotas and nothing about the contract: the policy is
//! `tollgate-policy`'s, what is said over HTTP `tollgate-service`'s. Here are sockets, clocks,
//! threads and stores. Deliberately absent: forwarding; whoever asks forwards or refuses.
//!
//! The modules stand in the order in which they import: each only what is declared below it.
#![forbid(unsafe_code)]

pub mod program;
mod policy_file;
mod descriptors;
mod server;
mod operations;
mod connection;
mod begun;
pub mod calls;
mod tls;
pub mod http;
mod forward;
pub mod body;
pub mod grpc;
pub mod config;
pub mod admin;
mod keys;
pub mod leasing;
pub mod check;
pub mod settling;
mod waiting;
mod partitions;
mod charges;
mod tenants;
pub mod gate;
mod tenant_cache;
mod lines;
pub mod following;
pub mod counting;
pub mod call_counts;
pub mod active;
pub mod protocols;
pub mod store;
pub mod log;
pub mod traces;
pub mod clock;
mod finish;
pub mod peer;
mod addresses;
