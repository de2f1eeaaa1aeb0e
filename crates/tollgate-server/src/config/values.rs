//! Settings as values: checked and typed.
//!
//! Invariant: every mistake is noted with its place, and reading continues. Secrets appear in no
//! message.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_policy::Problems;
use tollgate_redis::{Address, TlsFiles};
use tollgate_service::log::Share;
use tollgate_service::{Token, Tokens};

use crate::config::networks::{self, Network};
use crate::config::reader::Reader;
use crate::listen::peer::{CertifiedName, Peer};
use crate::listen::tls::Files;
use crate::operate::admin::Operators;
use crate::policy::active::ProtocolRestrictions;

use crate::config::settings::SECRETS;
use crate::config::sources::Sources;
use crate::http::protocols::Protocols;
use crate::store::table::TableLimits;

/// A shorter token can be found by brute force.
const LEAST_TOKEN: usize = 16;

/// The configuration.
#[derive(Debug)]
pub struct Config {
    /// The policy file.
    pub policy: PathBuf,
    /// The address of the listener for requests.
    pub listen: SocketAddr,
    /// The address of the listener for probes.
    pub operations_listen: SocketAddr,
    /// The folder for policies and tenants that are written at run time, if they are kept.
    pub data: Option<PathBuf>,
    /// The folder of the operator's page, if it is served.
    pub page: Option<PathBuf>,
    /// The limits of the counts in memory.
    pub table: TableLimits,
    /// The engine that servers share, if it has the counts.
    pub engine: Option<tollgate_redis::Options>,
    /// The files for TLS to the engine, if it is used.
    pub engine_tls: Option<TlsFiles>,
    /// Certificates and key, if it uses TLS.
    pub tls: Option<Files>,
    /// The protocols in addition to `POST /check`.
    pub spoken: ProtocolRestrictions,
    /// The allowed callers.
    pub callers: Callers,
    /// The allowed operators, and their scopes below `/.well-known/tollgate/`.
    pub operators: Operators,
    /// The secret with which keys are hashed; empty for none.
    pub hash_key: Vec<u8>,
    /// The secret from which the names of the fleet's counts are derived, if nodes may lease.
    pub fleet_secret: Option<[u8; 16]>,
    /// The share of denials that is logged.
    pub log_share: Share,
    /// Limits of connections and requests.
    pub limits: Limits,
    /// The conditions of `/ready`.
    pub readiness: Readiness,
    /// The times from the signal to the last accepted connection, and from there to the end.
    pub drain: (Duration, Duration),
    /// Worker threads.
    pub threads: usize,
    /// The collector of traces, if they are configured.
    pub traces: Option<crate::traces::Options>,
    /// Settings that are certainly not intended.
    pub warnings: Vec<String>,
}

/// Callers of `/check`: they name the client of a request, and could spend any client's quota.
#[derive(Default)]
pub struct Callers {
    /// The bearer token of callers; `None` when the networks decide.
    pub token: Option<Token>,
    /// Certificate names that replace the token; when there are any, no address is enough.
    pub names: Vec<CertifiedName>,
    /// The networks of callers, when there is neither.
    pub networks: Vec<Network>,
    /// The protocols in addition to `/check`.
    pub protocols: Protocols,
}

impl Callers {
    /// True when a caller without a token is allowed all the same: by its certificate, or, where
    /// neither is configured, by its address.
    #[must_use]
    pub fn trusts(&self, peer: Peer) -> bool {
        let is_near = || self.networks.iter().any(|network| network.contains(peer.address));
        peer.is_named || (self.token.is_none() && self.names.is_empty() && is_near())
    }
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callers")
            .field("names", &self.names)
            .field("networks", &self.networks)
            .field("protocols", &self.protocols)
            .finish_non_exhaustive()
    }
}

/// The condition of `/ready` in addition to a server that is not ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// None: without its store a server decides by `on_failure`.
    Always,
    /// A store that responds.
    WithStore,
}

/// Limits of connections and requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent connections of one address.
    pub connections_per_address: usize,
    /// Concurrent requests.
    pub requests: usize,
    /// Bytes of a head.
    pub header_bytes: usize,
    /// The time for a head to arrive.
    pub header_timeout: Duration,
    /// The time for a body to arrive.
    pub body_timeout: Duration,
    /// The time for the next request to arrive.
    pub idle_timeout: Duration,
}

