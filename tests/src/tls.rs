//! A client of TLS, and certificates for it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An authority for clients' certificates.
pub type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A client's certificate and its key.
pub type Own = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// A new authority.
#[must_use]
pub fn authority() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// A client's certificate by this authority, after `change`.
pub fn client(issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> Own {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    let secret = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    (certificate.der().clone(), secret)
}

/// A connection to `localhost` at this port, with a client's certificate or none, which offers
/// these protocols. The handshake begins with the first write.
#[must_use]
pub fn connect(
    port: u16,
    root: &CertificateDer<'static>,
    own: Option<&Own>,
    protocols: &[&[u8]],
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
            .expect("a certificate"),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connected");
    StreamOwned::new(connection, socket)
}

/// The response to `request`, as text; `None` when the connection is refused.
pub fn exchange(
    port: u16,
    root: &CertificateDer<'static>,
    own: Option<&Own>,
    request: &str,
) -> Option<String> {
    let mut stream = connect(port, root, own, &[]);
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    Some(String::from_utf8_lossy(&text).into_owned())
}
