//! Counting by the TLS certificate of a client in a real Envoy, with and without verification.

use rcgen::{CertifiedKey, DnType, SanType, generate_simple_self_signed};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tollgate_e2e::tls::{self, Issuer, Own, authority};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// The certificate of `name`, with two names of each kind, from this authority.
fn client(issuer: &Issuer, name: &str) -> Own {
    let uri = |text: String| SanType::URI(text.try_into().expect("a URI"));
    let dns = |text: String| SanType::DnsName(text.try_into().expect("a name"));
    tls::client(issuer, |params| {
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![
            uri(format!("spiffe://example/{name}")),
            uri("spiffe://example/same".to_owned()),
            dns(format!("{name}.example")),
            dns("same.example".to_owned()),
        ];
    })
}

/// An Envoy that allows one request per hour for each value of `part`.
struct Served {
    _envoy: Envoy,
    port: u16,
    root: CertificateDer<'static>,
}

impl Served {
    /// With this validation of clients' certificates.
    fn start(part: &str, validation: &Value) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let policy = json!({"version": 1, "rules": [{
            "name": "client",
            "key": [{"client_certificate": part}],
            "on_missing": "deny",
            "quotas": [{"limit": 1, "window": "1h"}],
        }]});
        let mut tls = json!({"tls_certificates": [{
            "certificate_chain": {"inline_string": cert.pem()},
            "private_key": {"inline_string": signing_key.serialize_pem()},
        }]});
        if !validation.is_null() {
            tls["validation_context"] = validation.clone();
        }
        let mut listener = Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]);
        listener.transport_socket = json!({"name": "tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": tls,
        }});
        let root = CertificateDer::from_pem_slice(cert.pem().as_bytes()).expect("a certificate");
        let port = listener.port;
        Self { _envoy: Setup::new(1, vec![listener]).start(), port, root }
    }

    /// The status of the response to a client with this certificate; `None` when the connection is
    /// refused.
    fn status(&self, own: Option<&Own>) -> Option<u16> {
        let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let text = tls::exchange(self.port, &self.root, own, request)?;
        text.split(' ').nth(1)?.parse().ok()
    }
}

// Guards: a client counted by a certificate of another, by a name that two have in common, or by
// one that was not verified.
#[test]
fn a_client_is_counted_by_its_verified_certificate() {
    let (issuer, other) = (authority(), authority());
    let (alice, bob) = (client(&issuer, "alice"), client(&issuer, "bob"));
    let again = client(&issuer, "alice");
    let forged = client(&other, "carol");
    let validation = json!({"trusted_ca": {"inline_string": issuer.pem()}});
    for part in ["uri_san", "dns_san", "subject", "sha256"] {
        let served = Served::start(part, &validation);
        assert_eq!(served.status(Some(&alice)), Some(200), "{part}");
        assert_eq!(served.status(Some(&alice)), Some(429), "{part}");
        assert_eq!(served.status(Some(&bob)), Some(200), "{part}");
        // Another certificate of the same client has the same names.
        let of_next = if part == "sha256" { 200 } else { 429 };
        assert_eq!(served.status(Some(&again)), Some(of_next), "{part}");
        assert_eq!(served.status(None), Some(429), "{part}: on_missing");
        assert_eq!(served.status(Some(&forged)), None, "{part}: Envoy refuses it");
    }
}

// The reason why `check` reports ACCEPT_UNTRUSTED: a client that writes its own certificate is
// counted as the client whose name it has, and no attribute shows the difference.
#[test]
fn a_certificate_that_is_not_verified_is_counted_all_the_same() {
    let (issuer, other) = (authority(), authority());
    let (alice, forged) = (client(&issuer, "alice"), client(&other, "alice"));
    let validation = json!({
        "trusted_ca": {"inline_string": issuer.pem()},
        "trust_chain_verification": "ACCEPT_UNTRUSTED",
    });
    let served = Served::start("uri_san", &validation);
    assert_eq!(served.status(Some(&forged)), Some(200));
    assert_eq!(served.status(Some(&alice)), Some(429), "the other client took its unit");
    // Without a validation context Envoy asks for no certificate.
    let served = Served::start("uri_san", &json!(null));
    assert_eq!(served.status(Some(&alice)), Some(429), "on_missing");
}
