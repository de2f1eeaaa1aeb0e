//! Bytes as a store or a peer might give them back. What holds is in `src/state.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::state::check(bytes));
