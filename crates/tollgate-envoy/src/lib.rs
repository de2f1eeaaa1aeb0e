//! Tollgate as an Envoy HTTP filter: a proxy-wasm module.
//!
//! `abi` is what Envoy calls, `host` makes every call to Envoy, `memory` counts what is taken;
//! these exist in the wasm build alone. The rest runs over any `proxy` and is tested natively, from
//! the top down:
//!
//! - `filter`: contexts and their callbacks; `arrival`: a request's first decision; `retry`: a
//!   request that waits; `pending_response`: what goes onto a response.
//! - `active_policy`: a policy in force, with `config` (the policy out of the plugin
//!   configuration), `facts` and `claims` (what a request is), `reply` and `metrics`.
//! - `enforce`: load, decide, commit by compare-and-swap; `places`: the way to a key's bucket while
//!   tables grow; `extents`: how far they reach; `directories`: what quotas their records are of;
//!   `denial_cache`: what this worker saw denied; `waiting`: the timer of those who wait.
//! - `table`: which bucket holds a key, and who leaves a full one; `shared_data`: the host's map;
//!   `wire`: its serialisations.
//!
//! Invariant: nothing in here can trap on any input; a trap takes the worker's virtual machine
//! down. Deliberately absent: decisions. Those are `tollgate-policy`'s, the same on every surface.
//!
//! The target is `wasm32-unknown-unknown`: measured 8 to 17 KB smaller than `wasm32-wasip1`, and
//! Envoy gives it the same WASI calls. [`KEPT_EXPORTS`] is what the shipped module exports.
#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod abi;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod memory;

/// Every allocation is counted; see `memory`.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: memory::Counted = memory::Counted;

mod active_policy;
mod arrival;
mod pending_response;
mod retry;
mod waiting;

pub mod claims;
pub mod config;
pub mod denial_cache;
pub mod directories;
pub mod enforce;
pub mod extents;
pub mod facts;
pub mod filter;
pub mod metrics;
pub mod places;
pub mod proxy;
pub mod reply;
pub mod shared_data;
pub mod wire;

/// What the module must export, one name a line: every callback that is exported costs 0.25 to 0.5
/// us of every request, so the build strips what is not named here (rustc adds two addresses of its
/// own).
pub const KEPT_EXPORTS: &str = include_str!("exports.txt");
