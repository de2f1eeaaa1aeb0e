//! The policy in force as an isolate knows it, and the requests that wait for a newer one.
//!
//! Invariant: what is known is not borrowed across an await. Deliberately absent: asking the policy
//! object; that is in `follow`.

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_service::following::Following;

use crate::active::Active;
use crate::runtime::js::{self, Bell};

/// The policy that an isolate knows, and the requests that wait for a newer one.
pub(crate) struct Follower {
    /// Not borrowed across an await.
    pub(crate) following: RefCell<Following<Rc<Active>>>,
    pub(crate) bell: Bell,
    /// The fingerprint by which the policy object knows the deployed file.
    pub(crate) fingerprint: u64,
}

impl Follower {
    pub(crate) fn new(fingerprint: u64) -> Self {
        Self { following: RefCell::default(), bell: js::bell(), fingerprint }
    }
}
