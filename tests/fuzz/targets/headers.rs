//! The lists of addresses that proxies write, and the client that follows from them. The laws are
//! in `src/headers.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::headers::check(bytes));
