//! Messages about leases, as a node or an authority might get them. The laws are in
//! `src/leases.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz::leases::check(bytes));
