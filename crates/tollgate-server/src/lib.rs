//! Tollgate as a server that answers requests for decisions.
//!
//! Invariant: it decides nothing about quotas and nothing about the contract: the policy is in
//! `tollgate-policy`, the HTTP contract in `tollgate-service`. This crate contains sockets, clocks,
//! threads and stores. Deliberately not here: forwarding; the caller forwards or denies.
//!
//! From the top down: the program and its listeners, the protocols, the decision, and its counters.
//!
//! A request goes through `listen`, a protocol (`http`, `forward` or `grpc`), `check::decide`, its
//! wait (`check/waiting.rs`), `Gate::decide_once` (`check/partitions.rs`), the service's `Drive`,
//! which says what to send to which count, and `Store::ask` (`store`).
#![forbid(unsafe_code)]

pub mod program;
mod policy_file;
pub mod listen;
pub mod http;
pub mod grpc;
mod forward;
pub mod operate;
pub mod check;
pub mod gate;
pub mod policy;
pub mod store;
pub mod traces;
pub mod config;
pub mod log;
pub mod clock;
mod finish;
pub mod messages;
