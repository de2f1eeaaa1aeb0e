//! What a request is, pulled lazily: a policy asks only for what it reads.
//!
//! Invariant: values are bytes, not text. A header value may hold any byte but CR, LF and NUL, and
//! nothing here may fail on it. Deliberately absent: bodies, and anything that needs I/O.

use alloc::borrow::Cow;
use core::net::IpAddr;

/// The facts of one request, as the surface knows them.
///
/// In a proxy every method is a host call that costs more than the decision itself. The policy
/// calls each only when it reads it; method, target and peer at most once per request.
pub trait Facts {
    /// The request method, as received: `GET`.
    fn method(&self) -> Cow<'_, [u8]>;

    /// The request target: path and query, as received: `/search?q=a`.
    fn target(&self) -> Cow<'_, [u8]>;

    /// The host, as received: `Example.com:8080`; empty when there is none.
    fn host(&self) -> Cow<'_, [u8]> {
        self.header("host").unwrap_or_default()
    }

    /// The value of the header `name` (lower case); several lines joined by `, ` in their order, as
    /// the Fetch standard has it; `None` when there is none.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// The address of the connection's other end (in a Worker: CF-Connecting-IP); `None` when there
    /// is none, as on a Unix socket.
    fn peer(&self) -> Option<IpAddr>;

    /// The name of the route, which Envoy and a library know.
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The client's two-letter country code, in upper case. Not asked where the policy's `geo`
    /// names a header for it, as in Envoy.
    fn country(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The client's autonomous system number, in decimal. Not asked where the policy's `geo` names
    /// a header for it, as in Envoy.
    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The claim `name` of a token that was verified: text as it is, a number as
    /// [`decimal`](crate::decimal()) writes it, `true` or `false`. `None` when there is no verified
    /// token or no such claim, or when the claim is a list, an object or null.
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let _ = name;
        None
    }
}
