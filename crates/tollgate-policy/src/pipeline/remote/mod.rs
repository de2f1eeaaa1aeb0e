//! Partitions counted elsewhere, by a Durable Object or by a row of any other store that decides by
//! itself: the requests to it, and its replies. What it does is in `tollgate-storage`.

pub(crate) mod entry;
pub(crate) mod outdated;
pub(crate) mod operate;
pub(crate) mod spend;
pub(crate) mod lease_request;
pub(crate) mod stored_counts;
pub(crate) mod accept;
pub(crate) mod request;
