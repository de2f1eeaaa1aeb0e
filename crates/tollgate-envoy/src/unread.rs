//! The slim module's replacement for the reader of documents: there is nothing that it could
//! follow.
//!
//! Invariant: an operator without a compiled policy gets a clear message; no value of type
//! [`Follower`] exists.

use tollgate_core::Timestamp;

use crate::active_policy::ActivePolicy;
use crate::config::Config;
use crate::proxy::Proxy;

/// Uninhabited: a server's policy is a document.
pub struct Follower<H> {
    never: std::convert::Infallible,
    host: std::marker::PhantomData<H>,
}

impl<H: Proxy> Follower<H> {
    /// The plugin begins with its own configuration.
    pub fn begin<T>(_: &H, own: Config, _: Vec<u8>, _: &T) -> (Config, Option<Self>) {
        debug_assert!(own.policy_from.is_none(), "a compiled policy follows nobody");
        (own, None)
    }

    /// See the module.
    pub fn end(&self) {
        match self.never {}
    }

    /// See the module.
    pub fn wants_at(&self) -> Option<Timestamp> {
        match self.never {}
    }

    /// See the module.
    pub fn tick(&self, _: Timestamp) -> Option<ActivePolicy<H>> {
        match self.never {}
    }

    /// See the module.
    pub fn answered(&self, _: u32, _: usize, _: Timestamp) -> bool {
        match self.never {}
    }
}
