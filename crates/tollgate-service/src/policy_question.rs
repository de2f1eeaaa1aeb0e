//! The question which policy is in force, as a store of rules is asked.
//!
//! Invariant: the text of the deployed file is sent at most once per question, and only to a store
//! that does not have it.

use alloc::format;
use alloc::string::String;

use crate::store::policy::{Current, Deployed, PolicyCall, PolicyReply};
use crate::store::{StoreCall, StoreReply};

/// The calls of one check to a store of rules, which is asked again with the text of the deployed
/// file when it does not have it. The text is sent once.
#[derive(Debug)]
pub struct PolicyQuestion {
    fingerprint: u64,
    text: Option<String>,
    has_sent_text: bool,
}

impl PolicyQuestion {
    /// A question about the file with this fingerprint; the first call brings `text`, if the store
    /// is known to need it.
    #[must_use]
    pub const fn new(fingerprint: u64, text: Option<String>) -> Self {
        Self { fingerprint, text, has_sent_text: false }
    }

    /// The next call, at `now_ms` since 1970, where `known` is of
    /// [`Following::known`](crate::following::Following::known).
    pub fn call(&mut self, (known, seen): (Option<u64>, Option<u64>), now_ms: u64) -> StoreCall {
        self.has_sent_text = self.text.is_some();
        let deployed = Deployed { fingerprint: self.fingerprint, text: self.text.take() };
        StoreCall::Policy(PolicyCall::Read { deployed, known, seen, now_ms })
    }

    /// Takes the reply of `store`, whose name is for messages. `None` when there is another call,
    /// with `text`.
    ///
    /// # Errors
    /// The reason that the store named no policy.
    pub fn receive(
        &mut self,
        reply: StoreReply,
        store: &str,
        text: impl FnOnce() -> String,
    ) -> Option<Result<Current, String>> {
        match reply {
            StoreReply::Policy(PolicyReply::Current(current)) => Some(Ok(current)),
            StoreReply::Policy(PolicyReply::SendText) if !self.has_sent_text => {
                self.text = Some(text());
                None
            }
            StoreReply::Failed(why) => Some(Err(why)),
            StoreReply::Policy(_)
            | StoreReply::Tenants(_)
            | StoreReply::Keys(_)
            | StoreReply::Usage(_)
            | StoreReply::Metrics(_) => Some(Err(format!("{store} sent an unexpected response"))),
        }
    }
}
