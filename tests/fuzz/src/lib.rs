//! The bodies of the fuzz targets: the laws that must hold for any bytes.
//!
//! Invariant: a body accepts any bytes, and panics only when a law is broken. These modules do not
//! depend on the fuzzer, so that `crates/tollgate-policy/tests/corpora.rs` replays the corpora
//! without it. `logs.rs` is a module of its targets and of `tollgate-access-log`'s test, because
//! nothing else here imports that crate; `traffic.rs` the same with `tollgate-lab`, `engine.rs`
//! with `tollgate-redis`, `grpc.rs` with `tollgate-server`, `json_body.rs` with
//! `tollgate-http-syntax`, and `convert.rs` with the unit tests of `tollgate-cli`.

pub mod compiled;
pub mod counts;
pub mod headers;
pub mod leases;
pub mod paths;
pub mod policy;
pub mod request;
pub mod response;
pub mod state;
pub mod succession;
pub mod values;
