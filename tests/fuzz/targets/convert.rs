//! Configurations of `envoyproxy/ratelimit`. What holds is in `src/convert.rs`.
#![no_main]
#![allow(dead_code)] // the command line has more use of its modules

#[path = "../src/convert.rs"]
mod convert;
#[path = "../../../crates/tollgate-cli/src/ratelimit/mod.rs"]
mod ratelimit;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| convert::check(bytes));
