//! What a request is, pulled lazily: a policy asks only for what it reads.
//!
//! Invariant: values are bytes, not text. A header value may hold any byte but CR, LF and NUL, and
//! nothing here may fail on it. Deliberately absent: bodies, and anything that needs I/O.

use alloc::borrow::Cow;
use core::net::IpAddr;

/// The facts of one request, as the surface knows them.
///
/// In a proxy every method is a host call that costs more than the decision itself, so each is
/// called at most once per request and only when the policy reads it.
pub trait Facts {
    /// The request method, as received: `GET`.
    fn method(&self) -> Cow<'_, [u8]>;

    /// The request target: path and query, as received: `/search?q=a`.
    fn target(&self) -> Cow<'_, [u8]>;

    /// The value of the header `name` (lower case); several lines joined by `,` in their order;
    /// `None` when there is none.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// The address of the connection's other end (in a Worker: CF-Connecting-IP); `None` when there
    /// is none, as on a Unix socket.
    fn peer(&self) -> Option<IpAddr>;
}
