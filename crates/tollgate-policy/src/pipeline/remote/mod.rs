//! Partitions counted elsewhere: what goes to a Durable Object (or a row of any other store that
//! decides by itself), what comes back, and what is kept there.
//!
//! Invariant: no key and nothing that a client sent is in these bytes, only identities of rules,
//! their quotas and costs. Whoever counts has no policy: a request brings the quotas that it is to
//! be decided by, and the row keeps those of its states beside them, so that neither ever decides
//! by the other's. Nothing here does I/O or reads a clock.

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
