//! The Worker in a real workerd, and its wasm in Node under a clock of the test. Run by
//! `cargo xtask test workerd`, which says where workerd, Node and the Worker are.

mod worker_durable;
mod worker_exact;
