//! The sources of the parts of a key: what a rule counts by.
//!
//! Invariant: two keys that are written the same way are one group.

use alloc::string::String;
use core::fmt;

use crate::facts::{CertificateField, CloudflareField};
use crate::spec::coded::variants;
use crate::spec::fact::Fact;
use crate::spec::metadata::MetadataPath;
use crate::spec::scalar::{CookieName, HeaderName};
use tollgate_http_syntax::repeated::Repeated;

/// Where a request has one part of a partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
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
    /// A value of the proxy's metadata.
    Metadata(MetadataPath),
    /// A part of the client's certificate.
    ClientCertificate(CertificateField),
    /// A fact that only Cloudflare knows.
    Cloudflare(CloudflareField),
}

variants!(KeySource {
    0 => ClientIp,
    1 => Method,
    2 => Host,
    3 => Path,
    4 => Country,
    5 => Asn,
    6 => Route,
    7 => Header(name: HeaderName, repeated: Option<Repeated>),
    8 => Cookie(name: String, repeated: Option<Repeated>),
    9 => Query(name: String, repeated: Option<Repeated>),
    10 => PathParam(name: String),
    11 => JwtClaim(name: String),
    12 => Descriptor(key: String),
    13 => Metadata(path: MetadataPath),
    14 => ClientCertificate(field: CertificateField),
    15 => Cloudflare(field: CloudflareField),
} if |part| match part {
    Self::Header(_, repeated) | Self::Query(_, repeated) => repeated.is_some(),
    Self::Cookie(name, repeated) => CookieName::is_one(name) && repeated.is_some(),
    Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country | Self::Asn | Self::Route | Self::PathParam(_) | Self::JwtClaim(_) | Self::Descriptor(_) | Self::Metadata(_) | Self::ClientCertificate(_) | Self::Cloudflare(_) => true,
});

/// The properties of a kind of key part.
pub struct About<'p> {
    /// Its name in the document.
    pub name: &'static str,
    /// The name of this part within its kind.
    pub of: Of<'p>,
    /// Its name in explanations.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))] // only explanations are in words
    words: &'static str,
    /// The fact of a request that it reads.
    pub reads: Fact<'p>,
    /// How an operator writes a value.
    pub spelling: Spelling,
    /// Where a request has it from.
    pub origin: Origin,
    /// How many clients share a value.
    pub breadth: Breadth,
    /// Every request has it.
    pub is_always_there: bool,
    /// It has few values, or one for a whole site.
    pub has_few_values: bool,
}

/// The name of a part within its kind. In words: a name as it is, a path with slashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of<'p> {
    /// The only part of its kind.
    Only,
    /// A name.
    Name(&'p str),
    /// A path in metadata.
    Path(&'p MetadataPath),
}

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => Ok(()),
            Self::Name(name) => f.write_str(name),
            Self::Path(path) => path.fmt(f),
        }
    }
}

/// How an operator writes a value of a key part, such as the name of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As in a request.
    Text,
    /// In any case; upper case is counted.
    Upper,
    /// As an address of the network that is one client.
    Address,
    /// As a host, in any case and without a port.
    Host,
    /// As a path, in any spelling of it.
    Path,
    /// As one segment of a path, in any spelling of it.
    Segment,
}

/// Where a request has a key part from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The connection and the request line: every request has it, and a client cannot make up one.
    Connection,
    /// A fact from a proxy, the platform or a verified token: a request may lack it.
    Verified,
    /// The target of the request, which the client chooses.
    Target,
    /// A value that the client may make up.
    Client,
}

/// How many clients share a value of a key part: fewer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breadth {
    /// It identifies a client.
    Client,
    /// It may be one of few.
    Resource,
    /// Many clients share it.
    Site,
    /// All clients share it: there is no part.
    All,
}

