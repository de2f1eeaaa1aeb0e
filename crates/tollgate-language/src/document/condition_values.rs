//! The values that conditions compare with: hosts, networks, header and parameter values,
//! countries.
//!
//! Invariant: each value is valid on its own, in the form that is compared with a request.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::document::lists::{OneOrMore, within};
use crate::json::node::Node;
use crate::json::node::quoted;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::authority::write_host;
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{Asn, Country, Host, MAX_VALUES, Matcher, Regex, quoted_text};

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
            at.problem(format!(
                "{} ends in a dot, which hosts in normal form do not have; leave it out",
                quoted(node)
            ));
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

/// Matchers by name; each name is a separate condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<K, M = Matcher>(pub(crate) Vec<(K, Vec<M>)>);

impl<K: FromNode + AsRef<[u8]>, M: FromNode> FromNode for Named<K, M> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an object of names and their values");
        };
        within(MAX_VALUES, fields.len(), at)?;
        let (mut named, mut seen) = (Vec::new(), SlabMap::new());
        for (i, (name, node)) in fields.iter().enumerate() {
            let at = at.user_field(name);
            let key = K::read(&Node::Text(name.clone()), &at);
            let is_new =
                key.as_ref().is_none_or(|key| seen.insert_new(Vec::from(key.as_ref()), ()));
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
    let is_same_spelling = earlier.iter().any(|(first, _)| first == name);
    match earlier.iter().find(|(first, _)| first.eq_ignore_ascii_case(name)) {
        Some((first, _)) if !is_same_spelling => format!(
            "is the same as {}, because names are case-insensitive; give it once",
            quoted_text(first)
        ),
        _ => "is given twice; give it once".into(),
    }
}

record! {
    /// A form of values, of which exactly one is given.
    MatcherDoc {
        /// The beginning of the value.
        prefix: Option<String>,
        /// A regular expression that matches anywhere in the value.
        r#match: Option<Regex>,
    }
}

impl FromNode for Regex {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.not_text(node, "a regular expression");
        };
        match Self::new(text) {
            Ok(regex) => Some(regex),
            Err(why) => {
                at.problem(format!("{} {why}", quoted(node)));
                None
            }
        }
    }

    schema!({"type": "string", "pattern": "^[ -~]{1,256}$"});
}

/// The expected forms, for the message about a value that has none of them.
const WANTED: &str = "a value, \"*\", {\"prefix\": \"...\"} or {\"match\": \"...\"}";

impl FromNode for Matcher {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "*" => Some(Self::Present),
            Node::Text(text) => Some(Self::Exact(text.clone().into())),
            Node::Object(_) => {
                let noted = at.problem_count();
                let doc = MatcherDoc::read(node, at)?;
                match (doc.prefix, doc.r#match) {
                    _ if at.problem_count() > noted => None,
                    (Some(prefix), None) => Some(Self::Prefix(prefix.into())),
                    (None, Some(regex)) => Some(Self::Match(regex)),
                    _ => at.wrong(node, WANTED),
                }
            }
            _ => at.not_text(node, WANTED),
        }
    }

    schema!({"anyOf": [{"type": "string"}, MatcherDoc::schema()]});
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

impl FromNode for Asn {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(n) if u32::try_from(*n).is_ok() => Some(Self(format!("{n}").into())),
            _ => at.wrong(node, "a system number; use 0 to 4294967295"),
        }
    }

    schema!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
}
