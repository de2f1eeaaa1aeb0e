//! The counts of one key as bytes, wherever they are stored: the rows of a store that decides by
//! itself, the requests to it and its replies, and the leases of a fleet.
//!
//! Invariant: these bytes contain no key and nothing that a client sent, only identities of rules,
//! their quotas and costs. The process that counts has no policy: a request contains the quotas
//! that decide it, and the row contains the quotas of its states, so that neither is ever decided
//! by the other's quotas. Nothing here does I/O or reads a clock.
//!
//! Deliberately absent: the rules, and which of them a request is charged to; that is
//! `tollgate-policy`'s, which writes the requests and reads the replies.
//!
//! The modules are listed in the order of their imports: each imports only modules declared below
//! it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod leases;
mod operate;
mod settle;
mod counts;
mod decide;
mod row;
pub mod marks;
mod settled;
mod kept;
pub mod reply;
mod asked;
pub mod request;
pub mod wire;
pub mod counted;
pub mod due;
pub mod stored_set;

pub use counts::{Answered, Counts};
pub use leases::account::{LeaseReport, NoLease};
pub use leases::ask::{
    LeaseAsk, LeaseGrant, Leased, Leasing, MAX_LEASE_REPORTS, MAX_LEASE_SETS, read_leased,
};
pub use leases::clock::{CLOCK_ERROR, Clock, MAX_LEASE_LIFE};
pub use leases::holdings::{Holdings, HoldingsClaim};
pub use leases::last_answer::DirectAnswer;
pub use leases::lease::{LeaseId, MAX_LEASES};
pub use leases::message::{
    LeaseKey, LeaseQuestion, LeaseReply, LeaseRule, MAX_LEASE_KEYS, MAX_LEASE_MESSAGE, key_hash,
};
pub use leases::node::{Holding, Taken};
pub use leases::shard::{Shard, ShardMode, Sharded};
pub use operate::{KeyOperation, KeyState, MAX_BLOCK};
pub use settle::Settlement;
pub use settled::{MAX_SETTLED, SETTLE_WITHIN};
pub use stored_set::{StoredQuota, StoredSet, carry_set};
pub use wire::WireError;
