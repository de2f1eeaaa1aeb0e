//! gRPC messages that any client might send. The laws are in `src/grpc.rs`.
#![no_main]

#[path = "../src/grpc.rs"]
mod grpc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| grpc::check(bytes));
