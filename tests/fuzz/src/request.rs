//! A request in the form of a corpus file: `GET /path 192.0.2.1`, then one header per line.
//!
//! Invariant: any bytes are a request. A line `:route: name` is not a header but a fact of its
//! surface, and so are `:country:`, `:asn:`, `:claim.name:` `:certificate.subject:`, `:cf.ja4:`
//! and `:metadata.filter/name:`.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_policy::Facts;
use tollgate_policy::spec::{CertificateField, CloudflareField};

/// The facts of one request.
#[derive(Clone, Debug, Default)]
pub struct Request<'b> {
    method: &'b [u8],
    target: &'b [u8],
    peer: Option<IpAddr>,
    /// Names in lower case.
    headers: Vec<(String, Cow<'b, [u8]>)>,
}

impl<'b> Request<'b> {
    /// Reads any bytes.
    pub fn read(bytes: &'b [u8]) -> Self {
        let mut lines = bytes.split(|b| *b == b'\n');
        let first = lines.next().unwrap_or_default();
        let (method, rest) = split_once(first, b' ').unwrap_or((first, b"/"));
        let (target, peer) = match rest.iter().rposition(|b| *b == b' ') {
            Some(space) => (&rest[..space], address(&rest[space + 1..])),
            None => (rest, None),
        };
        let headers = lines.filter_map(|line| {
            // The first colon may be the one that begins the name of a fact.
            let colon = line.iter().skip(1).position(|b| *b == b':')? + 1;
            let name = String::from_utf8_lossy(&line[..colon]).to_lowercase();
            Some((name, line[colon + 1..].trim_ascii().into()))
        });
        Self { method, target, peer, headers: headers.collect() }
    }

    /// A GET of `target`.
    pub fn get(target: &'b [u8]) -> Self {
        Self { method: b"GET", target, ..Self::default() }
    }

    /// A request of `peer` with one header.
    pub fn from_peer(peer: Option<IpAddr>, name: &str, value: &'b [u8]) -> Self {
        Self { peer, headers: vec![(name.into(), value.into())], ..Self::get(b"/") }
    }

    fn fact(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_ref().into())
    }
}

impl Facts for Request<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.target.into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let lines = self.headers.iter().filter(|(n, _)| n == name);
        let lines: Vec<&[u8]> = lines.map(|(_, value)| value.as_ref()).collect();
        (!lines.is_empty()).then(|| lines.join(&b", "[..]).into())
    }
    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        self.fact(":route")
    }
    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.fact(":country")
    }
    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.fact(":asn")
    }
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.fact(&format!(":claim.{name}"))
    }
    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        self.fact(&format!(":cf.{}", field.name()))
    }
    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        self.fact(&format!(":certificate.{}", field.name()))
    }
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        self.fact(&format!(":metadata.{}", path.join("/")))
    }
}

/// Parses `text` as an address.
pub fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The bytes before and after the first `separator`.
pub fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}
