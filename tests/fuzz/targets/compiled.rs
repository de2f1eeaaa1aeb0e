//! The body of a compiled policy, with the checksum that it needs. The laws are in
//! `src/compiled.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::compiled::check(bytes));
