//! The facts of a request, fetched lazily: a policy fetches only those that it reads.
//!
//! Invariant: values are bytes, not text. A header value may contain any byte but CR, LF and NUL,
//! and nothing here may fail on it. Deliberately absent: bodies, and anything that needs I/O.

use alloc::borrow::Cow;
use alloc::string::String;
use core::net::IpAddr;

use tollgate_core::Span;

/// An entry of a descriptor: `("remote_address", "192.0.2.1")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key.
    pub key: Cow<'a, [u8]>,
    /// Its value, which may be empty.
    pub value: Cow<'a, [u8]>,
}

impl<'a> Entry<'a> {
    /// An entry that borrows its key and value.
    #[must_use]
    pub const fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { key: Cow::Borrowed(key), value: Cow::Borrowed(value) }
    }
}

/// The limit in a descriptor of a request to a rate limit service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedLimit {
    /// Units in the window.
    pub units: u64,
    /// Its window.
    pub window: Span,
}

/// A part of the certificate with which a client has opened its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateField {
    /// The first URI of its subject alternative names, such as a SPIFFE ID.
    UriSan,
    /// The first DNS name of its subject alternative names.
    DnsSan,
    /// Its subject, as the surface writes it: `CN=client,O=Example`.
    Subject,
    /// The SHA-256 of the certificate in DER, as 64 hexadecimal digits in lower case.
    Sha256,
}

impl CertificateField {
    /// Every part.
    pub const ALL: [Self; 4] = [Self::UriSan, Self::DnsSan, Self::Subject, Self::Sha256];

    /// Its name in a document: `uri_san`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UriSan => "uri_san",
            Self::DnsSan => "dns_san",
            Self::Subject => "subject",
            Self::Sha256 => "sha256",
        }
    }
}

/// A fact of a client's connection that only Cloudflare knows (`request.cf`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudflareField {
    /// The airport code of the data centre that the client reached: `FRA` (`colo`).
    Colo,
    /// The JA3 fingerprint of its TLS hello (`botManagement.ja3Hash`).
    Ja3,
    /// The JA4 fingerprint of its TLS hello (`botManagement.ja4`).
    Ja4,
    /// The version of TLS: `TLSv1.3` (`tlsVersion`).
    TlsVersion,
}

impl CloudflareField {
    /// Every field.
    pub const ALL: [Self; 4] = [Self::Colo, Self::Ja3, Self::Ja4, Self::TlsVersion];

    /// Its name in a document: `colo`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Colo => "colo",
            Self::Ja3 => "ja3",
            Self::Ja4 => "ja4",
            Self::TlsVersion => "tls_version",
        }
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

    /// The value of the header `name` (lower case); several lines are joined by `, ` in their
    /// order, as in the Fetch standard; `None` when there is none.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Hands the value of a header to `read`. A surface whose values would have to be copied for
    /// [`Facts::header`] can lend them here; `read` calls nothing of it.
    fn read_header<R>(&self, name: &str, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.header(name).map(|value| read(&value))
    }

    /// The peer address (in a Worker: CF-Connecting-IP); `None` when there
    /// is none, as on a Unix socket.
    fn peer(&self) -> Option<IpAddr>;

    /// The name of the route, which Envoy and a library know.
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The client's two-letter country code, in upper case. Not called when the policy's `geo`
    /// names a header for it, as in Envoy.
    fn country(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The client's autonomous system number, in decimal. Not called when the policy's `geo` names
    /// a header for it, as in Envoy.
    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The claim `name` of a verified token: text unchanged, a number as
    /// [`decimal`](crate::decimal()) writes it, `true` or `false`. `None` when there is no verified
    /// token or no such claim, or when the claim is a list, an object or null.
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let _ = name;
        None
    }

    /// The value at this path in the metadata that the filters before this one have set: the name
    /// of a filter, then the names in what it has set. Text unchanged, a whole number in decimal,
    /// `true` or `false`; `None` when there is none, or when it is anything else.
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        let _ = path;
        None
    }

    /// A part of the certificate with which the client has opened its connection, as the
    /// [`CertificateField`] describes it. `None` when it has presented none, when the certificate
    /// was not verified, and when it lacks the part.
    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        let _ = field;
        None
    }

    /// A fact of the connection that only Cloudflare knows; `None` elsewhere, and for one that it
    /// does not report.
    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        let _ = field;
        None
    }

    /// The domain in a request to a rate limit service; `None` for any other request.
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// Entry number `index`, from 0, of the descriptor in a request to a rate limit service; `None`
    /// past the last one, and for any other request. The order of entries counts, and a key may
    /// occur several times.
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let _ = index;
        None
    }

    /// Entry number `index` of another descriptor of the same request, descriptor number `other`,
    /// both from 0; descriptors without entries are not counted. `None` past the last one.
    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        let _ = (other, index);
        None
    }

    /// The limit in the descriptor of a request to a rate limit service; `None` where it has none,
    /// and for any other request.
    fn limit(&self) -> Option<RequestedLimit> {
        None
    }

    /// The number of hits, if the caller reports it, as a client of a rate limit service does: the
    /// cost of every rule is multiplied by it. 0 charges nothing. `None` is one hit. Under a rule
    /// with `"cost": "reported"` the hits were used already
    /// ([`Partition::reports`](crate::Partition::reports)).
    fn hits(&self) -> Option<u64> {
        None
    }

    /// True when the caller will report the cost of the request later. Its charges are then durable
    /// before its response leaves, whatever the rules' `durability`. Otherwise a charge that a
    /// crash lost could be refunded from charges that others made since.
    fn is_to_be_settled(&self) -> bool {
        false
    }
}
