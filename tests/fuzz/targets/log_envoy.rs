//! Logs in Envoy's text. The laws are in `src/logs.rs`.
#![no_main]

#[path = "../src/logs.rs"]
mod logs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| logs::check(&["envoy"], bytes));