impl Config {
    pub(super) fn read(sources: &Sources, problems: &mut Problems) -> Self {
        let mut reader = Reader::new(sources, problems);
        let r = &mut reader;
        let policy = r.text("policy").map(PathBuf::from);
        if policy.is_none() {
            r.wrong("policy", "is missing; name the file with the policy");
        }
        let engine = engine(r);
        let engine_tls = engine_tls(r, engine.as_ref());
        let (tls, names) = (tls(r), names(r));
        let wanted = "is not a list of networks; use one such as \"10.0.0.0/8,::1/128\"";
        let networks = r.read("trusted_callers", wanted, Vec::new(), |text| {
            text.split(',').map(|network| Network::parse(network.trim())).collect()
        });
        let key_bytes = r.number("max_key_mib", 1..=1_048_576).saturating_mul(1 << 20);
        let table = TableLimits { keys: r.number("max_keys", 1..=1_000_000_000), bytes: key_bytes };
        let (limits, readiness) = (limits(r), readiness(r, engine.is_some()));
        let threads = match r.text("threads") {
            Some(_) => r.number("threads", 1..=1024),
            None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        };
        let log_share = r.read("log_sample", Share::WANTED, Share::DEFAULT, Share::parse);
        let hash_key: Vec<u8> = r.text("hash_key").map(|key| key.trim().into()).unwrap_or_default();
        let protocols =
            r.read("protocols", Protocols::WANTED, Protocols::default(), Protocols::parse);
        // In memory the secret is this process's own.
        let without_ids = (engine.is_some() && hash_key.is_empty()).then_some("hash_key");
        let mut warnings = Vec::new();
        let (token, operators) = secrets(r, &mut warnings);
        if token.is_none() && names.is_empty() {
            warnings.extend(networks::warning(&networks));
        }
        Self {
            policy: policy.unwrap_or_default(),
            listen: r.address("listen"),
            operations_listen: r.address("operations_listen"),
            data: r.text("data").map(PathBuf::from),
            page: r.text("page").map(PathBuf::from),
            table,
            engine,
            engine_tls,
            tls,
            spoken: protocols.restrictions(without_ids),
            callers: Callers { token, names, networks, protocols },
            operators,
            hash_key,
            fleet_secret: fleet_secret(r),
            log_share,
            limits,
            readiness,
            drain: (r.seconds("drain_delay", 0), r.seconds("drain_timeout", 0)),
            threads,
            traces: None,
            warnings,
        }
    }
}

/// The files for TLS.
fn tls(r: &mut Reader<'_>) -> Option<Files> {
    let client_ca = r.text("tls_client_ca").map(PathBuf::from);
    let tls = match (r.text("tls_certificate"), r.text("tls_key")) {
        (Some(certificate), Some(key)) => {
            Some(Files { certificate: certificate.into(), key: key.into(), client_ca })
        }
        (None, None) => {
            if client_ca.is_some() {
                r.wrong("tls_client_ca", "also needs tls_certificate and tls_key");
            }
            None
        }
        (Some(_), None) => {
            r.wrong("tls_certificate", "also needs tls_key");
            None
        }
        (None, Some(_)) => {
            r.wrong("tls_key", "also needs tls_certificate");
            None
        }
    };
    if r.text("tls_clients").is_some() && r.text("tls_client_ca").is_none() {
        r.wrong("tls_clients", "also needs tls_client_ca, which names their authorities");
    }
    tls
}

/// The names in certificates of allowed callers.
fn names(r: &mut Reader<'_>) -> Vec<CertifiedName> {
    r.read("tls_clients", CertifiedName::WANTED, Vec::new(), |text| {
        text.split(',').map(CertifiedName::parse).collect()
    })
}

/// Limits of connections and requests.
fn limits(r: &mut Reader<'_>) -> Limits {
    Limits {
        connections: r.number("max_connections", 1..=1_000_000),
        connections_per_address: r.number("max_per_address", 1..=1_000_000),
        requests: r.number("max_requests", 1..=1_000_000),
        header_bytes: r.number("max_header_bytes", 8192..=1_048_576),
        header_timeout: r.seconds("header_timeout", 1),
        body_timeout: r.seconds("body_timeout", 1),
        idle_timeout: r.seconds("idle_timeout", 1),
    }
}

/// The condition of `/ready`.
fn readiness(r: &mut Reader<'_>, has_engine: bool) -> Readiness {
    let read = |text: &str| match text {
        "always" => Some(Readiness::Always),
        "with_store" => Some(Readiness::WithStore),
        _ => None,
    };
    let wanted = "is neither \"always\" nor \"with_store\"";
    let readiness = r.read("ready", wanted, Readiness::Always, read);
    if readiness == Readiness::WithStore && !has_engine {
        r.wrong("ready", "is for a store that servers share; name it in store");
    }
    readiness
}

