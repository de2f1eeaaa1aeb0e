//! Messages of gRPC as anybody might send them. What holds is in `src/grpc.rs`.
#![no_main]

#[path = "../src/grpc.rs"]
mod grpc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| grpc::check(bytes));
