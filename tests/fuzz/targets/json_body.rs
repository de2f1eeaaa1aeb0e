//! Bodies of responses in JSON, as an origin might send them. The laws are in `src/json_body.rs`.
#![no_main]

#[path = "../src/json_body.rs"]
mod json_body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| json_body::check(bytes));
