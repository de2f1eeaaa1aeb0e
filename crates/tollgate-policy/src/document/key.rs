//! The key that a rule counts by.
//!
//! Invariant: two keys that are written the same way are one group.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "explain")]
use core::fmt;

use crate::document::fact::Fact;
use crate::document::scalar::{CookieName, HeaderName};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::quote::quoted_text;
use crate::json::reader::{FromNode, record, schema};
use crate::json::suggest::{nearest, unknown};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::token::is_token;

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
    /// The name of the route.
    Route,
    /// The value of a header.
    Header(HeaderName, Option<Repeated>),
    /// The value of a cookie.
    Cookie(String, Option<Repeated>),
    /// The value of a query parameter.
    Query(String, Option<Repeated>),
    /// The value that a `{name}` of the rule's path pattern captured.
    PathParam(String),
    /// A claim of a verified token.
    JwtClaim(String),
    /// The value of an entry of the descriptor.
    Descriptor(String),
}

record! {
    /// The key parts that have a name, of which exactly one is set, and the meaning of several
    /// values.
    KeyPartDoc {
        /// The value of a header.
        header: Option<HeaderName>,
        /// The value of a cookie.
        cookie: Option<CookieName>,
        /// The value of a query parameter.
        query: Option<String>,
        /// The path segment that `{name}` in the rule's path pattern captured.
        path_param: Option<String>,
        /// A claim of a verified token.
        jwt_claim: Option<String>,
        /// The value of an entry of the descriptor in a request to a rate limit service.
        descriptor: Option<String>,
        /// The meaning of several values of a header, a cookie or a query parameter.
        repeated: Option<Repeated>,
    }
}

/// The properties of a kind of key part.
pub(crate) struct About<'p> {
    /// Its name in the document.
    pub(crate) name: &'static str,
    /// The name of this part within its kind; empty for a kind with a single part.
    pub(crate) of: &'p str,
    /// Its name in explanations.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))] // only explanations are in words
    words: &'static str,
    /// The fact of a request that it reads.
    pub(crate) reads: Fact<'p>,
    /// Every request has it.
    #[cfg_attr(not(feature = "explain"), allow(dead_code))] // only explanations use it
    pub(crate) is_always_there: bool,
    /// It has few values, or one for a whole site.
    pub(crate) has_few_values: bool,
}

impl<'p> About<'p> {
    const fn new(name: &'static str, words: &'static str, of: &'p str, reads: Fact<'p>) -> Self {
        Self { name, of, words, reads, is_always_there: false, has_few_values: false }
    }
}

impl KeyPart {
    /// The key parts that have no name.
    const PLAIN: [Self; 7] = [
        Self::ClientIp,
        Self::Method,
        Self::Host,
        Self::Path,
        Self::Country,
        Self::Asn,
        Self::Route,
    ];

    /// The properties of this part: the one table of key parts.
    pub(crate) fn about(&self) -> About<'_> {
        match self {
            Self::ClientIp => About::new("client_ip", "client address", "", Fact::Client),
            Self::Method => About {
                is_always_there: true,
                has_few_values: true,
                ..About::new("method", "method", "", Fact::Method)
            },
            Self::Host => {
                About { has_few_values: true, ..About::new("host", "host", "", Fact::Host) }
            }
            Self::Path => {
                About { is_always_there: true, ..About::new("path", "path", "", Fact::Path) }
            }
            Self::Country => About {
                has_few_values: true,
                ..About::new("country", "country", "", Fact::Country)
            },
            Self::Asn => About::new("asn", "AS number", "", Fact::Asn),
            Self::Route => {
                About { has_few_values: true, ..About::new("route", "route", "", Fact::Route) }
            }
            Self::Header(name, _) => About::new("header", "header", &name.0, Fact::Header(&name.0)),
            Self::Cookie(name, _) => About::new("cookie", "cookie", name, Fact::Cookie(name)),
            Self::Query(name, _) => About::new("query", "query parameter", name, Fact::Query(name)),
            Self::PathParam(name) => About {
                is_always_there: true,
                ..About::new("path_param", "path segment", name, Fact::Path)
            },
            Self::JwtClaim(name) => {
                About::new("jwt_claim", "verified claim", name, Fact::Claim(name))
            }
            Self::Descriptor(name) => {
                About::new("descriptor", "descriptor entry", name, Fact::Descriptor(name))
            }
        }
    }

    /// The part that a text names.
    fn of_text(text: &str, at: &At<'_>) -> Option<Self> {
        let names = Self::PLAIN.each_ref().map(|part| part.about().name);
        let found = Self::PLAIN.into_iter().find(|part| part.about().name == text);
        if found.is_none() && !at.is_full() {
            at.problem(match text {
                "ip" | "client" | "remote_addr" | "x-forwarded-for" => {
                    format!("unknown key part {}; did you mean \"client_ip\"?", quoted_text(text))
                }
                "header" | "cookie" | "query" | "path_param" | "jwt_claim" | "descriptor" => {
                    format!("\"{text}\" needs a name; write {{\"{text}\": name}}")
                }
                _ if nearest(text, &names).is_none() && looks_like_a_header(text) => format!(
                    "unknown key part {0}; if it is a header write {{\"header\": {0}}}",
                    quoted_text(text)
                ),
                _ => unknown("key part", text, &names),
            });
        }
        found
    }
}

