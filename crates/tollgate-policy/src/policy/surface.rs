//! Where a policy is enforced, and what is known there.
//!
//! Invariant: the compiler asks a surface for its traits, never which one it is. A new surface is a
//! variant with its traits here, and the compiler lists the other places. It is known only while a
//! document is compiled.

use crate::document::client_ip::Source;
use crate::document::fact::Need;
use crate::policy::table_size::MAX_VALUE_LEN;

/// Where a policy is enforced: what a document may ask for, and the default of `client_ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The Envoy filter.
    Envoy,
    /// The Cloudflare Worker.
    Worker,
    /// A program that uses this crate and gives every fact itself ([`Facts`](crate::Facts)).
    Library,
    /// A service that is asked about requests, as in [`DescribedRequest`](crate::DescribedRequest).
    Server,
}

/// How a surface comes by a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// By itself.
    Itself,
    /// From what the document names; or else this is wrong with it.
    Named(&'static str),
    /// Not at all, and so it is said.
    Never(&'static str),
}

/// What is known, and different, of a surface.
pub(crate) struct Traits {
    name: &'static str,
    /// Where the client's address comes from unless the document says it.
    pub(crate) source: Source,
    /// What is wrong with `cf-connecting-ip` there.
    pub(crate) no_cf_connecting_ip: Option<&'static str>,
    route: Supply,
    country: Supply,
    asn: Supply,
    claims: Supply,
    descriptors: Supply,
    /// It verifies tokens itself, with the keys of the document.
    pub(crate) verifies_tokens: bool,
    /// Rules are told apart by their labels there.
    pub(crate) has_labels: bool,
    /// Each key is an object, which serves one request after the other.
    pub(crate) has_objects: bool,
    /// Bytes of the longest value that it can store.
    pub(crate) longest_value: usize,
    /// What is wrong with tenants there; nothing where entries have a store.
    pub(crate) no_tenants: Option<&'static str>,
    /// What is wrong with priorities of who waits there; nothing where one queue holds them all.
    pub(crate) no_priority: Option<&'static str>,
    /// What is wrong with counts of the fleet there; nothing where they are kept or asked for.
    pub(crate) no_fleet: Option<&'static str>,
    /// Counts of the fleet are kept by somebody else, who may not answer.
    pub(crate) asks_authority: bool,
    /// There is one count for all clients, whatever the scope.
    pub(crate) is_one_node: bool,
}

const ENVOY: Traits = Traits {
    name: "envoy",
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
    descriptors: Supply::Never(
        "is what Envoy asks a rate limit service with, which tollgate-server is; the filter sees requests, so name a \
         header, a path or a host",
    ),
    verifies_tokens: false,
    has_labels: true,
    has_objects: false,
    longest_value: MAX_VALUE_LEN,
    no_tenants: Some(
        "is for surfaces with a store of tenants, which Envoy is not; leave it out, and write a tier with \
         \"key_values\"",
    ),
    no_priority: None,
    // Whether an authority is configured, the filter says.
    no_fleet: None,
    asks_authority: true,
    is_one_node: false,
};

const WORKER: Traits = Traits {
    name: "worker",
    source: Source::CfConnectingIp,
    no_cf_connecting_ip: None,
    route: Supply::Never("exists in Envoy only; a Worker has no named routes"),
    // It knows where its clients are; a header would be one that any client can send.
    country: Supply::Itself,
    asn: Supply::Itself,
    claims: Supply::Named("needs jwt.keys in the Worker: what tokens are verified with"),
    descriptors: Supply::Never(
        "is what Envoy asks a rate limit service with, which tollgate-server is; a Worker sees requests, so name a \
         header, a path or a host",
    ),
    verifies_tokens: true,
    has_labels: false,
    has_objects: true,
    longest_value: usize::MAX,
    no_tenants: None,
    no_priority: Some(
        "is for the Envoy filter and programs with the library; in the Worker requests that wait go in the order in \
         which they came, so leave it out",
    ),
    no_fleet: None,
    asks_authority: false,
    is_one_node: true,
};

const LIBRARY: Traits = Traits {
    name: "library",
    source: Source::Connection,
    no_cf_connecting_ip: Some(
        "\"cf-connecting-ip\" exists in the Worker only; use {\"header\": \"cf-connecting-ip\"} with \
         trusted_proxies",
    ),
    route: Supply::Itself,
    country: Supply::Itself,
    asn: Supply::Itself,
    claims: Supply::Itself,
    descriptors: Supply::Itself,
    verifies_tokens: false,
    has_labels: false,
    has_objects: false,
    longest_value: usize::MAX,
    no_tenants: None,
    no_priority: None,
    no_fleet: Some(
        "\"fleet\" needs an authority, and a library asks none; use {\"share\": 12}, or let the program ask a \
         tollgate-server",
    ),
    asks_authority: false,
    is_one_node: false,
};

const SERVER: Traits = Traits {
    name: "server",
    source: Source::Connection,
    no_cf_connecting_ip: Some(
        "\"cf-connecting-ip\" exists in the Worker only; who asks a server says whose request it is",
    ),
    route: Supply::Never("is not known to a server: who asks names no route"),
    country: Supply::Itself,
    asn: Supply::Itself,
    claims: Supply::Never("is not known to a server: nobody verifies a token for it"),
    descriptors: Supply::Itself,
    verifies_tokens: false,
    has_labels: false,
    has_objects: false,
    longest_value: usize::MAX,
    no_tenants: None,
    no_priority: Some(
        "is for the Envoy filter and programs with the library; in a server requests that wait go in the order in \
         which they came, so leave it out",
    ),
    no_fleet: None,
    asks_authority: false,
    is_one_node: false,
};

impl Surface {
    /// Every surface.
    pub const ALL: [Self; 4] = [Self::Envoy, Self::Worker, Self::Library, Self::Server];

    /// What is known of it.
    pub(crate) const fn traits(self) -> Traits {
        match self {
            Self::Envoy => ENVOY,
            Self::Worker => WORKER,
            Self::Library => LIBRARY,
            Self::Server => SERVER,
        }
    }

    /// Bytes of the longest value that it can store.
    pub(crate) fn longest_value(self) -> usize {
        self.traits().longest_value
    }

    /// True when counts of the fleet are kept by somebody else, who may not answer.
    pub(crate) fn asks_authority(self) -> bool {
        self.traits().asks_authority
    }

    /// How it is named on a command line: `envoy`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// The surface of this name.
    ///
    /// ```
    /// use tollgate_policy::Surface;
    /// for surface in Surface::ALL {
    ///     assert_eq!(Surface::parse(surface.name()), Some(surface));
    /// }
    /// assert_eq!(Surface::parse("Envoy"), None);
    /// ```
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|surface| surface.name() == name)
    }
}

impl Traits {
    /// How the surface comes by a fact.
    pub(crate) const fn supply(&self, need: Need) -> Supply {
        match need {
            Need::Route => self.route,
            Need::Country => self.country,
            Need::Asn => self.asn,
            Need::Claims => self.claims,
            Need::Descriptors => self.descriptors,
        }
    }
}
