//! The proxy-wasm module that Envoy loads: `tollgate-filter` over the ABI.
//!
//! `abi` is what Envoy calls; every call to Envoy is in `tollgate-wasm-host`. All of it exists in
//! the wasm build alone. `exports.txt` lists what a module exports: every exported callback costs
//! 0.25 to 0.5 us per request, so the build strips the others.
//!
//! Invariant: nothing in here can trap on any input. Deliberately not here: what the filter does.
//!
//! The target is `wasm32-unknown-unknown`: measured 8 to 17 KB smaller than `wasm32-wasip1`, and
//! Envoy gives it the same WASI calls.
#![deny(unsafe_code)]
#![cfg(target_arch = "wasm32")]

mod abi;

/// Every allocation is counted.
#[global_allocator]
static ALLOCATOR: tollgate_wasm_host::memory::Counted = tollgate_wasm_host::memory::Counted;
