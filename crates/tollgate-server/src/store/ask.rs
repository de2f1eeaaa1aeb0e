//! What a store is asked about one partition, and why it may give no reply.
//!
//! Invariant: values only.

/// What a count is called: a hash of its key under a secret.
pub type Name = [u8; 32];

/// Why a store gave no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// It said nothing in time; what it was asked it may still do.
    Late,
    /// It could not: why.
    Failed(String),
    /// The stored bytes cannot be read: the key, and what happens to it.
    Unreadable(String),
    /// Too many wait for this key, or in all: the request is refused with 503, whatever
    /// `on_failure` says.
    Overloaded,
}

/// What is done with a partition.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Decide this request.
    Check(&'a [u8]),
    /// Take back what `request` charged when it was answered with `reply`. Sent once.
    Refund {
        /// What was asked.
        request: &'a [u8],
        /// What was answered.
        reply: &'a [u8],
    },
    /// Do what an operator asks of the key
    /// ([`GivenKey::request`](tollgate_policy::GivenKey::request)).
    Operate(&'a [u8]),
}
