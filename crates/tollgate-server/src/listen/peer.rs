//! The other end of a connection: its address, and the names in its certificate.
//!
//! Invariant: a name counts only as the type that it was certified as: `dns:a` is a DNS name of the
//! certificate, never its subject or an e-mail address with the same text. Names are compared
//! whole; there are no patterns. Deliberately absent: whether the certificate is trusted; TLS has
//! decided that before (`tls`).

use std::net::IpAddr;

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The attribute `commonName` of a subject (X.520, 6.2.2).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its certificate has a name that is allowed.
    pub is_named: bool,
}

/// A name that a certificate may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertifiedName {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, such as one of SPIFFE.
    Uri(String),
    /// The one common name of the subject.
    CommonName(String),
}

impl CertifiedName {
    /// The error message for a mistake in a list of them.
    pub(crate) const WANTED: &str = "is not a list of names of certificates; use one or more such as \"dns:envoy.internal\", \
                                     \"uri:spiffe://fleet/envoy\" or \"cn:gateway\", with commas";

    /// Reads `dns:envoy.internal`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.trim().split_once(':')?;
        if name.is_empty() || name.contains('*') {
            return None;
        }
        match kind {
            "dns" => Some(Self::Dns(name.to_ascii_lowercase())),
            "uri" => Some(Self::Uri(name.to_owned())),
            "cn" => Some(Self::CommonName(name.to_owned())),
            _ => None,
        }
    }

    /// True when a certificate, which TLS has accepted, has one of these names. An unreadable
    /// certificate has none.
    pub(crate) fn is_one_of(names: &[Self], certificate: &[u8]) -> bool {
        let Ok(certificate) = Certificate::from_der(certificate) else { return false };
        let certified = certified(&certificate);
        names.iter().any(|name| certified.contains(name))
    }
}

/// Every name of a certificate.
fn certified(certificate: &Certificate) -> Vec<CertifiedName> {
    let of_subject = common_name(certificate).map(CertifiedName::CommonName);
    let alternative = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let alternative = alternative.map(|(_, names)| names.0).unwrap_or_default();
    let alternative = alternative.iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(CertifiedName::Dns(name.as_str().to_ascii_lowercase())),
        GeneralName::UniformResourceIdentifier(name) => {
            Some(CertifiedName::Uri(name.as_str().to_owned()))
        }
        _ => None,
    });
    of_subject.into_iter().chain(alternative).collect()
}

/// The common name, if there is exactly one: of two, neither is certain.
fn common_name(certificate: &Certificate) -> Option<String> {
    let subject = &certificate.tbs_certificate.subject;
    let attributes = subject.0.iter().flat_map(|set| set.0.iter());
    let mut common = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
    let (first, None) = (common.next()?, common.next()) else { return None };
    let utf8 = Utf8StringRef::try_from(&first.value).map(|text| text.as_str().to_owned());
    let printable = || PrintableStringRef::try_from(&first.value).map(|it| it.as_str().to_owned());
    utf8.or_else(|_| printable()).ok()
}
