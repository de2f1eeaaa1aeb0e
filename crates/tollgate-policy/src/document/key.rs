//! What a rule counts by.
//!
//! Invariant: two keys that are written alike are one group.

use alloc::string::String;
use alloc::vec::Vec;

use crate::document::scalar::{CookieName, HeaderName};
use crate::http::repeated::Repeated;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use crate::json::suggest::unknown;

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
                    at.problem(unknown("key part", other, PLAIN));
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

/// The parts of a key.
pub(crate) type Key = Vec<KeyPart>;
