//! TLS: certificates and their key, read again when the operator asks for it.
//!
//! Invariant: a certificate that cannot be used never replaces one that can; open connections keep
//! theirs. TLS 1.2 and 1.3, as rustls has them. Where clients must have certificates, each
//! connection sends its own, which is verified then: no session is resumed with a certificate that
//! has expired meanwhile. Deliberately absent: revocation lists; use short-lived certificates.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The TLS configuration of a listener.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    config: RwLock<Arc<ServerConfig>>,
}

/// The files of certificates and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The server's certificates, its own first.
    pub certificate: PathBuf,
    /// The key of the first.
    pub key: PathBuf,
    /// The authorities for client certificates; `None` where clients need no certificates.
    pub client_ca: Option<PathBuf>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The mistake in them.
    pub fn open(files: Files) -> Result<Self, String> {
        let config = RwLock::new(Arc::new(read(&files)?));
        Ok(Self { files, config })
    }

    /// Reads the files again: new connections use their contents.
    ///
    /// # Errors
    /// The mistake in them; the previous contents stay.
    pub fn reload(&self) -> Result<(), String> {
        let config = Arc::new(read(&self.files)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }
}

/// True when a handshake failed because of the client's certificate: there was none, or no
/// authority vouches for it, now or at all.
pub(crate) fn is_of_certificate(why: &std::io::Error) -> bool {
    let error = why.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
    matches!(
        error,
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

fn message(name: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", name.display())
}

/// The certificates in a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| message(file, &why))?;
    if chain.is_empty() {
        return Err(message(file, &"the file contains no certificate"));
    }
    Ok(chain)
}

fn read(files: &Files) -> Result<ServerConfig, String> {
    let Files { certificate, key, client_ca } = files;
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| message(key, &why))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| message(key, &why))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|why| message(file, &why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|why| message(file, &why))?)
        }
    };
    let mut config = builder.with_single_cert(chain, secret).map_err(|why| message(key, &why))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if client_ca.is_some() {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