/// True for names such as `x-api-key`: no key part has a hyphen.
fn looks_like_a_header(text: &str) -> bool {
    is_token(text.as_bytes()) && (text.contains('-') || text.eq_ignore_ascii_case("authorization"))
}

impl KeyPartDoc {
    /// The one part among `fields` fields; `None` when there is none or more than one.
    fn part(self, fields: usize) -> Option<KeyPart> {
        let repeated = self.repeated;
        if fields.saturating_sub(repeated.iter().count()) != 1 {
            return None;
        }
        let Self { header, cookie, query, path_param, jwt_claim, descriptor, repeated: _ } = self;
        header
            .map(|name| KeyPart::Header(name, repeated))
            .or_else(|| cookie.map(|name| KeyPart::Cookie(name.0, repeated)))
            .or_else(|| query.map(|name| KeyPart::Query(name, repeated)))
            .or_else(|| path_param.map(KeyPart::PathParam))
            .or_else(|| jwt_claim.map(KeyPart::JwtClaim))
            .or_else(|| descriptor.map(KeyPart::Descriptor))
    }
}

impl FromNode for KeyPart {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const WANTED: &str = "one key part; use a name or an object such as {\"header\": name}";
        let fields = match node {
            Node::Text(text) => return Self::of_text(text, at),
            Node::Object(fields) => fields.len(),
            _ => return at.not_text(node, WANTED),
        };
        let noted = at.noted();
        let doc = KeyPartDoc::read(node, at)?;
        if at.noted() > noted {
            return None;
        }
        let says_repeated = doc.repeated.is_some();
        match doc.part(fields) {
            Some(Self::PathParam(_) | Self::JwtClaim(_) | Self::Descriptor(_)) if says_repeated => {
                at.field("repeated")
                    .problem("is for a header, a cookie or a query parameter; leave it out".into());
                None
            }
            Some(part) => Some(part),
            None => at.wrong(node, WANTED),
        }
    }

    schema!({"anyOf": [
        {"enum": Self::PLAIN.each_ref().map(|part| part.about().name)}, KeyPartDoc::schema()
    ]});
}

impl KeyPart {
    /// The same part with the meaning of several values set: its own setting, or else the meaning
    /// that its name implies, or else the `default`.
    pub(crate) fn resolved(&self, default: Repeated) -> Self {
        match self.clone() {
            Self::Header(name, own) => {
                let repeated = Repeated::of_header(&name.0, own, default);
                Self::Header(name, Some(repeated))
            }
            Self::Cookie(name, own) => Self::Cookie(name, own.or(Some(default))),
            Self::Query(name, own) => Self::Query(name, own.or(Some(default))),
            other @ (Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country) => {
                other
            }
            other @ (Self::Asn | Self::Route | Self::PathParam(_)) => other,
            other @ (Self::JwtClaim(_) | Self::Descriptor(_)) => other,
        }
    }

    /// The meaning of several values, if it differs from that of a policy without any setting.
    pub(crate) fn unusual(&self) -> Option<Repeated> {
        match self {
            Self::Header(name, repeated) => {
                let usual = Repeated::of_header(&name.0, None, Repeated::Refuse);
                repeated.filter(|repeated| *repeated != usual)
            }
            Self::Cookie(_, repeated) | Self::Query(_, repeated) => {
                repeated.filter(|repeated| *repeated != Repeated::Refuse)
            }
            Self::ClientIp | Self::Method | Self::Host | Self::Path | Self::Country => None,
            Self::Asn | Self::Route | Self::PathParam(_) => None,
            Self::JwtClaim(_) | Self::Descriptor(_) => None,
        }
    }
}

/// In words: `header x-api-key`.
#[cfg(feature = "explain")]
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { words, of, .. } = self.about();
        match self {
            Self::PathParam(name) => return write!(f, "{words} {{{name}}}"),
            _ if of.is_empty() => f.write_str(words)?,
            _ => write!(f, "{words} {of}")?,
        }
        f.write_str(self.unusual().map_or("", Repeated::in_words))
    }
}

/// The parts of a key.
pub(crate) type Key = Vec<KeyPart>;
