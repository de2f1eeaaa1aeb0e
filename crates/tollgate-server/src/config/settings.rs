//! The table of settings: each has one name in the file, in the environment and on the command
//! line.
//!
//! Invariant: every setting is a row here. `listen` is `listen` in the file, `TOLLGATE_LISTEN` in
//! the environment and `--listen` as a flag. A flag takes precedence over the environment, and the
//! environment over the file. A secret is never a flag, which every user of the machine can read,
//! nor a member of the file, which is shown around. It is in the environment or in a file of its
//! own, which `..._file` names.

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// The form of a value, for the help.
    pub(crate) value: &'static str,
    /// The default; `None` when there is none.
    pub(crate) default: Option<&'static str>,
    pub(crate) help: &'static str,
}

const fn row(
    name: &'static str,
    value: &'static str,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { name, value, default, help }
}

/// Every setting.
pub(crate) const SETTINGS: &[Setting] = &[
    row(
        "policy",
        "FILE",
        None,
        "The policy, as JSON or YAML; read again when it changes, and on SIGHUP",
    ),
    row(
        "listen",
        "ADDRESS",
        Some("127.0.0.1:8080"),
        "The address on which the server accepts requests",
    ),
    row(
        "operations_listen",
        "ADDRESS",
        Some("127.0.0.1:8081"),
        "The address of /live and /ready, without TLS and outside all limits",
    ),
    row(
        "ready",
        "WHEN",
        Some("always"),
        "When /ready reports that the server takes requests: always, until the server ends, or \
         with_store, only while the shared store responds",
    ),
    row(
        "store",
        "STORE",
        Some("memory"),
        "Where counts are kept: memory, or the address of a Valkey or Redis that servers share: \
         redis://HOST:PORT, redis+sentinel://HOST,HOST/NAME or redis+cluster://HOST,HOST; \
         rediss in place of redis uses TLS",
    ),
    row("store_prefix", "TEXT", Some("tollgate:"), "The prefix of all key names in the store"),
    row("store_user", "NAME", None, "The name of the user in the store, with store_password"),
    row(
        "store_ca",
        "FILE",
        None,
        "The trusted authorities of the store's certificates as PEM, with rediss://; read again \
         on SIGHUP",
    ),
    row(
        "store_certificate",
        "FILE",
        None,
        "The client certificate for a store that requires one, as PEM; read again on SIGHUP",
    ),
    row(
        "store_key",
        "FILE",
        None,
        "The private key of store_certificate as PEM; read again on SIGHUP",
    ),
    row(
        "store_server_name",
        "HOST",
        None,
        "The name in the certificate of every node of the store; without it, the host of each",
    ),
    row("store_timeout", "MS", Some("250"), "The time limit of one call to the store"),
    row(
        "store_replicas",
        "NUMBER",
        Some("0"),
        "The number of the store's replicas that must confirm a charge before it counts: 0, or \
         1 to 5; with fewer confirmations, on_failure decides",
    ),
    row("store_replicas_timeout", "MS", Some("50"), "How long the store waits for these replicas"),
    row(
        "store_tolerance",
        "MS",
        Some("50"),
        "The highest difference between the store's clock and the time of a decision; more than \
         half a round trip",
    ),
    row(
        "data",
        "DIR",
        None,
        "The folder that keeps policies and tenants put at run time across restarts",
    ),
    row("page", "DIR", None, "The folder with the operator's page, to serve it"),
    row("max_keys", "NUMBER", Some("1000000"), "The number of keys held in memory"),
    row("max_key_mib", "MIB", Some("512"), "The memory that these keys take at most"),
    row(
        "tls_certificate",
        "FILE",
        None,
        "Certificates as PEM, the server's first; read again on SIGHUP",
    ),
    row("tls_key", "FILE", None, "The private key of tls_certificate as PEM; read again on SIGHUP"),
    row(
        "tls_client_ca",
        "FILE",
        None,
        "The trusted authorities of client certificates as PEM; a client without such a \
         certificate is not served; read again on SIGHUP",
    ),
    row(
        "tls_clients",
        "NAMES",
        None,
        "The names of client certificates that may call /check, in place of trusted_callers: \
         dns:NAME, uri:URI, cn:NAME",
    ),
    row(
        "trusted_callers",
        "NETWORKS",
        Some("127.0.0.0/8,::1/128"),
        "The networks that may call /check where no check_token is set; a caller names the \
         client of each request, and so could spend any client's quota",
    ),
    row(
        "protocols",
        "NAMES",
        None,
        "The protocols in addition to /check: ratelimit, ext_authz (Envoy's, over gRPC), \
         ext_authz_http, nginx, forward_auth (over HTTP)",
    ),
    row("audit_header", "NAME", None, "The request header that names the operator of a change"),
    row("log_sample", "SHARE", Some("1/100"), "The share of denials and failures that is logged"),
    row(
        "traces",
        "URL",
        None,
        "The collector that traces are sent to, by OTLP over HTTP, such as http://127.0.0.1:4318",
    ),
    row(
        "traces_share",
        "SHARE",
        None,
        "The share of traced requests among those whose caller does not decide it; 1/100 unless \
         OTEL_TRACES_SAMPLER sets it",
    ),
    row(
        "traces_service",
        "NAME",
        None,
        "The name of this service in traces; tollgate-server unless OTEL_SERVICE_NAME sets it",
    ),
    row(
        "max_connections",
        "NUMBER",
        Some("10000"),
        "Concurrent connections; more are closed at once",
    ),
    row(
        "max_per_address",
        "NUMBER",
        Some("1000"),
        "Concurrent connections of one address, for IPv6 of one /64; more are closed at once",
    ),
    row("max_requests", "NUMBER", Some("4096"), "Concurrent requests; more get 503"),
    row("max_header_bytes", "BYTES", Some("16384"), "Bytes of a request's head"),
    row(
        "header_timeout",
        "SECONDS",
        Some("10"),
        "The time for the head of a request to arrive, and for the TLS handshake",
    ),
    row("body_timeout", "SECONDS", Some("10"), "The time for the body of a request to arrive"),
    row(
        "idle_timeout",
        "SECONDS",
        Some("75"),
        "The time after which a connection without a request is closed",
    ),
    row(
        "drain_delay",
        "SECONDS",
        Some("0"),
        "The time from SIGTERM, when /ready fails, to the last accepted connection",
    ),
    row(
        "drain_timeout",
        "SECONDS",
        Some("30"),
        "The time for running requests to end after drain_delay",
    ),
    row("threads", "NUMBER", None, "Worker threads; as many as there are processors"),
];

/// Every secret: `TOLLGATE_CHECK_TOKEN` in the environment, or `check_token_file`.
pub(crate) const SECRETS: &[Setting] = &[
    row(
        "check_token",
        "FILE",
        None,
        "The token that callers of /check send as \"authorization: Bearer\"",
    ),
    row(
        "admin_token",
        "FILE",
        None,
        "Turns on the admin API; this token may read and change everything",
    ),
    row("read_token", "FILE", None, "This token may read the admin API"),
    row("metrics_token", "FILE", None, "This token may read metrics"),
    row("follow_token", "FILE", None, "This token may read the policy in force, as a filter does"),
    row(
        "hash_key",
        "FILE",
        None,
        "Makes the hashes of keys in responses and logs impossible to guess",
    ),
    row("store_password", "FILE", None, "The password of the shared store"),
    row(
        "fleet_secret",
        "FILE",
        None,
        "Turns on POST /lease; the names of the fleet's counts derive from it, so it is the \
         same in every server and proxy",
    ),
];

impl Setting {
    /// Its name in the environment.
    pub(crate) fn variable(&self) -> String {
        format!("TOLLGATE_{}", self.name.to_ascii_uppercase())
    }

    /// Its name as a flag, without the dashes in front.
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }
}
