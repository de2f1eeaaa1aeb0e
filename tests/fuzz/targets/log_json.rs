//! Logs in lines of JSON. What holds is in `src/logs.rs`.
#![no_main]

#[path = "../src/logs.rs"]
mod logs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| logs::check(&["json", "envoy-json"], bytes));
