//! Logs in the formats of nginx and Apache. What holds is in `src/logs.rs`.
#![no_main]

#[path = "../src/logs.rs"]
mod logs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| logs::check(
    &["combined", "common", "vhost", "nginx", "nginx-json", "nginx-none"],
    bytes
));
