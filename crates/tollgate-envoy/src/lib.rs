//! Tollgate as an Envoy HTTP filter: a proxy-wasm module.
//!
//! `abi` is what Envoy calls, `host`, `host_clock` and `host_metrics` make every call to Envoy,
//! `memory` counts what is taken; these exist in the wasm build alone. The rest runs over any
//! `proxy` and is tested natively, from the top down:
//!
//! - `filter`: contexts and their callbacks, with `flow`; `arrival`: a request's first decision;
//!   `retry`: a request that waits; `pending_response`: what goes onto a response.
//! - `active_policy`: a policy in force, with `config` (the policy out of the plugin
//!   configuration), `routes` (those of routes that name one), `facts` and `claims` (what a
//!   request is) and `reply`.
//! - What an operator sees: `observer`, with `metrics`, `rule_metrics`, `metric_names` (how many
//!   there may be), `labels`, `tally` (what is counted until it is handed over), `access_log`,
//!   `refused_keys` and `address_watch`; `said`: what the log was told, by any worker.
//! - `enforce`: load, decide, commit by compare-and-swap, with `commit_stats` and `scratch` (what
//!   a worker keeps between requests); `places`: the way to a key's bucket while tables grow;
//!   `agreement`: what all workers of a map agree on, with `numbering` (whether the host can be
//!   counted with) and `clock`; `extents`: how far tables reach; `directories`: what quotas their
//!   records are of; `repeated`: denials from memory, with `denial_cache` (what this worker saw
//!   denied) and `final_denials` (what may be repeated); `guesses`: what it wrote last, which need
//!   not be read; `waiting`: those who wait; `timer`: the host's, for all who want to be called.
//! - `given`: what a configuration is; `document`: what is compiled here. Without the feature
//!   `document`, which makes the slim module, only what was compiled before is read, and `unread`
//!   stands where `follow` does.
//! - `follow`: a policy that comes from a server, with `kept` (the last good one), `turn` (who
//!   compiles).
//! - `paused`: a request under rules of a fleet, with `lease` (how far it is); `authority`: what is
//!   asked, with `question` (one, and its answer), `pauses` (who waits), `agenda` (what goes back,
//!   and when), `breaker` and `crowd`; `spending`: what is taken and asked under a policy;
//!   `holdings`: what the workers hold of a key; `node_id`: what this process is called there.
//! - `calls`: requests of our own; `table`: which bucket holds a key, and who leaves a full one;
//!   `shared_data`: the host's map; `wire`: its serialisations.
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

/// What the module must export, one name a line: every callback that is exported costs 0.25 to 0.5
/// us of every request, so the build strips what is not named here (rustc adds two addresses of its
/// own).
pub const KEPT_EXPORTS: &str = include_str!("exports.txt");
