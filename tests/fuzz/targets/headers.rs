//! The lists of addresses that proxies write, and who is then the client. What holds is in
//! `src/headers.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::headers::check(bytes));
