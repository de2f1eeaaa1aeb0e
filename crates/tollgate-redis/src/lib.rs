//! Valkey or Redis as the store that many servers share.
//!
//! [`commit`] decides, and determines when a response may leave; this crate has the
//! connections, the few commands that are needed, and the location of each key.
//!
//! The one invariant: every call is sent at most once, and exactly one reply to it is returned. A
//! transport that repeated a call would return units twice. A call that may have been sent and has
//! no reply is unknown; only a call that was certainly not applied is reported as refused.
//!
//! The engine contains nothing that a client sent: keys are a prefix and a hash.
//!
//! Deliberately absent: the crate `redis`. It waits for a reply of any size that the engine
//! announces, its cluster client repeats calls on its own and does not report which node replied,
//! and clocks here are per node. This crate uses a dozen commands of the protocol.
//!
//! Modules are listed in import order: each imports only modules declared below it.
#![forbid(unsafe_code)]

mod log;
mod engine;
mod options;
mod observe;
mod watch;
mod transport;
mod topology;
mod node;
mod replicas;
mod connection;
mod info;
mod tls;
pub mod reply;
pub mod resp;
mod address;
pub mod commit;

pub use address::{Address, BadAddress, Kind};
pub use commit::{Failed, Fault, KeyRequest, Name, Settings, Tally};
pub use engine::Engine;
pub use info::Warning;
pub use observe::{Observer, RoundTrip, Tag};
pub use options::Options;
pub use replicas::Replicas;
pub use tls::{BadFile, Tls, TlsFiles};
