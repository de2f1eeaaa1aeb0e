//! Tollgate as an Envoy HTTP filter: a proxy-wasm module.
//!
//! `filter` dispatches Envoy's callbacks, `owed` writes onto responses, `host` makes every call to Envoy; these exist
//! in the wasm build alone. The rest is pure and tested natively: `config` (the policy out of the plugin configuration),
//! `facts` (what a request is), `table` (which way of which bucket holds a key), `enforce` (load,
//! decide, commit by compare-and-swap), `denials` (what this worker saw denied), `waiting` (delayed requests), `reply` and `metrics`.
//!
//! Invariant: nothing in here can trap on any input; a trap takes the worker's virtual machine down.
//! Deliberately absent: decisions. Those are `tollgate-policy`'s, the same on every surface.
//!
//! The target is `wasm32-unknown-unknown`: measured 8 to 17 KB smaller than `wasm32-wasip1`, and Envoy gives
//! it the same WASI calls. [`KEPT_EXPORTS`] is what the shipped module exports.
#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod filter;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod owed;

pub mod config;
pub mod denials;
pub mod enforce;
pub mod facts;
pub mod metrics;
pub mod pairs;
pub mod reply;
pub mod structpb;
pub mod table;
pub mod waiting;

/// What the module must export, one name a line; every other export of the SDK is a callback that does
/// nothing here and costs 0.25 to 0.5 us of every request, so the build strips them.
pub const KEPT_EXPORTS: &str = include_str!("exports.txt");
