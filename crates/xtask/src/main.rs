//! The one entry point for building, running and testing Tollgate.
fn main() {}
