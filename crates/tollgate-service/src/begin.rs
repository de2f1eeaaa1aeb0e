//! One request to the service, from its head to its answer.
//!
//! Invariant: nothing is read of a body, and nothing asked of a store, before the request was found
//! to be allowed to.

use alloc::vec::Vec;

use crate::answer::Answer;
use crate::service::{Call, Service};
use crate::store::{StoreCall, StoreReply};

/// What comes next.
pub enum Next {
    /// This is the answer.
    Answer(Answer),
    /// Read the body, then go on with [`WantsBody::read`].
    Body(WantsBody),
    /// Ask the store, then go on with [`WantsStore::answered`].
    Store(WantsStore),
}

/// A request whose body is wanted.
pub struct WantsBody {
    limit: usize,
}

/// A request that needs an answer of the store.
pub struct WantsStore {
    call: StoreCall,
}

impl Service<'_> {
    /// Looks at the head of a request below `/.well-known/tollgate/`. Never fails: what is wrong is
    /// answered.
    #[must_use]
    pub fn begin(&self, call: &Call<'_>) -> Next {
        let detail = alloc::format!("nothing is at {}", call.target.len());
        Next::Answer(Answer::problem(404, "Not Found", &detail))
    }
}

impl WantsBody {
    /// The most bytes to read.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Goes on with the body; `None` when it is longer than the limit, or broke off.
    #[must_use]
    pub fn read(self, service: &Service<'_>, body: Option<Vec<u8>>) -> Next {
        let _ = (service, body);
        Next::Answer(Answer::problem(404, "Not Found", ""))
    }
}

impl WantsStore {
    /// What to ask the store.
    #[must_use]
    pub const fn call(&self) -> &StoreCall {
        &self.call
    }

    /// Goes on with what the store answered.
    #[must_use]
    pub fn answered(self, service: &Service<'_>, reply: StoreReply) -> Next {
        let _ = (service, reply);
        Next::Answer(Answer::problem(404, "Not Found", ""))
    }
}
