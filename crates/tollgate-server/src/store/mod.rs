//! The store of counts and rules: memory, or an engine that several servers share.
//!
//! Invariant: bytes in, bytes out. [`Partition::request`](tollgate_policy::Partition::request)
//! writes a partition's request, and its reply is for
//! [`PartitionMut::accept`](tollgate_policy::PartitionMut::accept); a [`StoreCall`] has its
//! [`StoreReply`]. A store that does not respond is a failure with a name, never an endless wait.
//! Deliberately absent: a trait. There are few stores, they are listed here, and the compiler asks
//! each of them for every operation.

mod request;
#[cfg(test)]
mod failing;
mod folder;
mod journal;
pub mod memory;
pub mod redis;
mod row;
mod rules;
pub mod table;

use tollgate_core::{Span, Timestamp};
use tollgate_redis::Engine;
use tollgate_service::settle::Sealer;
use tollgate_service::{StoreCall, StoreReply};

use self::memory::Memory;
use self::redis::Redis;
pub use self::request::{ClockKind, Name, NoReply, StoreRequest};

/// A store.
#[derive(Debug)]
pub enum Store {
    /// In this process: exact for the callers of this one server.
    Memory(Memory),
    /// In an engine that several servers share.
    Redis(Redis),
}

impl Store {
    /// The name of the count of a partition's key: a hash under a secret, so that callers may get
    /// it (the ids of costs that are settled later contain it).
    #[must_use]
    pub fn name_of(&self, key: &[u8], clock: ClockKind) -> Name {
        match self {
            Self::Memory(memory) => memory.name_of(key, clock),
            Self::Redis(redis) => redis.name_of(key),
        }
    }

    /// The sealer of the ids of costs that are settled later; `None` where they could not be
    /// settled.
    #[must_use]
    pub const fn sealer(&self) -> Option<&Sealer> {
        match self {
            Self::Memory(memory) => memory.sealer(),
            Self::Redis(redis) => redis.sealer(),
        }
    }

    /// Sends a request to the count of this name.
    ///
    /// # Errors
    /// There is no reply.
    pub async fn ask(&self, name: &Name, ask: StoreRequest<'_>) -> Result<Vec<u8>, NoReply> {
        match self {
            Self::Memory(memory) => memory.ask(name, ask),
            // Boxed: a request to memory would move this future, which is far longer than its own.
            Self::Redis(redis) => Box::pin(redis.ask(name, ask)).await,
        }
    }

    /// Carries out a call on policies or tenants. Calls on keys and metrics go to the part that
    /// decides.
    pub async fn rules(&self, call: &StoreCall) -> StoreReply {
        match self {
            Self::Memory(memory) => memory.rules(call).await,
            Self::Redis(redis) => redis.rules(call).await,
        }
    }

    /// Called about once a second, for periodic work.
    pub fn tick(&self, number: usize, now: Timestamp) {
        match self {
            Self::Memory(memory) => memory.tick(number, now),
            Self::Redis(_) => {}
        }
    }

    /// The contents of the store, for its metrics in addition to those of requests.
    #[must_use]
    pub fn held(&self) -> table::Occupancy {
        match self {
            Self::Memory(memory) => memory.held(),
            Self::Redis(_) => table::Occupancy::default(),
        }
    }

    /// The reason that no change of the rules could be kept when the server began, if none could.
    #[must_use]
    pub fn unwritable(&self) -> Option<&str> {
        match self {
            Self::Memory(memory) => memory.unwritable(),
            Self::Redis(_) => None,
        }
    }

    /// False while requests are known to fail: the engine does not respond.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.engine().is_none_or(Engine::is_reachable)
    }

    /// How long a call may take, where the counts are not in this process.
    #[must_use]
    pub const fn timeout(&self) -> Option<Span> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.timeout()),
        }
    }

    /// The engine, where there is one.
    #[must_use]
    pub const fn engine(&self) -> Option<&Engine> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.engine()),
        }
    }
}
