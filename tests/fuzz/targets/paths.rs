//! Path patterns, and a path that they match or not. What holds is in `src/paths.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::paths::check(bytes));
