//! The shared parts of the end-to-end tests: a client on plain sockets, and servers that are always
//! stopped.
//!
//! Invariant: nothing listens or connects beyond the loopback interface, and a process is stopped
//! only by the test that started it. Nothing here knows Envoy; its helpers are next to its tests.

pub mod authority;
pub mod body_costs;
pub mod claims;
pub mod collector;
pub mod crowd;
pub mod day;
pub mod differential;
pub mod envoy_messages;
pub mod fleet_node;
pub mod grpc;
pub mod history;
pub mod http;
pub mod http2;
pub mod identity;
pub mod in_flight;
pub mod leasing;
pub mod login;
pub mod model_server;
pub mod origins;
pub mod paused;
pub mod penalty;
pub mod ports;
pub mod process;
pub mod proxies;
pub mod recorder;
pub mod scripted;
pub mod server;
pub mod settings;
pub mod tls;
pub mod tokens;
pub mod usage;
pub mod values;
pub mod workerd;
