//! The fields that a line may contain, and the set of wanted fields.
//!
//! Invariant: a field has one name in words, which is read and written in the same form. This file
//! knows no format.

use std::fmt;

/// One fact about a request that a log may contain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// When it came: `time`.
    Time,
    /// The sender, an address or a host name: `client`.
    Client,
    /// The peer address, where the log has both: `peer`.
    Peer,
    /// The method: `method`.
    Method,
    /// The request target, path and query, as received: `target`.
    Target,
    /// The host, as received: `host`.
    Host,
    /// The status of the response: `status`.
    Status,
    /// The cost that the response showed, in quota units: `actual`.
    Actual,
    /// How long the request ran, in milliseconds, or with a point in seconds: `duration`.
    Duration,
    /// The name of the route: `route`.
    Route,
    /// The user of HTTP authentication: `user`.
    User,
    /// The client's country: `country`.
    Country,
    /// The client's autonomous system number: `asn`.
    Asn,
    /// A request header by its name in lower case: `header.x-api-key`.
    Header(String),
    /// A cookie by its name: `cookie.session`.
    Cookie(String),
    /// A query parameter by its name: `query.q`.
    Query(String),
    /// A claim of a verified token by its name: `claim.sub`.
    Claim(String),
    /// A value of a proxy's metadata by its path: `metadata.envoy.filters.http.ext_authz/tenant`.
    Metadata(String),
    /// A part of the client's certificate by its name in a policy: `certificate.subject`.
    Certificate(String),
    /// A fact that only Cloudflare knows, by its name in a policy: `cf.ja4`.
    Cloudflare(String),
}

/// The fields that have no name of their own, and their words.
const PLAIN: [(&str, Field); 13] = [
    ("time", Field::Time),
    ("client", Field::Client),
    ("peer", Field::Peer),
    ("method", Field::Method),
    ("target", Field::Target),
    ("host", Field::Host),
    ("status", Field::Status),
    ("actual", Field::Actual),
    ("duration", Field::Duration),
    ("route", Field::Route),
    ("user", Field::User),
    ("country", Field::Country),
    ("asn", Field::Asn),
];

/// The facts of Cloudflare's that a policy can count by.
const CLOUDFLARE: [&str; 4] = ["colo", "ja3", "ja4", "tls_version"];
/// The parts of a certificate that a policy can count by.
const CERTIFICATE: [&str; 4] = ["uri_san", "dns_san", "subject", "sha256"];

impl Field {
    /// The field with the name `words`, as [`Display`](fmt::Display) writes it; `None` when there
    /// is none. A header's name is brought into lower case, and the header `host` is the host.
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        if let Some((_, field)) = PLAIN.iter().find(|(name, _)| *name == words) {
            return Some(field.clone());
        }
        let (kind, name) = words.split_once('.').filter(|(_, name)| !name.is_empty())?;
        match kind {
            "header" => Some(Self::header(name)),
            "cookie" => Some(Self::Cookie(name.to_owned())),
            "query" => Some(Self::Query(name.to_owned())),
            "claim" => Some(Self::Claim(name.to_owned())),
            "metadata" => Some(Self::Metadata(name.to_owned())),
            "cf" if CLOUDFLARE.contains(&name) => Some(Self::Cloudflare(name.to_owned())),
            "certificate" if CERTIFICATE.contains(&name) => {
                Some(Self::Certificate(name.to_owned()))
            }
            _ => None,
        }
    }

    /// The header `name`, in any case; `Host` and `:authority` are [`Field::Host`].
    #[must_use]
    pub fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "host" | ":authority" => Self::Host,
            _ => Self::Header(name),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Cookie(name) => write!(f, "cookie.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Claim(name) => write!(f, "claim.{name}"),
            Self::Metadata(path) => write!(f, "metadata.{path}"),
            Self::Cloudflare(name) => write!(f, "cf.{name}"),
            Self::Certificate(name) => write!(f, "certificate.{name}"),
            plain => {
                let known = PLAIN.iter().find(|(_, field)| field == plain);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

/// How many values every record has a place for, wanted or not.
const FIXED: usize = 11;

/// The wanted fields; only these are parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    fields: Vec<Field>,
    /// Those of `fields` that have a name of their own; the first has the place [`FIXED`].
    named: Vec<Field>,
}

impl Wanted {
    /// These fields, each once; the time is always among them.
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Self {
        let mut all = vec![Field::Time];
        for field in fields {
            if !all.contains(&field) {
                all.push(field);
            }
        }
        let is_named = |field: &&Field| is_named(field);
        let named = all.iter().filter(is_named).cloned().collect();
        Self { fields: all, named }
    }

    /// Whether `field` is wanted.
    #[must_use]
    pub fn has(&self, field: &Field) -> bool {
        self.fields.contains(field)
    }

    /// The wanted fields, in their order after the time.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// How many texts a record may hold.
    pub(crate) fn values(&self) -> usize {
        FIXED.saturating_add(self.named.len())
    }

    /// Where a record holds the text of `field`; `None` when it is not wanted or not a text.
    pub(crate) fn place(&self, field: &Field) -> Option<usize> {
        if is_named(field) {
            let at = self.named.iter().position(|named| named == field)?;
            return FIXED.checked_add(at);
        }
        fixed_place(field).filter(|_| self.has(field))
    }

    /// Where a record holds the text of a field with a name, found without building the field.
    pub(crate) fn named_place(&self, is: impl Fn(&Field) -> bool) -> Option<usize> {
        self.named.iter().position(is).and_then(|at| FIXED.checked_add(at))
    }
}

fn is_named(field: &Field) -> bool {
    matches!(field, Field::Header(_) | Field::Cookie(_) | Field::Query(_))
        || matches!(field, Field::Claim(_) | Field::Metadata(_))
        || matches!(field, Field::Certificate(_) | Field::Cloudflare(_))
}

/// The places that do not depend on the wanted fields.
#[inline]
pub(crate) const fn fixed_place(field: &Field) -> Option<usize> {
    match field {
        Field::Method => Some(0),
        Field::Target => Some(1),
        Field::Host => Some(2),
        Field::Route => Some(3),
        Field::User => Some(4),
        Field::Country => Some(5),
        Field::Asn => Some(6),
        Field::Client => Some(7),
        Field::Peer => Some(8),
        Field::Actual => Some(9),
        Field::Duration => Some(10),
        Field::Time | Field::Status => None,
        Field::Header(_) | Field::Cookie(_) | Field::Query(_) => None,
        Field::Claim(_) | Field::Metadata(_) => None,
        Field::Certificate(_) | Field::Cloudflare(_) => None,
    }
}
