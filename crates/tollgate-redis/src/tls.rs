//! TLS to the engine: the trusted authorities, and this server's identity.
//!
//! Invariant: a node receives data only after it has shown a certificate that the authorities of
//! `ca` signed, that is valid now and has its name. Every connection proves this again, so none
//! relies on the proof of an earlier one. Unusable files never replace usable ones.
//!
//! Deliberately absent: the authorities of the machine, unless their file is named, and a way to
//! trust without proof.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::commit::Fault;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The operator's TLS settings.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM: the authorities that sign the engine's certificates.
    pub ca: PathBuf,
    /// PEM: this server's certificate, its chain, and its private key, where the engine requires
    /// one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in every certificate of the engine; without it each certificate must have the host
    /// by which its node is reached. For clusters that announce addresses and have certificates for
    /// a name.
    pub server_name: Option<String>,
}

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// `ca`, `certificate`, `key` or `server_name`: the setting without its `store_`.
    pub what: &'static str,
    /// Its name, and what is wrong with it.
    pub why: String,
}

/// The TLS configuration of connections to the engine.
pub struct Tls {
    files: TlsFiles,
    name: Option<ServerName<'static>>,
    config: RwLock<Arc<ClientConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// All problems of the files.
    pub fn open(files: TlsFiles) -> Result<Self, Vec<BadFile>> {
        let mut wrong = Vec::new();
        let name = files.server_name.clone().map(|name| {
            let bad = || BadFile { what: "server_name", why: format!("{name:?} is not a host") };
            ServerName::try_from(name.clone()).map_err(|_| bad())
        });
        let name = name.transpose().map_err(|bad| wrong.push(bad)).ok().flatten();
        let config = read(&files).map_err(|bad| wrong.extend(bad)).ok();
        match config {
            Some(config) if wrong.is_empty() => {
                Ok(Self { files, name, config: RwLock::new(Arc::new(config)) })
            }
            _ => Err(wrong),
        }
    }

    /// Reads all files again, for new connections.
    ///
    /// # Errors
    /// All problems of the files; the files read before stay in use.
    pub fn reload(&self) -> Result<(), Vec<BadFile>> {
        let config = Arc::new(read(&self.files)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The stream over TLS, once the node at `address` (`host:port`) has proved its identity.
    pub(crate) async fn handshake(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Fault> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => name_of(address).ok_or(Fault::Tls)?,
        };
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        TlsConnector::from(config).connect(name, stream).await.map_err(|_| Fault::Tls)
    }
}

/// The host of `host:port`; an IPv6 address is in brackets.
fn name_of(address: &str) -> Option<ServerName<'static>> {
    let (host, _) = address.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).ok()
}

fn read(files: &TlsFiles) -> Result<ClientConfig, Vec<BadFile>> {
    let mut wrong = Vec::new();
    let mut roots = RootCertStore::empty();
    match certificates("ca", &files.ca) {
        Ok(found) => {
            for certificate in found {
                if let Err(why) = roots.add(certificate) {
                    wrong.push(bad("ca", &files.ca, &why));
                }
            }
        }
        Err(bad) => wrong.push(bad),
    }
    let identity = files.identity.as_ref().map(|(certificate, key)| {
        let chain = certificates("certificate", certificate);
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| bad("key", key, &why));
        (chain.map_err(|bad| wrong.push(bad)).ok(), secret.map_err(|bad| wrong.push(bad)).ok())
    });
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| vec![bad("ca", &files.ca, &why)])?
        .with_root_certificates(roots);
    let mut config = match (identity, &files.identity) {
        (Some((Some(chain), Some(secret))), Some((_, key))) => builder
            .with_client_auth_cert(chain, secret)
            .map_err(|why| vec![bad("key", key, &why)])?,
        _ => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn certificates(what: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, BadFile> {
    let found = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| bad(what, file, &why))?;
    if found.is_empty() {
        return Err(bad(what, file, &"it contains no certificate"));
    }
    Ok(found)
}

fn bad(what: &'static str, file: &Path, why: &dyn fmt::Display) -> BadFile {
    BadFile { what, why: format!("{}: {why}", file.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_to_prove_the_host_that_it_is_reached_by() {
        for (address, expected) in [
            ("redis.example:6379", Some("DnsName(\"redis.example\")")),
            ("10.0.0.1:6379", Some("IpAddress(10.0.0.1)")),
            ("[::1]:6379", Some("IpAddress(::1)")),
            ("fe80::1%eth0:6379", None),
            ("no_port", None),
        ] {
            let name = name_of(address);
            let shown = name.as_ref().map(|name| match name {
                ServerName::DnsName(name) => format!("DnsName({:?})", name.as_ref()),
                other => format!("IpAddress({})", other.to_str()),
            });
            assert_eq!(shown.as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn all_that_is_wrong_with_the_files_is_said_at_once() {
        let files = TlsFiles {
            ca: "/nowhere/ca.pem".into(),
            identity: Some(("/nowhere/cert.pem".into(), "/nowhere/key.pem".into())),
            server_name: Some("no host".to_owned()),
        };
        let wrong = Tls::open(files).err().unwrap_or_default();
        let what: Vec<&str> = wrong.iter().map(|bad| bad.what).collect();
        assert_eq!(what, ["server_name", "ca", "certificate", "key"]);
        assert!(wrong.iter().skip(1).all(|bad| bad.why.starts_with("/nowhere/")), "{wrong:?}");
    }
}
