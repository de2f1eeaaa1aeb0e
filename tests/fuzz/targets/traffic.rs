//! Traffic documents. The laws are in `src/traffic.rs`.
#![no_main]

#[path = "../src/traffic.rs"]
mod traffic;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| traffic::check(bytes));
