//! The gRPC messages of Envoy's rate limit service, Envoy's external authorization, and gRPC's
//! health protocol.
//!
//! Invariant: any bytes yield a message or an error that gives the reason. Messages are read in
//! place: fields that are not needed are skipped, so a message of one megabyte with ten thousand
//! descriptors allocates nothing before it is rejected. Deliberately absent: sockets, the contents
//! of the responses, and a compiler of `.proto` files; the field numbers are written here, with
//! their names.
//!
//! Modules are listed in import order: each imports only modules declared below it.

pub mod authorization;
pub mod health;
pub mod rate_limit;
pub mod header_value;
pub mod frame;
pub mod status;
pub mod wire;
