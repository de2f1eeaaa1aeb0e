//! The counts of one key as bytes, wherever they are stored: the rows of a store that decides by
//! itself, the requests to it and its replies, the leases of a fleet, and the buckets of a bounded
//! table.
//!
//! Invariant: these bytes contain no key and nothing that a client sent, only identities of rules,
//! their quotas and costs. The process that counts has no policy: a request contains the quotas
//! that decide it, and the row contains the quotas of its states, so that neither is ever decided
//! by the other's quotas. Nothing here does I/O or reads a clock.
//!
//! Deliberately absent: the rules, and which of them a request is charged to; that is
//! `tollgate-policy`'s, which writes the requests and reads the replies.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod table;
mod leases;
mod operate;
mod settle;
mod in_flight;
mod counts;
mod decide;
mod row;
mod row_shape;
mod limiter_bytes;
mod marks;
mod settled;
mod released;
mod counted_set;
mod reply;
mod request;
pub mod wire;
mod counted;
mod due;
mod stored_set;
mod bytes;

pub use bytes::{Bytes, push_block};
pub use counted::{Counted, Counter};
pub use counts::{Answered, Counts};
pub use due::Due;
pub use in_flight::{InFlightReport, max_age_of};
pub use leases::account::{LeaseReport, NoLease};
pub use leases::ask::{
    LeaseAsk, LeaseGrant, Leased, Leasing, MAX_LEASE_REPORTS, MAX_LEASE_SETS, read_leased,
};
pub use leases::clock::{CLOCK_ERROR, Clock, DEFAULT_LEASE, MAX_LEASE_LIFE};
pub use leases::holdings::{Holdings, HoldingsClaim};
pub use leases::last_answer::{DirectAnswer, LastAnswer};
pub use leases::lease::{LeaseId, MAX_LEASES};
pub use leases::message::{
    LeaseKey, LeaseQuestion, LeaseReply, LeaseRule, MAX_LEASE_KEYS, MAX_LEASE_MESSAGE, key_hash,
};
pub use leases::node::{Holding, Taken};
pub use leases::paces::Paces;
pub use leases::shard::{Shard, ShardMode, Sharded};
pub use leases::shard_reply::{HeldRule, HeldWord, read_held};
pub use limiter_bytes::{read_limiter, write_limiter};
pub use marks::block;
pub use operate::{KeyOperation, KeyState, MAX_BLOCK, QuotaUse};
pub use released::MAX_RELEASED;
pub use reply::{Reply, RuleReply, is_used_up};
pub use request::{Head, RuleHead};
pub use row_shape::RowShape;
pub use settle::Settlement;
pub use settled::{MAX_SETTLED, SETTLE_WITHIN};
pub use stored_set::{
    MAX_QUOTAS, StoredQuota, StoredSet, WORD, carry_set, marked, write_parameters,
};
pub use wire::WireError;
