//! Tollgate as an Envoy HTTP filter: a proxy-wasm module.
//!
//! `abi` contains the callbacks for Envoy; `host`, `host_clock` and `host_metrics` make every call
//! to Envoy; `memory` counts allocated memory. These exist in the wasm build alone. The rest runs
//! over any `proxy` and is tested natively, from the top down:
//!
//! - `filter`: contexts and their callbacks, with `flow`; `arrival`: a request's first decision;
//!   `retry`: a request that waits; `pending_response`: additions to a response.
//! - `active_policy`: a policy in force, with `config` (the policy out of the plugin
//!   configuration), `routes` (the policies that routes name), `facts` and `claims` (the properties
//!   of a request) and `reply`.
//! - For operators: `observer`, with `metrics`, `rule_metrics`, `metric_names` (how many there may
//!   be), `labels`, `tally` (counters until they are handed over), `access_log`, `refused_keys` and
//!   `address_watch`; `said`: log lines that some worker has written already.
//! - `enforce`: load, decide, commit by compare-and-swap, with `commit_stats` and `scratch` (a
//!   worker's memory between requests); `places`: the way to a key's bucket while tables grow;
//!   `agreement`: the values that all workers of a map agree on, with `numbering` (whether the
//!   filter can count on the host) and `clock`; `extents`: how many buckets tables have;
//!   `directories`: the quotas of their records; `repeated`: denials from memory, with
//!   `denial_cache` (denials that this worker saw) and `final_denials` (denials that may be
//!   repeated); `guesses`: this worker's last writes, which need not be read; `waiting`: waiting
//!   requests; `timer`: the host's timer, shared by several users.
//! - `given`: detects a compiled policy; `document`: compiles documents here. Without the feature
//!   `document`, which makes the slim module, only compiled policies are read, and `unread`
//!   replaces `follow`.
//! - `follow`: a policy that comes from a server, with `kept` (the last good one), `turn` (the
//!   worker that compiles).
//! - `paused`: a request under rules of a fleet, with `lease` (its progress); `authority`: the
//!   exchange with the authority, with `question` (one lease request and its response), `pauses`
//!   (waiting requests), `agenda` (leases to return, and when), `breaker` and `crowd`; `spending`:
//!   taking and requesting leases under a policy; `holdings`: the units of a key that the workers
//!   hold; `node_id`: the name of this process in the fleet.
//! - `calls`: requests of our own; `table`: which bucket contains a key, and which key leaves a
//!   full one; `shared_data`: the host's map; `wire`: its serialisations.
//!
//! Invariant: nothing in here can trap on any input; a trap takes the worker's virtual machine
//! down. Deliberately absent: decisions. Those are `tollgate-policy`'s, the same on every surface.
//!
//! The target is `wasm32-unknown-unknown`: measured 8 to 17 KB smaller than `wasm32-wasip1`, and
//! Envoy gives it the same WASI calls. [`KEPT_EXPORTS`] lists the exports of the shipped module.
#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod abi;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod host_clock;
#[cfg(target_arch = "wasm32")]
mod host_metrics;
#[cfg(target_arch = "wasm32")]
mod memory;

/// Every allocation is counted; see `memory`.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: memory::Counted = memory::Counted;

mod access_log;
mod active_policy;
mod address_watch;
mod agenda;
mod agreement;
mod arrival;
mod authority;
mod breaker;
mod crowd;
#[cfg(feature = "document")]
mod document;
mod flow;
#[cfg(feature = "document")]
mod follow;
#[cfg(not(feature = "document"))]
#[path = "unread.rs"]
mod follow;
mod given;
mod guesses;
mod holdings;
#[cfg(feature = "document")]
mod kept;
mod labels;
mod lease;
mod node_id;
mod observer;
mod paused;
mod pauses;
mod pending_response;
mod question;
mod refused_keys;
mod repeated;
mod retry;
mod routes;
mod rule_metrics;
mod said;
mod spending;
mod tally;
mod timer;
#[cfg(feature = "document")]
mod turn;
mod waiting;

pub mod calls;
pub mod claims;
pub mod clock;
pub mod commit_stats;
pub mod config;
pub mod counters;
pub mod denial_cache;
pub mod directories;
pub mod enforce;
pub mod extents;
pub mod facts;
pub mod filter;
pub mod final_denials;
pub mod metric_names;
pub mod metrics;
pub mod numbering;
pub mod places;
pub mod proxy;
pub mod reply;
pub mod scratch;
pub mod shared_data;
pub mod wire;

/// The required exports of the module, one name per line. Every exported callback costs 0.25 to 0.5
/// us per request, so the build strips exports that are not named here (rustc adds two addresses of
/// its own).
pub const KEPT_EXPORTS: &str = include_str!("exports.txt");
