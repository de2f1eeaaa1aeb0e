//! TLS: it is served, certificates are replaced while the server runs, and an invalid file changes
//! nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use rcgen::{
    CertificateParams, CertifiedKey, DnType, ExtendedKeyUsagePurpose, SanType, date_time_ymd,
    generate_simple_self_signed,
};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tollgate_e2e::process::TempDir;
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::tls::{self, Own, authority, client};

/// Writes a new certificate and its key; returns the certificate.
fn write(dir: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(dir.join("cert.pem"), cert.pem()).expect("written");
    std::fs::write(dir.join("key.pem"), signing_key.serialize_pem()).expect("written");
    CertificateDer::from_pem_slice(cert.pem().as_bytes()).expect("a certificate")
}

/// The response to a request over TLS, and the server's choice of `protocols`; `None` when `root`
/// has not issued the server's certificate.
fn get(
    server: &TollgateServer,
    root: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> Option<(String, Option<Vec<u8>>)> {
    let mut stream = tls::connect(server.port, root, None, protocols);
    let request =
        "GET /.well-known/tollgate/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let chosen = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
    if chosen.as_deref() == Some(b"h2") {
        return Some((String::new(), chosen));
    }
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    Some((String::from_utf8_lossy(&text).into_owned(), chosen))
}

#[test]
fn certificates_are_exchanged_while_it_runs_and_bad_ones_are_not() {
    let files = TempDir::new("tls");
    let first = write(files.path());
    let path = |name: &str| files.path().join(name).to_string_lossy().into_owned();
    let policy = json!({"version": 1, "rules": []});
    let setup = Setup::new(policy).set("header_timeout", 2);
    let server =
        setup.set("tls_certificate", path("cert.pem")).set("tls_key", path("key.pem")).start();
    let (answer, _) = get(&server, &first, &[]).expect("trusted");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let chosen = |protocols: &[&[u8]]| get(&server, &first, protocols).expect("trusted").1;
    assert_eq!(chosen(&[b"h2", b"http/1.1"]).as_deref(), Some(&b"h2"[..]));
    assert_eq!(chosen(&[b"http/1.1"]).as_deref(), Some(&b"http/1.1"[..]));

    // A connection that sends something other than TLS, or nothing, is closed.
    for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], b""] {
        let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("connected");
        plain.write_all(sent).expect("sent");
        let mut said = Vec::new();
        let _ = plain.read_to_end(&mut said);
        assert!(!said.starts_with(b"HTTP"), "{said:?}");
    }

    std::fs::write(files.path().join("key.pem"), "no key").expect("written");
    server.signal(Signal::HUP);
    server.wait_for_events("certificates_refused", 1);
    assert!(get(&server, &first, &[]).is_some());

    let second = write(files.path());
    server.signal(Signal::HUP);
    server.wait_for_events("certificates_reloaded", 1);
    assert!(get(&server, &first, &[]).is_none(), "the old certificate is still served");
    assert!(get(&server, &second, &[]).is_some());
}

/// The status of the response to `POST path` over TLS with this certificate and these fields;
/// `None` when the connection is refused.
fn asked(
    server: &TollgateServer,
    root: &CertificateDer<'static>,
    own: Option<&Own>,
    path: &str,
    fields: &str,
) -> Option<String> {
    let body = r#"{"method":"GET","path":"/","client_ip":"192.0.2.1"}"#;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = tls::exchange(server.port, root, own, &request)?;
    text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).map(str::to_owned)
}

