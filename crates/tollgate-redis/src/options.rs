//! The operator's options of an engine.
//!
//! Invariant: every option but the address has a default.

use std::sync::Arc;
use std::time::Duration;

use crate::commit::Settings;

use crate::address::Address;
use crate::observe::Observer;
use crate::replicas::Replicas;
use crate::tls::Tls;

/// The operator's options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of the engine.
    pub address: Address,
    /// TLS, if the address requires it.
    pub tls: Option<Arc<Tls>>,
    /// The prefix of all keys: several fleets may share an engine.
    pub prefix: String,
    /// Names are hashes under this secret: a reader of the engine's data cannot find a key by
    /// guessing.
    pub secret: Vec<u8>,
    /// How long one call may take.
    pub timeout: Duration,
    /// How many replicas must have a commit before it counts; `None`: the primary is enough.
    pub replicas: Option<Replicas>,
    /// Bounds and tolerances.
    pub settings: Settings,
    /// The maximum number of threads that decide at the same time.
    pub shards: usize,
    /// The observer of round trips, if any.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Options {
    /// The defaults for an address.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            tls: None,
            prefix: "tollgate:".to_owned(),
            secret: Vec::new(),
            timeout: Duration::from_millis(250),
            replicas: None,
            settings: Settings::default(),
            shards: 4,
            observer: None,
        }
    }
}