/// The engine that `store` names; `None` when the store is memory.
fn engine(r: &mut Reader<'_>) -> Option<tollgate_redis::Options> {
    let Some(text) = r.text("store").filter(|text| text != "memory") else {
        if r.number("store_replicas", 0..=5) > 0 {
            r.wrong("store_replicas", "is for a store that servers share; name it in store");
        }
        return None;
    };
    let mut address = match Address::parse(&text) {
        Ok(address) => address,
        Err(why) => {
            // The text may contain a password.
            r.wrong("store", &format!("is neither \"memory\" nor an address: it {why}"));
            return None;
        }
    };
    if address.password.is_some() {
        r.wrong("store", "has a password in it; use store_user and store_password");
    }
    if r.text("data").is_some() {
        r.wrong("data", "is for a store in memory; the rules are in the engine");
    }
    address.password = r.text("store_password").map(|password| password.trim().to_owned());
    address.user = r.text("store_user");
    if address.user.is_some() && address.password.is_none() {
        r.wrong("store_user", "also needs store_password");
    }
    let mut options = tollgate_redis::Options::new(address);
    options.prefix = r.text("store_prefix").unwrap_or_default();
    let timeout = r.number("store_timeout", 10..=60_000);
    options.timeout = Duration::from_millis(u64::try_from(timeout).unwrap_or(u64::MAX));
    options.replicas = replicas(r, timeout);
    let tolerance = r.number("store_tolerance", 1..=10_000);
    options.settings.tolerance_ms = u64::try_from(tolerance).unwrap_or(u64::MAX);
    options.secret = r.text("hash_key").map(|key| key.trim().into()).unwrap_or_default();
    Some(options)
}

/// How many replicas must have a commit, and how long the engine waits for them within a call of
/// this many milliseconds.
fn replicas(r: &mut Reader<'_>, timeout: usize) -> Option<tollgate_redis::Replicas> {
    let count = u32::try_from(r.number("store_replicas", 0..=5)).unwrap_or(0);
    let wait = r.number("store_replicas_timeout", 1..=59_999);
    if count == 0 {
        return None;
    }
    if wait >= timeout {
        let message = format!("must be shorter than store_timeout, which is {timeout}");
        r.wrong("store_replicas_timeout", &message);
    }
    let timeout = Duration::from_millis(u64::try_from(wait).unwrap_or(u64::MAX));
    Some(tollgate_redis::Replicas { count, timeout })
}

/// The files for TLS to the engine: with `rediss://`, and only then.
fn engine_tls(r: &mut Reader<'_>, engine: Option<&tollgate_redis::Options>) -> Option<TlsFiles> {
    let is_tls = engine.is_some_and(|options| options.address.is_tls);
    let given = ["store_ca", "store_certificate", "store_key", "store_server_name"]
        .map(|name| (name, r.text(name)));
    if !is_tls {
        for (name, _) in given.into_iter().filter(|(_, text)| text.is_some()) {
            r.wrong(name, "is for a store over TLS; write rediss for redis in its address");
        }
        return None;
    }
    let [(_, ca), (_, certificate), (_, key), (_, server_name)] = given;
    if ca.is_none() {
        r.wrong("store", "uses TLS; name the file with its trusted authorities in store_ca");
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        (Some(_), None) => {
            r.wrong("store_certificate", "also needs store_key");
            None
        }
        (None, Some(_)) => {
            r.wrong("store_key", "also needs store_certificate");
            None
        }
    };
    Some(TlsFiles { ca: ca?.into(), identity, server_name })
}

/// The secret of the fleet, read as in the Envoy filter.
fn fleet_secret(r: &mut Reader<'_>) -> Option<[u8; 16]> {
    let text = r.sources.get("fleet_secret")?.text.trim().to_owned();
    let is_text = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_text || !(16..=256).contains(&text.len()) {
        r.wrong("fleet_secret", "must be 16 to 256 visible ASCII characters");
    }
    Some(tollgate_policy::fleet_secret(&text))
}

/// The tokens: each with its own value, and none empty, since that would allow every caller.
fn secrets(r: &mut Reader<'_>, warnings: &mut Vec<String>) -> (Option<Token>, Operators) {
    let mut taken: Vec<(&str, String)> = Vec::new();
    let mut tokens = [const { None }; 5];
    for (token, secret) in tokens.iter_mut().zip(SECRETS) {
        let name = secret.name;
        let Some(given) = r.sources.get(name) else { continue };
        let value = given.text.trim().to_owned();
        if value.is_empty() {
            r.wrong(name, "is empty; give it a value or leave it out");
            continue;
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            r.wrong(
                name,
                "cannot be sent in a header; use visible ASCII characters without spaces",
            );
        }
        if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == value) {
            r.wrong(name, &format!("is the same as {other}; give each a value of its own"));
        }
        if value.len() < LEAST_TOKEN {
            warnings
                .push(format!("{name} is short enough to be guessed; use 16 characters or more"));
        }
        *token = Some(Token::new(value.as_bytes()));
        taken.push((name, value));
    }
    if r.sources.get("hash_key").is_some_and(|given| given.text.trim().is_empty()) {
        r.wrong("hash_key", "is empty; give it a value or leave it out");
    }
    let [check, admin, read, metrics, follow] = tokens;
    for (name, token) in [("read_token", &read), ("follow_token", &follow)] {
        if token.is_some() && admin.is_none() {
            r.wrong(name, "reads what admin_token turns on; set that, or leave this out");
        }
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let wanted = "is not the name of a header; use one such as \"x-forwarded-user\"";
    let audit_header = r.read("audit_header", wanted, None, |name| {
        name.bytes().all(is_token).then(|| Some(name.to_ascii_lowercase()))
    });
    (check, Operators { tokens: Tokens { admin, read, metrics, follow }, audit_header })
}
