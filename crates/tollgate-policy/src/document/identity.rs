//! Who the client is, and what a rule counts by.
//!
//! Invariant: nothing that a client can write is believed unless the document says who vouches for
//! it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::document::conditions::NonEmpty;
use crate::document::scalar::{Bounded, CookieName, HeaderName};
use crate::http::address::Cidr;
use crate::json::node::Node;
use crate::json::reader::{At, FromNode, choice, record, schema};

choice! {
    /// What is meant by several values of something that is read as one.
    Repeated ("mode") {
        /// The one that all of them are; a request whose values differ is refused with 400.
        "refuse" => Refuse,
        /// The first one.
        "first" => First,
        /// The last one.
        "last" => Last,
        /// All of them together, in their order.
        "join" => Join,
    }
}

record! {
    /// Who the client is.
    ClientIpDoc {
        /// Where the address comes from.
        source: Option<Source>,
        /// Who may speak for others: the list of addresses is walked from the right past these.
        trusted_proxies: Option<NonEmpty<Cidr>>,
        /// How many proxies stand in front, this one's peer included; in place of trusted_proxies.
        trusted_hops: Option<Bounded<1, 16>>,
        /// Leading bits of an IPv4 address that are one client; 32 by default.
        ipv4_prefix: Option<Bounded<0, 32>>,
        /// Leading bits of an IPv6 address that are one client; 64 by default.
        ipv6_prefix: Option<Bounded<0, 128>>,
    }
}

/// Where the client's address comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The connection's other end.
    Connection,
    /// The X-Forwarded-For list, walked from the right.
    XForwardedFor,
    /// The Forwarded list (RFC 7239), walked from the right.
    Forwarded,
    /// CF-Connecting-IP, which only Cloudflare's edge sets.
    CfConnectingIp,
    /// A header that holds one address.
    Header(HeaderName),
}

record! {
    /// Something that a header holds.
    NamedHeader {
        /// The header.
        header: HeaderName,
    }
}

impl FromNode for Source {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const NAMES: &[&str] = &["connection", "x-forwarded-for", "forwarded", "cf-connecting-ip"];
        match node {
            Node::Text(text) => match text.as_str() {
                "connection" => Some(Self::Connection),
                "x-forwarded-for" => Some(Self::XForwardedFor),
                "forwarded" => Some(Self::Forwarded),
                "cf-connecting-ip" => Some(Self::CfConnectingIp),
                other => {
                    at.problem(crate::json::reader::unknown("source", other, NAMES));
                    None
                }
            },
            Node::Object(_) => NamedHeader::read(node, at).map(|part| Self::Header(part.header)),
            _ => at.wrong(node, "a source; use a name or {\"header\": name}"),
        }
    }

    schema!({"anyOf": [
        {"enum": ["connection", "x-forwarded-for", "forwarded", "cf-connecting-ip"]}, NamedHeader::schema()
    ]});
}

record! {
    /// Envoy: the headers that a trusted proxy in front sets with what Cloudflare knows by itself.
    GeoDoc {
        /// Holds the client's two-letter country code.
        country_header: Option<HeaderName>,
        /// Holds the client's autonomous system number.
        asn_header: Option<HeaderName>,
    }
}

record! {
    /// Where verified claims come from; a token that was not verified is never read.
    JwtDoc {
        /// Envoy: the `payload_in_metadata` of the jwt_authn filter in front.
        metadata: Option<String>,
        /// Worker: the header with the token, after "Bearer "; authorization by default.
        header: Option<HeaderName>,
        /// Worker: what several tokens mean that differ; "join" is none of these.
        repeated: Option<Repeated>,
        /// Worker: the only issuer that is accepted.
        issuer: Option<String>,
        /// Worker: the token must be for one of these.
        audiences: Option<NonEmpty<String>>,
        /// Worker: the keys that sign, as JSON Web Keys (RFC 7517).
        keys: Option<NonEmpty<Jwk>>,
    }
}

record! {
    /// A JSON Web Key for HS256 (`kty` "oct"), RS256 ("RSA") or ES256 ("EC").
    #[derive(PartialEq, Eq)]
    Jwk {
        /// The kind of key.
        kty: String,
        /// HS256, RS256 or ES256.
        alg: String,
        /// The name that a token calls it by.
        kid: Option<String>,
        /// Informational.
        r#use: Option<String>,
        /// oct: the key, base64url.
        k: Option<String>,
        /// RSA: the modulus, base64url.
        n: Option<String>,
        /// RSA: the exponent, base64url.
        e: Option<String>,
        /// EC: the curve, P-256.
        crv: Option<String>,
        /// EC: the x coordinate, base64url.
        x: Option<String>,
        /// EC: the y coordinate, base64url.
        y: Option<String>,
    }
}

/// One part of a partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    /// The client's address, grouped by prefix.
    ClientIp,
    /// The request method.
    Method,
    /// The host, without port, in lower case.
    Host,
    /// The path, in normal form.
    Path,
    /// The client's country.
    Country,
    /// The client's autonomous system number.
    Asn,
    /// The value of a header.
    Header(HeaderName, Option<Repeated>),
    /// The value of a cookie.
    Cookie(String, Option<Repeated>),
    /// The value of a query parameter.
    Query(String, Option<Repeated>),
    /// What a `{name}` of the rule's path pattern captured.
    PathParam(String),
    /// A claim of a verified token.
    JwtClaim(String),
}

