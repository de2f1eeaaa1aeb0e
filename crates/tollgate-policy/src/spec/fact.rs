//! The facts that a document may read of a request.
//!
//! Invariant: a key part, a condition, a cost or a charge that reads a fact names it by one of
//! these. A source that has only some of the facts, such as a log, can therefore report which are
//! missing.

use core::fmt;

use crate::facts::{CertificateField, CloudflareField};
use crate::spec::metadata::MetadataPath;

/// A fact that a policy reads of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact<'p> {
    /// The client's address, from the source that the policy names.
    Client,
    /// The request method.
    Method,
    /// The host.
    Host,
    /// The path of the target.
    Path,
    /// A parameter of the target's query.
    Query(&'p str),
    /// A header, its name in lower case.
    Header(&'p str),
    /// A cookie.
    Cookie(&'p str),
    /// The name of the route.
    Route,
    /// The client's country.
    Country,
    /// The client's autonomous system number.
    Asn,
    /// A claim of a verified token.
    Claim(&'p str),
    /// A value of the proxy's metadata.
    Metadata(&'p MetadataPath),
    /// A part of the client's certificate.
    Certificate(CertificateField),
    /// A fact that only Cloudflare knows.
    Cloudflare(CloudflareField),
    /// The domain in a request to a rate limit service.
    Domain,
    /// An entry of the descriptor in that request.
    Descriptor(&'p str),
    /// All entries of that descriptor, in their order.
    Entries,
    /// The other descriptors of the same request.
    Beside,
    /// The status of the response.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))] // every surface knows it
    Status,
    /// The cost that the response shows.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))]
    // every surface knows it, or refuses it
    Actual,
    /// How long the request runs.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))]
    // every surface that needs it knows it
    Duration,
}

/// A fact that a surface may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The name of the route.
    Route,
    /// The client's country.
    Country,
    /// The client's autonomous system number.
    Asn,
    /// Claims of a verified token.
    Claims,
    /// The proxy's metadata.
    Metadata,
    /// The subject or the fingerprint of the client's certificate.
    Certificate,
    /// The subject alternative names of the client's certificate.
    CertificateNames,
    /// The facts that only Cloudflare knows.
    Cloudflare,
    /// The domain and the descriptors of a request to a rate limit service.
    Descriptors,
}

impl Fact<'_> {
    /// The part of it that not every surface knows. Every surface knows method, target, host,
    /// headers, address and status.
    pub const fn need(&self) -> Option<Need> {
        match self {
            Self::Route => Some(Need::Route),
            Self::Country => Some(Need::Country),
            Self::Asn => Some(Need::Asn),
            Self::Claim(_) => Some(Need::Claims),
            Self::Metadata(_) => Some(Need::Metadata),
            Self::Cloudflare(_) => Some(Need::Cloudflare),
            Self::Certificate(CertificateField::UriSan | CertificateField::DnsSan) => {
                Some(Need::CertificateNames)
            }
            Self::Certificate(CertificateField::Subject | CertificateField::Sha256) => {
                Some(Need::Certificate)
            }
            Self::Domain | Self::Descriptor(_) | Self::Entries | Self::Beside => {
                Some(Need::Descriptors)
            }
            Self::Client | Self::Method | Self::Host | Self::Path => None,
            Self::Status | Self::Actual | Self::Duration => None,
            Self::Query(_) | Self::Header(_) | Self::Cookie(_) => None,
        }
    }
}

/// The name in places where facts are given by name: `client_ip`, `header.x-api-key`.
impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Client => ("client_ip", ""),
            Self::Method => ("method", ""),
            Self::Host => ("host", ""),
            Self::Path => ("path", ""),
            Self::Route => ("route", ""),
            Self::Country => ("country", ""),
            Self::Asn => ("asn", ""),
            Self::Domain => ("domain", ""),
            Self::Entries => ("entries", ""),
            Self::Beside => ("beside", ""),
            Self::Status => ("status", ""),
            Self::Actual => ("actual", ""),
            Self::Duration => ("duration", ""),
            Self::Query(name) => ("query.", *name),
            Self::Header(name) => ("header.", *name),
            Self::Cookie(name) => ("cookie.", *name),
            Self::Claim(name) => ("claim.", *name),
            Self::Descriptor(name) => ("descriptor.", *name),
            Self::Certificate(field) => ("certificate.", field.name()),
            Self::Cloudflare(field) => ("cf.", field.name()),
            Self::Metadata(path) => return write!(f, "metadata.{path}"),
        };
        f.write_str(kind)?;
        f.write_str(name)
    }
}