// Guards: unauthenticated callers on the port of a fleet, certificates of other authorities, and
// names that are similar.
#[test]
fn who_may_ask_shows_a_certificate_with_a_name_that_is_listed() {
    let files = TempDir::new("mtls");
    let root = write(files.path());
    let (ours, theirs) = (authority(), authority());
    std::fs::write(files.path().join("ca.pem"), ours.pem()).expect("written");
    let path = |name: &str| files.path().join(name).to_string_lossy().into_owned();
    let policy = json!({"version": 1, "rules": []});
    let setup = Setup::new(policy).operated().set("header_timeout", 5);
    let setup = setup.set("tls_certificate", path("cert.pem")).set("tls_key", path("key.pem"));
    let names = "uri:spiffe://fleet/envoy,dns:Envoy.internal,cn:gateway";
    let setup = setup.variable("TOLLGATE_FLEET_SECRET", "only-for-tests-fleet");
    let server = setup.set("tls_client_ca", path("ca.pem")).set("tls_clients", names).start();
    let san =
        |san: SanType| move |params: &mut CertificateParams| params.subject_alt_names.push(san);
    let dns = |name: &str| san(SanType::DnsName(name.try_into().expect("a name")));
    let uri = |name: &str| san(SanType::URI(name.try_into().expect("a name")));
    let mail = |name: &str| san(SanType::Rfc822Name(name.try_into().expect("a name")));
    let common = |name: &'static str| {
        move |params: &mut CertificateParams| {
            params.distinguished_name.push(DnType::CommonName, name)
        }
    };
    let status = |own: &Own, path: &str| asked(&server, &root, Some(own), path, "");
    let listed = [
        client(&ours, uri("spiffe://fleet/envoy")),
        client(&ours, dns("envoy.INTERNAL")),
        client(&ours, common("gateway")),
    ];
    for own in &listed {
        assert_eq!(status(own, "/check").as_deref(), Some("200"));
        assert_eq!(status(own, "/lease").as_deref(), Some("415"), "it may ask, in another form");
    }
    let unlisted = [
        client(&ours, dns("other.internal")),
        client(&ours, dns("a.envoy.internal")),
        client(&ours, common("envoy.internal")),
        client(&ours, dns("gateway")),
        client(&ours, mail("gateway")),
        client(&ours, uri("spiffe://fleet/envoy/more")),
        client(&ours, common("")),
    ];
    for own in &unlisted {
        // From an address that would be permitted without certificates.
        assert_eq!(status(own, "/check").as_deref(), Some("403"));
        assert_eq!(status(own, "/lease").as_deref(), Some("403"));
    }
    let expired = client(&ours, |params| {
        params
            .subject_alt_names
            .push(SanType::URI("spiffe://fleet/envoy".try_into().expect("a name")));
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let of_a_server = client(&ours, |params| {
        params
            .subject_alt_names
            .push(SanType::URI("spiffe://fleet/envoy".try_into().expect("a name")));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let strange = client(&theirs, uri("spiffe://fleet/envoy"));
    assert_eq!(asked(&server, &root, None, "/check", ""), None, "none at all");
    for own in [&expired, &of_a_server, &strange] {
        assert_eq!(status(own, "/check"), None);
    }
    let operator = "authorization: Bearer only-for-tests-admin\r\n";
    assert_eq!(
        asked(&server, &root, Some(&listed[0]), "/.well-known/tollgate/metrics", operator)
            .as_deref(),
        Some("405"),
        "operators need a certificate and their token"
    );
    let told = server.wait_for_events("client_certificate_refused", 1);
    assert_eq!(told[0]["count"], 1);
    // The authority is replaced without a restart, and an invalid file changes nothing.
    std::fs::write(files.path().join("ca.pem"), "no certificate").expect("written");
    server.signal(Signal::HUP);
    server.wait_for_events("certificates_refused", 1);
    assert_eq!(status(&listed[0], "/check").as_deref(), Some("200"));
    std::fs::write(files.path().join("ca.pem"), theirs.pem()).expect("written");
    server.signal(Signal::HUP);
    server.wait_for_events("certificates_reloaded", 1);
    assert_eq!(status(&listed[0], "/check"), None, "nobody vouches for it any more");
    assert_eq!(status(&strange, "/check").as_deref(), Some("200"));
    let metrics = metrics(&server, &root, &strange);
    assert!(metrics.contains("\ntollgate_client_certificates_refused_total 5\n"), "{metrics}");
    let unauthorized =
        metrics.lines().filter(|line| line.starts_with("tollgate_unauthorized_total"));
    assert!(unauthorized.into_iter().any(|line| line.ends_with(" 14")), "{metrics}");
}

/// The server's metrics, over TLS.
fn metrics(server: &TollgateServer, root: &CertificateDer<'static>, own: &Own) -> String {
    let request = "GET /.well-known/tollgate/metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                   authorization: Bearer only-for-tests-admin\r\n\r\n";
    tls::exchange(server.port, root, Some(own), request).expect("a response")
}
