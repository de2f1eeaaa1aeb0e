//! The host of `tollgate-filter` in a proxy-wasm module: the ABI's imports, and no exports.
//!
//! `host`, `host_clock` and `host_metrics` make every call to the host; `memory` counts allocated
//! bytes. All of it exists in the wasm build alone. Two modules use it: `tollgate-envoy`, which
//! exports the ABI itself, and filters with `tollgate-proxy-wasm`, where the SDK does. The imports
//! of two crates are one import in a module; the exports of two would clash.
//!
//! Invariant: nothing in here can trap on any input, and nothing is exported. Deliberately not
//! here: what the filter does.
#![deny(unsafe_code)]
#![cfg(target_arch = "wasm32")]

pub mod host;
mod host_clock;
mod host_functions;
mod host_metrics;
pub mod memory;
