//! Bytes that the engine, or a program in its place, might send as replies. The laws are in
//! `src/engine.rs`.
#![no_main]

#[path = "../src/engine.rs"]
mod engine;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine::check(bytes));
