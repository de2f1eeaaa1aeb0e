//! What an operator says of an engine.
//!
//! Invariant: everything but the address has a value that holds without being set.

use std::sync::Arc;
use std::time::Duration;

use crate::commit::Settings;

use crate::address::Address;
use crate::observe::Observer;
use crate::replicas::Replicas;
use crate::tls::Tls;

/// What an operator says of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is.
    pub address: Address,
    /// What it is spoken to over, where the address wants TLS.
    pub tls: Option<Arc<Tls>>,
    /// What the names of keys begin with: several fleets may share an engine.
    pub prefix: String,
    /// Names are hashes under this: who reads the engine cannot find a key by trying.
    pub secret: Vec<u8>,
    /// How long one call may take.
    pub timeout: Duration,
    /// How many replicas must have a commit before it counts; nothing: the primary is enough.
    pub replicas: Option<Replicas>,
    /// Bounds and tolerances.
    pub settings: Settings,
    /// How many threads decide at the same time, at the most.
    pub shards: usize,
    /// Who is told of round trips, if anybody is.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Options {
    /// Everything but the address as it is without being set.
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
