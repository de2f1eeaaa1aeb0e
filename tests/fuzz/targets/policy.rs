//! A policy document, and a request that it decides. The laws are in `src/policy.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::policy::check(bytes));
