//! Partitions counted elsewhere: the requests to a Durable Object (or a row of any other store that
//! decides on its own), the replies, and the stored rows.
//!
//! Invariant: these bytes contain no key and nothing that a client sent, only identities of rules,
//! their quotas and costs. The process that counts has no policy: a request contains the quotas
//! that decide it, and the row contains the quotas of its states, so that neither is ever decided
//! by the other's quotas. Nothing here does I/O or reads a clock.

pub(crate) mod leases;
pub(crate) mod format_1;
pub(crate) mod entry;
pub(crate) mod operate;
pub(crate) mod settle;
pub(crate) mod counts;
pub(crate) mod decide;
pub(crate) mod row;
pub(crate) mod marks;
pub(crate) mod settled;
pub(crate) mod kept;
pub(crate) mod reply;
pub(crate) mod asked;
pub(crate) mod request;
pub(crate) mod wire;
