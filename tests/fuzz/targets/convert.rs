//! Configurations of `envoyproxy/ratelimit`. The laws are in `src/convert.rs`.
#![no_main]
#![allow(dead_code)] // the command line uses more of its modules

#[path = "../src/convert.rs"]
mod convert;
#[path = "../../../crates/tollgate-cli/src/ratelimit/mod.rs"]
mod ratelimit;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| convert::check(bytes));
