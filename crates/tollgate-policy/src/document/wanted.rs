//! The values that conditions compare with: hosts, networks, header and parameter values,
//! countries.
//!
//! Invariant: each value is valid on its own, in the form that is compared with a request.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
#[cfg(feature = "explain")]
use core::fmt;

use crate::document::lists::{MAX_VALUES, OneOrMore, within};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::quote::{quoted, quoted_text};
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::alternatives::Alternative;
use tollgate_http_syntax::authority::write_host;
use tollgate_http_syntax::token::is_token;

/// A host: exact, or every subdomain of a suffix; in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// `api.example.com`
    Exact(Vec<u8>),
    /// `*.example.com`, kept as `.example.com`.
    Suffix(Vec<u8>),
}

impl FromNode for Host {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.not_text(node, "a host");
        };
        let suffix = text.strip_prefix("*.");
        let name = suffix.unwrap_or(text);
        let mut host = Vec::new();
        let is_host = write_host(name.as_bytes(), &mut host).is_ok();
        // A request's host may have a port and white space around it; a condition's has neither.
        let is_bare = name.ends_with(']') || !name.contains([':', ' ', '\t']);
        let is_suffix_of_address = suffix.is_some() && name.starts_with('[');
        if !is_host || host.is_empty() || !is_bare || is_suffix_of_address {
            return at.not_text(node, "a host; use a name without port, or \"*.\" and a name");
        }
        if name.ends_with('.') {
            at.problem(format!("{} ends in a dot, which no host has in normal form", quoted(node)));
            return None;
        }
        Some(match suffix {
            Some(_) => {
                host.insert(0, b'.');
                Self::Suffix(host)
            }
            None => Self::Exact(host),
        })
    }

    schema!({"type": "string"});
}

impl Host {
    /// True for a name in normal form, a suffix with its leading dot.
    pub(crate) fn is_normal(&self) -> bool {
        let name = match self {
            Self::Exact(name) => Some(name.as_slice()),
            Self::Suffix(name) => name.strip_prefix(b"."),
        };
        let mut normal = Vec::new();
        name.is_some_and(|name| {
            !name.is_empty() && write_host(name, &mut normal).is_ok() && normal == name
        })
    }

    /// True when `host`, in normal form, matches this one.
    pub(crate) fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }
}

/// Matchers by name; each name is a separate condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<K, M = Matcher>(pub(crate) Vec<(K, Vec<M>)>);

impl<K: FromNode + AsRef<[u8]>, M: FromNode> FromNode for Named<K, M> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an object of names and what their values are");
        };
        within(MAX_VALUES, fields.len(), at)?;
        let (mut named, mut seen) = (Vec::new(), BTreeSet::new());
        for (i, (name, node)) in fields.iter().enumerate() {
            let at = at.own(name);
            let key = K::read(&Node::Text(name.clone()), &at);
            let is_new = key.as_ref().is_none_or(|key| seen.insert(Vec::from(key.as_ref())));
            if !is_new && !at.is_full() {
                at.problem(given_again(name, fields.get(..i).unwrap_or_default()));
            }
            let matchers = OneOrMore::<M>::read(node, &at);
            named.push(key.zip(matchers.map(|wanted| wanted.0)));
        }
        named.into_iter().collect::<Option<_>>().map(Self)
    }

    schema!({
        "type": "object", "maxProperties": MAX_VALUES, "additionalProperties": OneOrMore::<M>::schema()
    });
}

/// The problem with a `name` that means the same as one of the `earlier` ones.
fn given_again(name: &str, earlier: &[(String, Node)]) -> String {
    let is_spelt_so = earlier.iter().any(|(first, _)| first == name);
    match earlier.iter().find(|(first, _)| first.eq_ignore_ascii_case(name)) {
        Some((first, _)) if !is_spelt_so => format!(
            "is {} again, because capitals make no difference; give it once",
            quoted_text(first)
        ),
        _ => "is given twice; give it once".into(),
    }
}

/// A matcher for one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matcher {
    /// `"*"`: any value, as long as it is present.
    Present,
    /// Exactly these bytes.
    Exact(Vec<u8>),
    /// A value that begins with these bytes.
    Prefix(Vec<u8>),
}

record! {
    /// A prefix of a value.
    PrefixDoc {
        /// The beginning of the value.
        prefix: String,
    }
}

impl FromNode for Matcher {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "*" => Some(Self::Present),
            Node::Text(text) => Some(Self::Exact(text.clone().into())),
            Node::Object(_) => PrefixDoc::read(node, at).map(|doc| Self::Prefix(doc.prefix.into())),
            _ => at.not_text(node, "a value, \"*\" or {\"prefix\": \"...\"}"),
        }
    }

    schema!({"anyOf": [{"type": "string"}, PrefixDoc::schema()]});
}

impl Matcher {
    /// True when `value` matches.
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(exact) => value == exact,
            Self::Prefix(prefix) => value.starts_with(prefix),
        }
    }
}

impl Matcher {
    /// The bytes that a value is compared with; empty when any value matches.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Present => &[],
            Self::Exact(bytes) | Self::Prefix(bytes) => bytes,
        }
    }
}

impl Alternative for Matcher {
    fn is_ordered(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    fn order(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }

    fn covers(&self, other: &Self) -> bool {
        self == other
    }
}

impl FromNode for Cidr {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.not_text(node, "a network");
        };
        match Self::parse(text) {
            Ok(cidr) => Some(cidr),
            Err(why) => {
                at.problem(format!("{} is not a network: {why}", quoted(node)));
                None
            }
        }
    }

    schema!({"type": "string"});
}

/// A two-letter country code (ISO 3166-1), in upper case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Country(pub(crate) Vec<u8>);

impl Country {
    /// True for a country code in either case.
    fn is_any(text: &[u8]) -> bool {
        text.len() == 2 && is_token(text)
    }

    /// True for a country code in upper case.
    pub(crate) fn is_one(text: &[u8]) -> bool {
        Self::is_any(text) && !text.iter().any(u8::is_ascii_lowercase)
    }
}

impl FromNode for Country {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if Self::is_any(text.as_bytes()) => {
                Some(Self(text.to_ascii_uppercase().into()))
            }
            _ => at.not_text(node, "a country; use two letters, such as \"DE\""),
        }
    }

    schema!({"type": "string", "pattern": "^[A-Za-z0-9]{2}$"});
}

/// An autonomous system number, as its decimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asn(pub(crate) Vec<u8>);

impl Asn {
    /// True for the decimal digits of a system number, without leading zeros.
    pub(crate) fn is_one(digits: &[u8]) -> bool {
        let text = core::str::from_utf8(digits).unwrap_or_default();
        let is_decimal = text == "0" || text.starts_with(|c: char| matches!(c, '1'..='9'));
        is_decimal && text.parse::<u32>().is_ok()
    }
}

impl FromNode for Asn {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(n) if u32::try_from(*n).is_ok() => Some(Self(format!("{n}").into())),
            _ => at.wrong(node, "a system number; use 0 to 4294967295"),
        }
    }

    schema!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
}

#[cfg(feature = "explain")]
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(&String::from_utf8_lossy(name)),
            Self::Suffix(name) => write!(f, "*{}", String::from_utf8_lossy(name)),
        }
    }
}

#[cfg(feature = "explain")]
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("*"),
            Self::Exact(value) => write!(f, "\"{}\"", String::from_utf8_lossy(value)),
            Self::Prefix(value) => write!(f, "\"{}...\"", String::from_utf8_lossy(value)),
        }
    }
}

#[cfg(feature = "explain")]
impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(feature = "explain")]
impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}
