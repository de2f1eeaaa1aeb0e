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
    row("listen", "ADDRESS", Some("127.0.0.1:8080"), "Where requests are answered"),
    row(
        "operations_listen",
        "ADDRESS",
        Some("127.0.0.1:8081"),
        "Where /live and /ready are answered, without TLS and outside all limits",
    ),
    row(
        "ready",
        "WHEN",
        Some("always"),
        "When /ready says that requests should be sent here: always, until the server ends, or \
         with_store: not while the shared store does not answer",
    ),
    row(
        "store",
        "STORE",
        Some("memory"),
        "Where counts are: memory, or the address of a Valkey or Redis that servers share: \
         redis://HOST:PORT, redis+sentinel://HOST,HOST/NAME or redis+cluster://HOST,HOST; \
         rediss for redis is over TLS",
    ),
    row("store_prefix", "TEXT", Some("tollgate:"), "What the names of keys there begin with"),
    row("store_user", "NAME", None, "Whom to log in as there, with store_password"),
    row(
        "store_ca",
        "FILE",
        None,
        "Certificates as PEM that vouch for it, with rediss://; read again on SIGHUP",
    ),
    row(
        "store_certificate",
        "FILE",
        None,
        "Who we are there, as PEM, where it wants that; read again on SIGHUP",
    ),
    row("store_key", "FILE", None, "Its private key as PEM; read again on SIGHUP"),
    row(
        "store_server_name",
        "HOST",
        None,
        "The name in the certificate of every node there; without it, the host of each",
    ),
    row("store_timeout", "MS", Some("250"), "For one call to it"),
    row(
        "store_replicas",
        "NUMBER",
        Some("0"),
        "Replicas of it that must have a charge before it counts: 0, or 1 to 5; with too few, \
         on_failure decides",
    ),
    row("store_replicas_timeout", "MS", Some("50"), "How long it waits for them"),
    row(
        "store_tolerance",
        "MS",
        Some("50"),
        "By how much its clock may differ from the time of a decision; more than half a round trip",
    ),
    row(
        "data",
        "DIR",
        None,
        "Keeps what was put at run time, policies and tenants, across restarts",
    ),
    row("page", "DIR", None, "The folder with the operator's page, to serve it"),
    row("max_keys", "NUMBER", Some("1000000"), "Keys that are held in memory"),
    row("max_key_mib", "MIB", Some("512"), "Memory that they take at most"),
    row(
        "tls_certificate",
        "FILE",
        None,
        "Certificates as PEM, the server's first; read again on SIGHUP",
    ),
    row("tls_key", "FILE", None, "Its private key as PEM; read again on SIGHUP"),
    row(
        "tls_client_ca",
        "FILE",
        None,
        "Who vouches for clients, as PEM: without a certificate of theirs nobody is served; read \
         again on SIGHUP",
    ),
    row(
        "tls_clients",
        "NAMES",
        None,
        "Whose certificates may ask, in place of trusted_callers: dns:NAME, uri:URI, cn:NAME",
    ),
    row(
        "trusted_callers",
        "NETWORKS",
        Some("127.0.0.0/8,::1/128"),
        "Who may ask /check where no check_token is set, because a caller says whose request it is",
    ),
    row(
        "protocols",
        "NAMES",
        None,
        "What is spoken beside /check: ratelimit, ext_authz (Envoy's, over gRPC), ext_authz_http, \
         nginx, forward_auth (over HTTP)",
    ),
    row("audit_header", "NAME", None, "The request header that says who changes something"),
    row("log_sample", "SHARE", Some("1/100"), "Which part of refusals and failures is logged"),
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
        "Which part of requests is traced whose caller says nothing of it; 1/100 unless OTEL_TRACES_SAMPLER says it",
    ),
    row("traces_service", "NAME", None, "What this service is called there; tollgate-server"),
    row(
        "max_connections",
        "NUMBER",
        Some("10000"),
        "Connections at a time; more are closed at once",
    ),
    row(
        "max_per_address",
        "NUMBER",
        Some("1000"),
        "Connections at a time of one address, IPv6: of one /64; more are closed at once",
    ),
    row("max_requests", "NUMBER", Some("4096"), "Requests under way at a time; more get 503"),
    row("max_header_bytes", "BYTES", Some("16384"), "Bytes of a request's head"),
    row("header_timeout", "SECONDS", Some("10"), "For the head of a request to come, and for TLS"),
    row("body_timeout", "SECONDS", Some("10"), "For the body of a request to come"),
    row("idle_timeout", "SECONDS", Some("75"), "A connection without a request is closed after"),
    row(
        "drain_delay",
        "SECONDS",
        Some("0"),
        "From SIGTERM, when /ready fails, to no more connections",
    ),
    row("drain_timeout", "SECONDS", Some("30"), "For requests under way to end after that"),
    row("threads", "NUMBER", None, "Worker threads; as many as there are processors"),
];

/// Every secret: `TOLLGATE_CHECK_TOKEN` in the environment, or `check_token_file`.
pub(crate) const SECRETS: &[Setting] = &[
    row("check_token", "FILE", None, "What /check wants as \"authorization: Bearer\""),
    row("admin_token", "FILE", None, "Turns the admin API on: its bearer reads and changes"),
    row("read_token", "FILE", None, "Its bearer reads what the admin API tells"),
    row("metrics_token", "FILE", None, "Its bearer reads metrics"),
    row("follow_token", "FILE", None, "Its bearer reads the policy in force, as a filter does"),
    row("hash_key", "FILE", None, "Makes the hashes of keys that clients and logs see unguessable"),
    row("store_password", "FILE", None, "What the shared store wants"),
    row(
        "fleet_secret",
        "FILE",
        None,
        "Turns POST /lease on: it names the counts of the fleet, the same in every server and proxy",
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
