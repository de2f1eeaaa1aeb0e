//! `grpc.health.v1`: whether requests should be sent here.
//!
//! Invariant: the status is that of `/ready`: it ends with SIGTERM, before anything else does. A
//! watcher gets its first message and the end of the server, and nothing between them. A watcher
//! holds a stream for as long as the server lives, and any client may watch. So there is a fixed
//! number of places, of which no address has more than its part.

use std::net::IpAddr;
use std::sync::Arc;

use crate::messages::health;
use crate::messages::status::{Code, Status};
use crate::messages::{authorization, rate_limit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::http::protocols::Protocols;
use crate::listen::addresses::{Addresses, ConnectionSlot};

/// The number of watchers at a time, and of one address: more than any server has load balancers,
/// and more than the threads of a load balancer that watch separately.
const MAX_WATCHERS: usize = 256;
const MAX_OF_ONE: usize = 32;

/// The watchers of the server's end.
#[derive(Debug)]
pub struct Watchers {
    ending: watch::Sender<bool>,
    places: Arc<Semaphore>,
    addresses: Arc<Addresses>,
}

impl Default for Watchers {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(MAX_WATCHERS));
        let addresses = Arc::new(Addresses::new(MAX_OF_ONE));
        Self { ending: watch::Sender::new(false), places, addresses }
    }
}

impl Watchers {
    /// Announces that from now on no requests should be sent here.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// True after that announcement.
    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// A place for `peer` to watch from.
    ///
    /// # Errors
    /// There is no place left, or none for this address.
    pub(crate) fn watch(&self, peer: IpAddr) -> Result<Watcher, Status> {
        let of_one = self.addresses.take(peer).ok_or_else(|| {
            let message =
                format!("at most {MAX_OF_ONE} of one address may watch; ask now and then instead");
            Status::new(Code::ResourceExhausted, message)
        })?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let message = format!("at most {MAX_WATCHERS} may watch; ask now and then instead");
            Status::new(Code::ResourceExhausted, message)
        })?;
        Ok(Watcher { ending: self.ending.subscribe(), _places: (place, of_one) })
    }
}

/// A place to watch from.
pub(crate) struct Watcher {
    ending: watch::Receiver<bool>,
    _places: (OwnedSemaphorePermit, ConnectionSlot),
}

impl Watcher {
    /// Until the server ends.
    pub(crate) async fn ended(mut self) {
        let _ = self.ending.wait_for(|is_ending| *is_ending).await;
    }
}

/// True when the service that `message` names is supported here.
///
/// # Errors
/// It is malformed.
pub(crate) fn is_known(spoken: Protocols, message: &[u8]) -> Result<bool, Status> {
    let service = health::service(message)?;
    let is = |name: &str| service == name.as_bytes();
    Ok(service.is_empty()
        || is(health::SERVICE)
        || (spoken.rate_limit && is(rate_limit::SERVICE))
        || (spoken.ext_authz && is(authorization::SERVICE)))
}
