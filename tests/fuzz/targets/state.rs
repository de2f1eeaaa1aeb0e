//! Bytes that a store or a peer might return. The laws are in `src/state.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::state::check(bytes));
