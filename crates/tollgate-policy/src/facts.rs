//! What a request is, pulled lazily: a policy asks only for what it reads.
//!
//! Invariant: values are bytes, not text. A header value may hold any byte but CR, LF and NUL, and
//! nothing here may fail on it. Deliberately absent: bodies, and anything that needs I/O.

use alloc::borrow::Cow;
use core::net::IpAddr;

/// An entry of a descriptor: `("remote_address", "192.0.2.1")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key.
    pub key: Cow<'a, [u8]>,
    /// Its value, which may be empty.
    pub value: Cow<'a, [u8]>,
}

impl<'a> Entry<'a> {
    /// An entry whose key and value stand somewhere.
    #[must_use]
    pub const fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { key: Cow::Borrowed(key), value: Cow::Borrowed(value) }
    }
}

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

    /// The domain that a rate limit service was asked with; `None` for what was asked otherwise.
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// Entry number `index`, from 0, of the descriptor that a rate limit service was asked about;
    /// `None` past the last one, and for whatever was asked otherwise. Their order counts, and a
    /// key may stand there several times.
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let _ = index;
        None
    }

    /// Entry number `index` of another descriptor of the same call, number `other` of them, both
    /// from 0; descriptors without entries are not counted. `None` past the last one.
    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        let _ = (other, index);
        None
    }

    /// How many hits this is, where the caller says so, as who asks a rate limit service does: the
    /// cost of every rule, as many times. 0 charges nothing. `None` is one hit. Under a rule with
    /// `"cost": "reported"` they were used already ([`Plan::reports`](crate::Plan::reports)).
    fn hits(&self) -> Option<u64> {
        None
    }

    /// True when the caller will say later what the request has cost: then what it charges is
    /// durable before its answer leaves, whatever the rules' `durability`. Else a charge that a
    /// crash forgot could be given back from what others charged since.
    fn is_to_be_settled(&self) -> bool {
        false
    }
}
