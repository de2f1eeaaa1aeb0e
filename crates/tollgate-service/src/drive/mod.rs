//! The machine that decides one request over any store, and the lines in which requests wait.
//!
//! Invariant: sans-I/O: no clock, no random number and no await. The caller sends what
//! [`Drive::next`] returns, and passes replies in any order, late, twice or never; each is used at
//! most once.

mod charging;
mod denials;
mod requests;
pub mod waiting;

/// How often a request is planned again under a newer policy, or another entry of its tenant. A
/// policy is rarely replaced again meanwhile; after that `on_failure` decides.
pub const MAX_REPLANS: u32 = 2;

pub use charging::{Drive, Order};
pub use denials::DenialCache;
pub use requests::{ConfirmedCharge, MissingReply, Next, ReplyOutcome, Request, RequestId};
pub use waiting::WaitBudget;