impl<'p> About<'p> {
    const fn new(
        (name, words, of): (&'static str, &'static str, Of<'p>),
        reads: Fact<'p>,
        (spelling, origin, breadth): (Spelling, Origin, Breadth),
    ) -> Self {
        let (is_always_there, has_few_values) = (false, false);
        Self { name, of, words, reads, spelling, origin, breadth, is_always_there, has_few_values }
    }

    /// The row of metadata: what a filter has verified, unless it copies what the client sends.
    fn of_metadata(path: &'p MetadataPath) -> Self {
        let origin = if path.is_of_client() { Origin::Client } else { Origin::Verified };
        let words = ("metadata", "metadata", Of::Path(path));
        Self::new(words, Fact::Metadata(path), (Spelling::Text, origin, Breadth::Client))
    }

    /// The row of a certificate, which an authority has issued.
    const fn of_certificate(field: CertificateField) -> Self {
        let words = ("client_certificate", "client certificate", Of::Name(field.name()));
        let origin = (Spelling::Text, Origin::Verified, Breadth::Client);
        Self::new(words, Fact::Certificate(field), origin)
    }

    /// The row of a fact of Cloudflare's: many clients share each, and a client can choose its TLS.
    fn of_cloudflare(field: CloudflareField) -> Self {
        let words = ("cf", "Cloudflare's", Of::Name(field.name()));
        let row = |origin| {
            Self::new(words, Fact::Cloudflare(field), (Spelling::Text, origin, Breadth::Site))
        };
        match field {
            CloudflareField::Colo => row(Origin::Verified).with_few_values(),
            CloudflareField::Ja3 | CloudflareField::Ja4 => row(Origin::Client),
            CloudflareField::TlsVersion => row(Origin::Client).with_few_values(),
        }
    }

    const fn always_there(self) -> Self {
        Self { is_always_there: true, ..self }
    }

    const fn with_few_values(self) -> Self {
        Self { has_few_values: true, ..self }
    }
}

impl KeySource {
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
    /// The names of those that have a name.
    pub const NAMED: [&'static str; 9] = [
        "header",
        "cookie",
        "query",
        "path_param",
        "jwt_claim",
        "descriptor",
        "metadata",
        "client_certificate",
        "cf",
    ];

    /// The properties of this part: the one table of key parts.
    pub fn about(&self) -> About<'_> {
        use {Breadth as B, Origin as O, Spelling as S};
        let row = About::new;
        let text = |words, reads, origin| row(words, reads, (S::Text, origin, B::Client));
        match self {
            Self::ClientIp => {
                let words = ("client_ip", "client address", Of::Only);
                row(words, Fact::Client, (S::Address, O::Connection, B::Client))
            }
            Self::Method => {
                let words = ("method", "method", Of::Only);
                let part = row(words, Fact::Method, (S::Upper, O::Connection, B::Site));
                part.always_there().with_few_values()
            }
            Self::Host => {
                let words = ("host", "host", Of::Only);
                row(words, Fact::Host, (S::Host, O::Target, B::Site)).with_few_values()
            }
            Self::Path => {
                let words = ("path", "path", Of::Only);
                row(words, Fact::Path, (S::Path, O::Target, B::Resource)).always_there()
            }
            Self::Country => {
                let words = ("country", "country", Of::Only);
                row(words, Fact::Country, (S::Upper, O::Verified, B::Site)).with_few_values()
            }
            Self::Asn => {
                row(("asn", "AS number", Of::Only), Fact::Asn, (S::Upper, O::Verified, B::Site))
            }
            Self::Route => {
                let words = ("route", "route", Of::Only);
                row(words, Fact::Route, (S::Text, O::Verified, B::Site)).with_few_values()
            }
            Self::Header(name, _) => {
                text(("header", "header", Of::Name(&name.0)), Fact::Header(&name.0), O::Client)
            }
            Self::Cookie(name, _) => {
                text(("cookie", "cookie", Of::Name(name)), Fact::Cookie(name), O::Client)
            }
            Self::Query(name, _) => {
                text(("query", "query parameter", Of::Name(name)), Fact::Query(name), O::Client)
            }
            Self::PathParam(name) => {
                let words = ("path_param", "path segment", Of::Name(name.as_str()));
                row(words, Fact::Path, (S::Segment, O::Target, B::Resource)).always_there()
            }
            Self::JwtClaim(name) => text(
                ("jwt_claim", "verified claim", Of::Name(name)),
                Fact::Claim(name),
                O::Verified,
            ),
            Self::Descriptor(name) => {
                let words = ("descriptor", "descriptor entry", Of::Name(name));
                text(words, Fact::Descriptor(name), O::Verified)
            }
            Self::Metadata(path) => About::of_metadata(path),
            Self::ClientCertificate(field) => About::of_certificate(*field),
            Self::Cloudflare(field) => About::of_cloudflare(*field),
        }
    }
}

