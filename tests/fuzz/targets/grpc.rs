//! gRPC messages that any client might send. The laws are in `src/grpc.rs`.
#![no_main]
#![allow(dead_code)] // the server uses more of its messages

#[path = "../src/grpc.rs"]
mod grpc;
#[path = "../../../crates/tollgate-server/src/messages/mod.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| grpc::check(bytes));