record! {
    /// The key parts that have a name; exactly one is given, and what several of its values mean.
    KeyPartDoc {
        /// The value of a header.
        header: Option<HeaderName>,
        /// The value of a cookie.
        cookie: Option<CookieName>,
        /// The value of a query parameter.
        query: Option<String>,
        /// What a `{name}` of the rule's path pattern captured.
        path_param: Option<String>,
        /// A claim of a verified token.
        jwt_claim: Option<String>,
        /// What several values mean; for a header, a cookie or a query parameter.
        repeated: Option<Repeated>,
    }
}

impl FromNode for KeyPart {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const PLAIN: &[&str] = &["client_ip", "method", "host", "path", "country", "asn"];
        const WANTED: &str = "one key part; use a name or an object such as {\"header\": name}";
        match node {
            Node::Text(text) => match text.as_str() {
                "client_ip" => Some(Self::ClientIp),
                "method" => Some(Self::Method),
                "host" => Some(Self::Host),
                "path" => Some(Self::Path),
                "country" => Some(Self::Country),
                "asn" => Some(Self::Asn),
                other => {
                    at.problem(crate::json::reader::unknown("key part", other, PLAIN));
                    None
                }
            },
            Node::Object(fields) => {
                let noted = at.noted();
                let doc = KeyPartDoc::read(node, at)?;
                if at.noted() > noted {
                    return None;
                }
                let repeated = doc.repeated;
                let names = fields.len().saturating_sub(repeated.iter().count());
                match (names, doc) {
                    (1, KeyPartDoc { header: Some(name), .. }) => {
                        Some(Self::Header(name, repeated))
                    }
                    (1, KeyPartDoc { cookie: Some(name), .. }) => {
                        Some(Self::Cookie(name.0, repeated))
                    }
                    (1, KeyPartDoc { query: Some(name), .. }) => Some(Self::Query(name, repeated)),
                    (
                        1,
                        KeyPartDoc { path_param: Some(_), .. }
                        | KeyPartDoc { jwt_claim: Some(_), .. },
                    ) if repeated.is_some() => {
                        at.field("repeated").problem(
                            "is for a header, a cookie or a query parameter; leave it out".into(),
                        );
                        None
                    }
                    (1, KeyPartDoc { path_param: Some(name), .. }) => Some(Self::PathParam(name)),
                    (1, KeyPartDoc { jwt_claim: Some(name), .. }) => Some(Self::JwtClaim(name)),
                    _ => at.wrong(node, WANTED),
                }
            }
            _ => at.wrong(node, WANTED),
        }
    }

    schema!({"anyOf": [
        {"enum": ["client_ip", "method", "host", "path", "country", "asn"]}, KeyPartDoc::schema()
    ]});
}

impl KeyPart {
    /// What distinguishes this part in a group's identity.
    pub(crate) fn identity(&self) -> [&str; 2] {
        match self {
            Self::ClientIp => ["client_ip", ""],
            Self::Method => ["method", ""],
            Self::Host => ["host", ""],
            Self::Path => ["path", ""],
            Self::Country => ["country", ""],
            Self::Asn => ["asn", ""],
            Self::Header(name, _) => ["header", &name.0],
            Self::Cookie(name, _) => ["cookie", name],
            Self::Query(name, _) => ["query", name],
            Self::PathParam(name) => ["path_param", name],
            Self::JwtClaim(name) => ["jwt_claim", name],
        }
    }
}

impl KeyPart {
    /// The same part, which now says what several values mean: what it says itself, or else what lies in its
    /// name, or else the `default`.
    pub(crate) fn resolved(&self, default: Repeated) -> Self {
        match self.clone() {
            Self::Header(name, own) => {
                let repeated = Repeated::of_header(&name.0, own, default);
                Self::Header(name, Some(repeated))
            }
            Self::Cookie(name, own) => Self::Cookie(name, own.or(Some(default))),
            Self::Query(name, own) => Self::Query(name, own.or(Some(default))),
            other => other,
        }
    }

    /// What several values mean, where that is not what a policy without a word about it says.
    pub(crate) fn unusual(&self) -> Option<Repeated> {
        match self {
            Self::Header(name, repeated) => {
                let usual = Repeated::of_header(&name.0, None, Repeated::Refuse);
                repeated.filter(|repeated| *repeated != usual)
            }
            Self::Cookie(_, repeated) | Self::Query(_, repeated) => {
                repeated.filter(|repeated| *repeated != Repeated::Refuse)
            }
            _ => None,
        }
    }
}

impl Repeated {
    /// What several values of the header `name` mean: the place's `own` word, or else the list that it is by
    /// nature, or else the `default`.
    pub(crate) fn of_header(name: &str, own: Option<Self>, default: Self) -> Self {
        own.unwrap_or(if is_list(name) { Self::Join } else { default })
    }

    /// The same where one value is wanted and a list is none.
    pub(crate) fn of_one(own: Option<Self>, default: Self) -> Self {
        match own.unwrap_or(default) {
            Self::Join => Self::Refuse,
            one => one,
        }
    }
}

/// True for a header whose value is a list, or holds commas, by its definition: every honest request would
/// have several values.
fn is_list(name: &str) -> bool {
    const PREFIXES: [&str; 6] =
        ["accept", "access-control-request-", "if-", "sec-ch-", "sec-websocket-", "x-forwarded-"];
    const NAMES: [&str; 27] = [
        "baggage",
        "cache-control",
        "connection",
        "content-encoding",
        "content-language",
        "cookie",
        "date",
        "expires",
        "forwarded",
        "keep-alive",
        "last-modified",
        "link",
        "pragma",
        "prefer",
        "priority",
        "range",
        "referer",
        "signature",
        "signature-input",
        "te",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "warning",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The parts of a key.
pub(crate) type Key = Vec<KeyPart>;