impl KeySource {
    /// Sets the meaning of several values: its own setting, or else the meaning that its name
    /// implies, or else the `default`.
    pub(crate) fn resolve(&mut self, default: Repeated) {
        match self {
            Self::Header(name, repeated) => {
                *repeated = Some(Repeated::of_header(&name.0, *repeated, default));
            }
            Self::Cookie(_, repeated) | Self::Query(_, repeated) => {
                *repeated = repeated.or(Some(default));
            }
            Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country => {}
            Self::Asn | Self::Route | Self::PathParam(_) => {}
            Self::JwtClaim(_) | Self::Descriptor(_) | Self::Metadata(_) => {}
            Self::ClientCertificate(_) | Self::Cloudflare(_) => {}
        }
    }

    /// True for text, which may be counted in lower case. A host is in lower case and a method, a
    /// country and a system in upper case anyway.
    pub const fn is_text(&self) -> bool {
        match self {
            Self::Header(..) | Self::Cookie(..) | Self::Query(..) => true,
            Self::PathParam(_) | Self::JwtClaim(_) | Self::Descriptor(_) => true,
            Self::Metadata(_) | Self::ClientCertificate(_) | Self::Cloudflare(_) => true,
            Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country => false,
            Self::Asn | Self::Route => false,
        }
    }

    /// True for text in which a regular expression may be searched for.
    pub const fn is_searchable(&self) -> bool {
        self.is_text() || matches!(self, Self::Host | Self::Path | Self::Route)
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
            Self::JwtClaim(_) | Self::Descriptor(_) | Self::Metadata(_) => None,
            Self::ClientCertificate(_) | Self::Cloudflare(_) => None,
        }
    }
}

/// In words: `header x-api-key`.
#[cfg(feature = "explain")]
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { words, of, .. } = self.about();
        match self {
            Self::PathParam(name) => write!(f, "{words} {{{name}}}"),
            _ if of == Of::Only => f.write_str(words),
            _ => write!(f, "{words} {of}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::spec::coded::{Coded, Reader};

    fn front(bytes: &[u8]) -> Option<KeySource> {
        let mut reader = Reader::new(bytes);
        let source = KeySource::read(&mut reader);
        reader.checked(source)
    }

    // Guards: a key part that has a meaning and no way to write it.
    #[test]
    fn every_part_without_a_name_is_listed() {
        let read = |tag: u8| front(&[tag]);
        let plain: Vec<KeySource> = (0..=u8::MAX).filter_map(read).collect();
        assert_eq!(plain, KeySource::PLAIN);
    }

    // Guards: two parts with one name in the document, or a named part that its row calls by
    // another.
    #[test]
    fn a_row_has_the_name_of_its_part() {
        let named = |tag: u8| front(&[tag, 1, b'x', 0]);
        let with_mode = |tag: u8| front(&[tag, 1, b'x', 1, 0]);
        let with_path = |tag: u8| front(&[tag, 2, 1, b'f', 1, b'x']);
        let part = |tag: u8| named(tag).or_else(|| with_mode(tag)).or_else(|| with_path(tag));
        let parts = (0..=u8::MAX).filter_map(part);
        let mut names = vec![];
        let mut with_a_name = vec![];
        for part in parts {
            let about = part.about();
            assert_eq!(about.of == Of::Only, KeySource::PLAIN.contains(&part), "{}", about.name);
            assert!(!names.contains(&about.name), "{} twice", about.name);
            names.push(about.name);
            with_a_name.extend((about.of != Of::Only).then_some(about.name));
        }
        assert_eq!(with_a_name, KeySource::NAMED);
    }
}
