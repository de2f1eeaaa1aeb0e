//! The abilities of each surface, as far as a document depends on them.
//!
//! Invariant: the compiler reads the traits of a surface, never its variant. A new surface is a
//! variant of [`Surface`] with its traits here, and the Rust compiler reports the other places.

use tollgate_policy::spec::{Need, Source, Surface};

/// How a surface obtains a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// The surface knows it.
    Itself,
    /// The document names the source; if it does not, this is the error.
    Named(&'static str),
    /// It is not available, with this error.
    Never(&'static str),
}

/// The properties in which surfaces differ.
pub(crate) struct Traits {
    /// The source of the client's address, unless the document names one.
    pub(crate) source: Source,
    /// The error for `cf-connecting-ip` there.
    pub(crate) no_cf_connecting_ip: Option<&'static str>,
    route: Supply,
    country: Supply,
    asn: Supply,
    claims: Supply,
    metadata: Supply,
    certificate: Supply,
    certificate_names: Supply,
    cloudflare: Supply,
    descriptors: Supply,
    /// It verifies tokens, with the keys of the document.
    pub(crate) verifies_tokens: bool,
    /// It identifies rules by their labels.
    pub(crate) has_labels: bool,
    /// Each key is an object, which processes one request after the other.
    pub(crate) has_objects: bool,
    /// The error for tenants there; `None` when it has a store of entries.
    pub(crate) no_tenants: Option<&'static str>,
    /// The error for priorities of waiting requests there; `None` when one queue contains them all.
    pub(crate) no_priority: Option<&'static str>,
    /// The error for counts of the fleet there; `None` when they are kept there or requested from
    /// an authority.
    pub(crate) no_fleet: Option<&'static str>,
    /// The warning for a cost that the response shows there; `None` where responses are seen.
    pub(crate) no_response: Option<&'static str>,
    /// The warning for a cost by the status of the response there: which requests ignore it.
    pub(crate) ignores_statuses: Option<&'static str>,
    /// The error for a cost that the metadata of the response shows there.
    pub(crate) no_response_metadata: Option<&'static str>,
    /// The warning for a cost in the body of a response there: what reads it.
    pub(crate) reads_body: Option<&'static str>,
    /// The warning for regular expressions there.
    pub(crate) searches: Option<&'static str>,
    /// The warning for such a limit there: what callers have to do.
    pub(crate) ends_reported: Option<&'static str>,
    /// There is one count for all clients, whatever the scope.
    pub(crate) is_one_node: bool,
}

const NO_CLOUDFLARE: &str = "exists in the Worker only, to which Cloudflare reports it";

const ENVOY: Traits = Traits {
    source: Source::Connection,
    no_cf_connecting_ip: Some(
        "\"cf-connecting-ip\" exists in the Worker only; in Envoy use {\"header\": \"cf-connecting-ip\"} \
         with trusted_proxies",
    ),
    route: Supply::Itself,
    country: Supply::Named(
        "needs geo.country_header in Envoy: the header that a trusted proxy sets",
    ),
    asn: Supply::Named("needs geo.asn_header in Envoy: the header that a trusted proxy sets"),
    claims: Supply::Named(
        "needs jwt.metadata in Envoy: the payload_in_metadata of the jwt_authn filter",
    ),
    metadata: Supply::Itself,
    certificate: Supply::Itself,
    certificate_names: Supply::Itself,
    cloudflare: Supply::Never(NO_CLOUDFLARE),
    descriptors: Supply::Never(
        "is for a rate limit service, such as tollgate-server, to which Envoy sends descriptors; the filter gets requests, \
         so use a header, a path or a host",
    ),
    verifies_tokens: false,
    has_labels: true,
    has_objects: false,
    no_tenants: Some(
        "needs a store of tenants, which Envoy does not have; leave it out, and write a tier with \
         \"key_values\"",
    ),
    no_priority: None,
    // The filter checks whether an authority is configured.
    no_fleet: None,
    no_response: None,
    ignores_statuses: None,
    no_response_metadata: None,
    reads_body: Some(
        "is in the body of the response, which the module tollgate-envoy-full.wasm alone reads: the other modules refuse \
         this policy",
    ),
    searches: Some(
        "have regular expressions, for which Envoy needs the module tollgate-envoy-full.wasm: the other modules refuse \
         this policy",
    ),
    ends_reported: None,
    is_one_node: false,
};

const WORKER: Traits = Traits {
    source: Source::CfConnectingIp,
    no_cf_connecting_ip: None,
    route: Supply::Never("exists in Envoy only; a Worker has no named routes"),
    // The Worker knows where its clients are; any client could send a header.
    country: Supply::Itself,
    asn: Supply::Itself,
    claims: Supply::Named("needs jwt.keys in the Worker: the keys that verify tokens"),
    metadata: Supply::Never("exists in Envoy only; a Worker has no filters that set it"),
    certificate: Supply::Itself,
    certificate_names: Supply::Never(
        "is not known to a Worker, which sees no subject alternative names; use \"subject\" or \"sha256\"",
    ),
    cloudflare: Supply::Itself,
    descriptors: Supply::Never(
        "is for a rate limit service, such as tollgate-server, to which Envoy sends descriptors; a Worker gets requests, \
         so use a header, a path or a host",
    ),
    verifies_tokens: true,
    has_labels: false,
    has_objects: true,
    no_tenants: None,
    no_priority: Some(
        "is for the Envoy filter and programs with the library; in the Worker, waiting requests are sent on in the \
         order of their arrival, so leave it out",
    ),
    no_fleet: None,
    no_response: None,
    ignores_statuses: None,
    reads_body: None,
    searches: None,
    no_response_metadata: Some(
        "exists in Envoy only; a Worker has no filters that set it: use {\"header\": name}, \
         {\"json\": [...]}, \"bytes\" or \"duration\"",
    ),
    ends_reported: None,
    is_one_node: true,
};

const LIBRARY: Traits = Traits {
    source: Source::Connection,
    no_cf_connecting_ip: Some(
        "\"cf-connecting-ip\" exists in the Worker only; use {\"header\": \"cf-connecting-ip\"} with \
         trusted_proxies",
    ),
    route: Supply::Itself,
    country: Supply::Itself,
    asn: Supply::Itself,
    claims: Supply::Itself,
    metadata: Supply::Itself,
    certificate: Supply::Itself,
    certificate_names: Supply::Itself,
    cloudflare: Supply::Never(NO_CLOUDFLARE),
    descriptors: Supply::Itself,
    verifies_tokens: false,
    has_labels: false,
    has_objects: false,
    no_tenants: None,
    no_priority: None,
    no_fleet: Some(
        "\"fleet\" needs an authority, which a program with the library does not have; use {\"share\": 12}, or let the \
         program send requests to a tollgate-server",
    ),
    no_response: None,
    ignores_statuses: None,
    no_response_metadata: None,
    reads_body: None,
    searches: None,
    ends_reported: None,
    is_one_node: false,
};

const NO_CERTIFICATE: &str =
    "is not known to a server: its callers send no certificate; use a header that the proxy sets";

const SERVER: Traits = Traits {
    source: Source::Connection,
    no_cf_connecting_ip: Some(
        "\"cf-connecting-ip\" exists in the Worker only; a server gets the client's address from its caller",
    ),
    route: Supply::Never("is not known to a server: its callers send no route"),
    country: Supply::Itself,
    asn: Supply::Itself,
    claims: Supply::Never("is not known to a server: no proxy verifies a token for it"),
    metadata: Supply::Never(
        "is not known to a server: its callers send no metadata; use a header that the proxy sets",
    ),
    certificate: Supply::Never(NO_CERTIFICATE),
    certificate_names: Supply::Never(NO_CERTIFICATE),
    cloudflare: Supply::Never(NO_CLOUDFLARE),
    descriptors: Supply::Itself,
    verifies_tokens: false,
    has_labels: false,
    has_objects: false,
    no_tenants: None,
    no_priority: Some(
        "is for the Envoy filter and programs with the library; in a server, waiting requests are sent on in the \
         order of their arrival, so leave it out",
    ),
    no_fleet: None,
    no_response: Some(
        "is settled by POST /check/settle alone: a server sees no response, so the estimate stays for ext_authz, forward \
         auth, the rate limit service and callers that report no cost",
    ),
    ignores_statuses: Some(
        "has no effect in a server, which sees no status of the response: a caller of POST /check reports what such a status \
         costs by POST /check/settle, or else the estimate stays",
    ),
    no_response_metadata: None,
    reads_body: None,
    searches: None,
    ends_reported: Some(
        "is for callers of POST /check: they confirm a request in flight by POST /check/renew and end it by POST /check/done; \
         a server with ext_authz, forward auth or the rate limit service among its protocols does not start with it",
    ),
    is_one_node: false,
};

/// The traits of `surface`.
pub(crate) const fn traits(surface: Surface) -> &'static Traits {
    match surface {
        Surface::Envoy => &ENVOY,
        Surface::Worker => &WORKER,
        Surface::Library => &LIBRARY,
        Surface::Server => &SERVER,
    }
}

impl Traits {
    /// How the surface obtains a fact.
    pub(crate) const fn supply(&self, need: Need) -> Supply {
        match need {
            Need::Route => self.route,
            Need::Country => self.country,
            Need::Asn => self.asn,
            Need::Claims => self.claims,
            Need::Metadata => self.metadata,
            Need::Certificate => self.certificate,
            Need::CertificateNames => self.certificate_names,
            Need::Cloudflare => self.cloudflare,
            Need::Descriptors => self.descriptors,
        }
    }
}
