//! Valkey or Redis as the store that many servers share.
//!
//! What is decided and when it is an answer is [`commit`]'s; here are the connections, the
//! few commands that it takes, and which node a key is on.
//!
//! The one invariant: every call is carried at most once, and exactly one reply of it is brought
//! back. Who carries a call twice would give units back twice. A call that may have been sent
//! and was not answered is unknown; only one that certainly was not is refused.
//!
//! Nothing that a client sent is in the engine: keys are a prefix and a hash.
//!
//! Deliberately absent: the crate `redis`. It waits for a reply of any size that the engine names,
//! its cluster client repeats calls by itself and does not say which node answered, and clocks here
//! are a node's own. Of the protocol we speak a dozen commands.
//!
//! The modules stand in the order in which they import: each only what is declared below it.
#![forbid(unsafe_code)]

mod log;
mod engine;
mod options;
mod observe;
mod watch;
mod carry;
mod topology;
mod node;
mod replicas;
mod connection;
mod warning;
mod tls;
pub mod reply;
pub mod resp;
mod address;
mod slot;
pub mod commit;

pub use address::{Address, BadAddress, Kind};
pub use commit::{Ask, Failed, Fault, Name, Settings, Tally};
pub use engine::Engine;
pub use observe::{Observer, RoundTrip, Tag};
pub use options::Options;
pub use replicas::Replicas;
pub use tls::{BadFile, Tls, TlsFiles};
pub use warning::Warning;
