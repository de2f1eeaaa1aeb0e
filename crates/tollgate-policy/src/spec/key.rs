//! The key that a rule counts by.
//!
//! Invariant: two keys that are written the same way are one group.

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "explain")]
use core::fmt;

use crate::spec::fact::Fact;
use crate::spec::scalar::HeaderName;
use tollgate_http_syntax::repeated::Repeated;

/// One part of a partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address, grouped by prefix.
    ClientIp,
    /// The request method.
    Method,
    /// The host, without port, in lower case.
    Host,
    /// The path, in normal form.
    Path,
    /// The client's country.
    Country,
    /// The client's autonomous system number.
    Asn,
    /// The name of the route.
    Route,
    /// The value of a header.
    Header(HeaderName, Option<Repeated>),
    /// The value of a cookie.
    Cookie(String, Option<Repeated>),
    /// The value of a query parameter.
    Query(String, Option<Repeated>),
    /// The value that a `{name}` of the rule's path pattern captured.
    PathParam(String),
    /// A claim of a verified token.
    JwtClaim(String),
    /// The value of an entry of the descriptor.
    Descriptor(String),
}

/// The properties of a kind of key part.
pub struct About<'p> {
    /// Its name in the document.
    pub name: &'static str,
    /// The name of this part within its kind; empty for a kind with a single part.
    pub of: &'p str,
    /// Its name in explanations.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))] // only explanations are in words
    words: &'static str,
    /// The fact of a request that it reads.
    pub reads: Fact<'p>,
    /// Every request has it.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))] // only explanations use it
    pub is_always_there: bool,
    /// It has few values, or one for a whole site.
    pub has_few_values: bool,
}

impl<'p> About<'p> {
    const fn new(name: &'static str, words: &'static str, of: &'p str, reads: Fact<'p>) -> Self {
        Self { name, of, words, reads, is_always_there: false, has_few_values: false }
    }
}

impl KeyPart {
    /// The key parts that have no name.
    pub const PLAIN: [Self; 7] = [
        Self::ClientIp,
        Self::Method,
        Self::Host,
        Self::Path,
        Self::Country,
        Self::Asn,
        Self::Route,
    ];

    /// The properties of this part: the one table of key parts.
    pub fn about(&self) -> About<'_> {
        match self {
            Self::ClientIp => About::new("client_ip", "client address", "", Fact::Client),
            Self::Method => About {
                is_always_there: true,
                has_few_values: true,
                ..About::new("method", "method", "", Fact::Method)
            },
            Self::Host => {
                About { has_few_values: true, ..About::new("host", "host", "", Fact::Host) }
            }
            Self::Path => {
                About { is_always_there: true, ..About::new("path", "path", "", Fact::Path) }
            }
            Self::Country => About {
                has_few_values: true,
                ..About::new("country", "country", "", Fact::Country)
            },
            Self::Asn => About::new("asn", "AS number", "", Fact::Asn),
            Self::Route => {
                About { has_few_values: true, ..About::new("route", "route", "", Fact::Route) }
            }
            Self::Header(name, _) => About::new("header", "header", &name.0, Fact::Header(&name.0)),
            Self::Cookie(name, _) => About::new("cookie", "cookie", name, Fact::Cookie(name)),
            Self::Query(name, _) => About::new("query", "query parameter", name, Fact::Query(name)),
            Self::PathParam(name) => About {
                is_always_there: true,
                ..About::new("path_param", "path segment", name, Fact::Path)
            },
            Self::JwtClaim(name) => {
                About::new("jwt_claim", "verified claim", name, Fact::Claim(name))
            }
            Self::Descriptor(name) => {
                About::new("descriptor", "descriptor entry", name, Fact::Descriptor(name))
            }
        }
    }
}

impl KeyPart {
    /// The same part with the meaning of several values set: its own setting, or else the meaning
    /// that its name implies, or else the `default`.
    pub fn resolved(&self, default: Repeated) -> Self {
        match self.clone() {
            Self::Header(name, own) => {
                let repeated = Repeated::of_header(&name.0, own, default);
                Self::Header(name, Some(repeated))
            }
            Self::Cookie(name, own) => Self::Cookie(name, own.or(Some(default))),
            Self::Query(name, own) => Self::Query(name, own.or(Some(default))),
            other @ (Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country) => {
                other
            }
            other @ (Self::Asn | Self::Route | Self::PathParam(_)) => other,
            other @ (Self::JwtClaim(_) | Self::Descriptor(_)) => other,
        }
    }

    /// The meaning of several values, if it differs from that of a policy without any setting.
    pub fn unusual(&self) -> Option<Repeated> {
        match self {
            Self::Header(name, repeated) => {
                let usual = Repeated::of_header(&name.0, None, Repeated::Refuse);
                repeated.filter(|repeated| *repeated != usual)
            }
            Self::Cookie(_, repeated) | Self::Query(_, repeated) => {
                repeated.filter(|repeated| *repeated != Repeated::Refuse)
            }
            Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country => None,
            Self::Asn | Self::Route | Self::PathParam(_) => None,
            Self::JwtClaim(_) | Self::Descriptor(_) => None,
        }
    }
}

/// In words: `header x-api-key`.
#[cfg(feature = "explain")]
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { words, of, .. } = self.about();
        match self {
            Self::PathParam(name) => return write!(f, "{words} {{{name}}}"),
            _ if of.is_empty() => f.write_str(words)?,
            _ => write!(f, "{words} {of}")?,
        }
        f.write_str(self.unusual().map_or("", Repeated::in_words))
    }
}

/// The parts of a key.
pub type Key = Vec<KeyPart>;
