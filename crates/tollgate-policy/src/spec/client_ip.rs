//! The address of the client.
//!
//! Invariant: nothing that a client can write is trusted unless the document names the source that
//! vouches for it.

use crate::spec::scalar::HeaderName;
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::alternatives::Alternatives;

/// The source of the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The peer address.
    Connection,
    /// The X-Forwarded-For list, read from the right.
    XForwardedFor,
    /// The Forwarded list (RFC 7239), read from the right.
    Forwarded,
    /// CF-Connecting-IP, which only Cloudflare's edge sets.
    CfConnectingIp,
    /// A header that contains one address.
    Header(HeaderName),
}

/// How the client's address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Where it is read.
    pub source: Source,
    /// The proxies that may write it there.
    pub trust: Trust,
}

impl ClientAddress {
    /// True when it is always the peer address of the connection, whatever a header contains.
    #[must_use]
    pub fn takes_the_connection(&self) -> bool {
        self.source == Source::Connection
    }

    /// True unless the entries of a list of addresses are counted (`trusted_hops`): the client's
    /// address then depends on the peer of the connection.
    #[must_use]
    pub const fn trusts_the_connection(&self) -> bool {
        !matches!(self.trust, Trust::Hops(_))
    }
}

/// The parties that may report the address of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// None: the address is that of the connection.
    NoProxy,
    /// The proxies in these networks; at least one.
    Proxies(Alternatives<Cidr>),
    /// This number of proxies, counted from the right of the list; 1 to 16.
    Hops(usize),
}
