//! Bytes as the engine, or what stands in its place, might answer. What holds is in
//! `src/engine.rs`.
#![no_main]

#[path = "../src/engine.rs"]
mod engine;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine::check(bytes));
