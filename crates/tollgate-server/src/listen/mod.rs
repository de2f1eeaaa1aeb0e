//! Listeners: connections, TLS, the peer, and the end of the server.
//!
//! Invariant: the number of connections is bounded, in all and per address, and a request that has
//! begun gets its response before the process ends. Deliberately not here: the meaning of a
//! request.

pub(crate) mod addresses;
pub(crate) mod begun;
pub(crate) mod connection;
pub(crate) mod descriptors;
pub(crate) mod operations;
pub mod peer;
pub(crate) mod server;
pub(crate) mod tls;
