//! Path patterns, and a path that they match or not. The laws are in `src/paths.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::paths::check(bytes));
