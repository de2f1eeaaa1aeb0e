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
pub mod operate;
pub mod settle;
pub mod counts;
mod decide;
mod row;
pub mod marks;
pub mod settled;
mod kept;
pub mod reply;
mod asked;
pub mod request;
pub mod wire;
pub mod counted;
pub mod due;
pub mod stored_set;
