//! The facts of a request: its own data, the platform's data about it, and the claims of its token.
//!
//! Invariant: every claim comes from a verified token. Deliberately absent: the meaning of the
//! facts; that is in the policy.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_policy::spec::{CertificateField, CloudflareField};
use tollgate_policy::{Facts, Policy, decimal};
use wasm_bindgen::{JsCast, JsValue};
use worker::{js_sys, web_sys};

use crate::runtime::js;

/// The facts of a request in front of an origin. The platform sets CF-Connecting-IP and removes any
/// header of that name that a client sends.
pub(crate) struct Incoming<'r> {
    pub(crate) request: &'r web_sys::Request,
    pub(crate) method: String,
    pub(crate) target: &'r str,
    pub(crate) headers: &'r web_sys::Headers,
}

impl Incoming<'_> {
    /// The header `name` as text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.headers.get(name).ok().flatten()
    }

    fn edge_fact(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        js::edge_fact(self.request, name, None).map(|fact| fact.into_bytes().into())
    }

    /// A part of the client's certificate, if the platform has verified it: it also passes requests
    /// on whose certificate it has not.
    fn certificate(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let part = |name| js::edge_fact(self.request, name, Some("tlsClientAuth"));
        let is = |name, value: &str| part(name).is_some_and(|it| it == value);
        let is_verified =
            is("certPresented", "1") && is("certVerified", "SUCCESS") && !is("certRevoked", "1");
        let part = part(name).filter(|part| is_verified && !part.is_empty());
        part.map(|part| part.into_bytes().into())
    }
}

impl Facts for Incoming<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.text(name).map(|value| value.into_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.text("cf-connecting-ip")?.trim().parse().ok()
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.edge_fact("country")
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.edge_fact("asn")
    }

    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        self.certificate(match field {
            CertificateField::Subject => "certSubjectDN",
            CertificateField::Sha256 => "certFingerprintSHA256",
            // The compiler refuses them.
            CertificateField::UriSan | CertificateField::DnsSan => return None,
        })
    }

    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        let (name, group) = match field {
            CloudflareField::Colo => ("colo", None),
            CloudflareField::TlsVersion => ("tlsVersion", None),
            CloudflareField::Ja3 => ("ja3Hash", Some("botManagement")),
            CloudflareField::Ja4 => ("ja4", Some("botManagement")),
        };
        let fact = js::edge_fact(self.request, name, group).filter(|fact| !fact.is_empty());
        fact.map(|fact| fact.into_bytes().into())
    }
}

/// Facts and the claims of a token that was verified before any object was called.
pub(crate) struct WithClaims<F> {
    pub(crate) facts: F,
    claims: Option<JsValue>,
}

/// Verifies the request's token, if any rule counts by its claims.
pub(crate) async fn with_claims<F: Facts>(policy: &Policy, facts: F) -> WithClaims<F> {
    let Some(wanted) = policy.claims() else { return WithClaims { facts, claims: None } };
    let token = wanted.token(&facts).and_then(|token| String::from_utf8(token).ok());
    let claims = match token {
        Some(token) => js::verified(wanted.jwt(), &token).await,
        None => None,
    };
    WithClaims { facts, claims }
}

impl<F: Facts> Facts for WithClaims<F> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.facts.method()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.facts.target()
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.facts.host()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.facts.header(name)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.facts.peer()
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.facts.country()
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.facts.asn()
    }

    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        self.facts.client_certificate(field)
    }

    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        self.facts.cloudflare(field)
    }

    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let value = js_sys::Reflect::get(self.claims.as_ref()?, &JsValue::from_str(name)).ok()?;
        let text = match (value.dyn_ref::<js_sys::JsString>(), value.as_f64(), value.as_bool()) {
            // Half a surrogate pair is not text: all such values would share one key.
            (Some(text), ..) => text.is_valid_utf16().then(|| String::from(text))?,
            (_, Some(number), _) => decimal(number)?,
            (.., Some(truth)) => truth.to_string(),
            _ => return None,
        };
        Some(text.into_bytes().into())
    }

    fn is_to_be_settled(&self) -> bool {
        self.facts.is_to_be_settled()
    }
}
