//! The key that a rule counts by.
//!
//! Invariant: two keys that are written the same way are one group.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::node::Node;
use crate::json::place::At;
#[cfg(feature = "schema")]
use crate::json::reader::{FieldSchema, object_schema};
use crate::json::reader::{Fields, FromNode, names, object, record, schema};
use crate::json::suggest::{nearest, unknown};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::token::is_token;
use tollgate_policy::spec::{
    Bounded, CertificateField, CloudflareField, CookieName, HeaderName, KeyForm, KeyPart,
    KeySource, MAX_ANY_OF, MetadataPath, OwnPrefixes, Regex, items, quoted_text,
};

object! {
    OwnPrefixes {
        /// The number of leading bits of an IPv4 address that identify one client; that of the
        /// document by default.
        ipv4_prefix: Option<Bounded<0, 32>>,
        /// The number of leading bits of an IPv6 address that identify one client; that of the
        /// document by default.
        ipv6_prefix: Option<Bounded<0, 128>>,
    }
}

record! {
    /// The part of a value that is counted.
    SearchDoc {
        /// A regular expression: its group, or else all that matches, is counted.
        r#match: Regex,
    }
}

record! {
    /// The key parts that have a name or settings, of which exactly one is set, and the meaning of
    /// several values.
    KeyPartDoc {
        /// The client's address with prefixes of its own.
        client_ip: Option<OwnPrefixes>,
        /// A part of the host, in normal form.
        host: Option<SearchDoc>,
        /// A part of the path, in normal form.
        path: Option<SearchDoc>,
        /// A part of the name of the route.
        route: Option<SearchDoc>,
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
        /// A value of the proxy's metadata: the name of the filter that sets it, then the path in
        /// its metadata.
        metadata: Option<MetadataPath>,
        /// A part of the TLS certificate of the client.
        client_certificate: Option<CertificateField>,
        /// A fact of the client's connection that only Cloudflare knows.
        cf: Option<CloudflareField>,
        /// The meaning of several values of a header, a cookie or a query parameter.
        repeated: Option<Repeated>,
        /// True: A to Z in the value count as a to z. For a text value: a header, a cookie, a query
        /// parameter, a path segment, a claim, a descriptor's entry, a value of metadata, a
        /// part of a certificate or a fact of Cloudflare's.
        lower: Option<bool>,
        /// A regular expression for such a text: its group, or else all that matches, is counted. A
        /// value without a match counts as missing.
        r#match: Option<Regex>,
    }
}

names! {
    CertificateField ("part of a certificate") {
        /// The first URI of its subject alternative names.
        "uri_san" => UriSan,
        /// The first DNS name of its subject alternative names.
        "dns_san" => DnsSan,
        /// Its subject.
        "subject" => Subject,
        /// The SHA-256 of the certificate.
        "sha256" => Sha256,
    }
}

names! {
    CloudflareField ("fact of Cloudflare's") {
        /// The airport code of the data centre.
        "colo" => Colo,
        /// The JA3 fingerprint, with Bot Management.
        "ja3" => Ja3,
        /// The JA4 fingerprint, with Bot Management.
        "ja4" => Ja4,
        /// The version of TLS.
        "tls_version" => TlsVersion,
    }
}

/// The parts of a key.
#[derive(Clone, Debug)]
pub(crate) struct KeyDoc(pub(crate) Vec<KeyPart>);

impl FromNode for KeyDoc {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let items = Vec::<KeyItemDoc>::read(node, at)?;
        Some(Self(items.into_iter().flat_map(|item| item.0).collect()))
    }

    schema!({"type": "array", "items": KeyItemDoc::schema()});
}

/// One part of a key, or the first of 2 to 4 parts that a request has.
struct KeyItemDoc(Vec<KeyPart>);

impl FromNode for KeyItemDoc {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        if !has_any_of(node) {
            return KeyPart::read(node, at).map(|part| Self(alloc::vec![part]));
        }
        let KeyDoc(mut parts) = Fields::open(node, at, &["any_of"])?.read("any_of", at)?;
        let at = at.field("any_of");
        let nested = items(&parts).position(|item| item.is_choice());
        if let Some(i) = nested {
            at.item(i).problem(NOT_ANY_OF.into());
            return None;
        }
        if !(2..=MAX_ANY_OF).contains(&parts.len()) {
            at.problem(format!("needs 2 to {MAX_ANY_OF} parts, not {}", parts.len()));
            return None;
        }
        let others = parts.len().saturating_sub(1);
        parts.iter_mut().take(others).for_each(|part| part.has_alternative = true);
        Some(Self(parts))
    }

    schema!({"anyOf": [
        {"enum": KeySource::PLAIN.each_ref().map(|part| part.about().name)},
        KeyPartDoc::schema(),
        object_schema(&[FieldSchema {
            name: "any_of",
            description: "The parts, in their order.",
            schema: serde_json::json!({"type": "array", "items": KeyPart::schema()}),
            required: true,
        }])
    ]});
}

fn has_any_of(node: &Node) -> bool {
    matches!(node, Node::Object(fields) if fields.iter().any(|(name, _)| name == "any_of"))
}

const NOT_ANY_OF: &str = "any_of is for a rule's key, and is not within another; use one part";
const NO_PREFIX: &str =
    "is empty; give it ipv4_prefix or ipv6_prefix, or write \"client_ip\" instead of the object";
const NOT_SEVERAL: &str = "is for a header, a cookie or a query parameter; leave it out";
const NO_NAME: &str = "is for a text with a name, such as a header; write {\"host\": {\"match\": \"...\"}} for a host, a path or a route";
const SEVERAL_GROUPS: &str =
    "has several groups, and one part of a key is one value; write (?:...) for all but one";
const NO_TEXT: &str = "is for text, and an address has none; leave it out";

/// The part that a text names.
fn of_text(text: &str, at: &At<'_>) -> Option<KeySource> {
    let names = KeySource::PLAIN.each_ref().map(|part| part.about().name);
    let found = KeySource::PLAIN.into_iter().find(|part| part.about().name == text);
    if found.is_none() && !at.is_full() {
        at.problem(match text {
            "ip" | "client" | "remote_addr" | "x-forwarded-for" => {
                format!("unknown key part {}; did you mean \"client_ip\"?", quoted_text(text))
            }
            "metadata" => "\"metadata\" needs a path; write {\"metadata\": [filter, name]}".into(),
            _ if KeySource::NAMED.contains(&text) => {
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

/// True for names such as `x-api-key`: no key part has a hyphen.
fn looks_like_a_header(text: &str) -> bool {
    is_token(text.as_bytes()) && (text.contains('-') || text.eq_ignore_ascii_case("authorization"))
}

impl KeyPartDoc {
    /// The one source among `fields` fields; `None` when there is none or more than one.
    fn source(&self, fields: usize) -> Option<KeySource> {
        let Self {
            client_ip,
            host,
            path,
            route,
            header,
            cookie,
            query,
            path_param,
            jwt_claim,
            descriptor,
            metadata,
            cf,
            client_certificate,
            repeated,
            lower,
            r#match,
        } = self;
        let settings = [repeated.is_some(), lower.is_some(), r#match.is_some()];
        if fields.saturating_sub(settings.into_iter().filter(|is_set| *is_set).count()) != 1 {
            return None;
        }
        let of_each = [
            client_ip.as_ref().map(|_| KeySource::ClientIp),
            host.as_ref().map(|_| KeySource::Host),
            path.as_ref().map(|_| KeySource::Path),
            route.as_ref().map(|_| KeySource::Route),
            header.as_ref().map(|name| KeySource::Header(name.clone(), *repeated)),
            cookie.as_ref().map(|name| KeySource::Cookie(name.0.clone(), *repeated)),
            query.as_ref().map(|name| KeySource::Query(name.clone(), *repeated)),
            path_param.as_ref().map(|name| KeySource::PathParam(name.clone())),
            jwt_claim.as_ref().map(|name| KeySource::JwtClaim(name.clone())),
            descriptor.as_ref().map(|key| KeySource::Descriptor(key.clone())),
            metadata.as_ref().map(|path| KeySource::Metadata(path.clone())),
            cf.map(KeySource::Cloudflare),
            client_certificate.map(KeySource::ClientCertificate),
        ];
        of_each.into_iter().flatten().next()
    }

    /// The expression for a part with a name, or that of a part without one.
    fn take_regex(&mut self) -> Option<Regex> {
        let nested = [self.host.take(), self.path.take(), self.route.take()];
        let nested = nested.into_iter().flatten().next();
        self.r#match.take().or_else(|| nested.map(|doc| doc.r#match))
    }

    /// The form in which the value is counted.
    fn form(&self) -> KeyForm {
        match (self.client_ip, self.lower) {
            (Some(own), _) => KeyForm::Network(own),
            (None, Some(true)) => KeyForm::Lower,
            (None, Some(false) | None) => KeyForm::AsSent,
        }
    }
}

impl FromNode for KeyPart {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        if has_any_of(node) {
            at.problem(NOT_ANY_OF.into());
            return None;
        }
        const WANTED: &str = "one key part; use a name or an object such as {\"header\": name}";
        let fields = match node {
            Node::Text(text) => return of_text(text, at).map(Self::as_sent),
            Node::Object(fields) => fields.len(),
            Node::Null
            | Node::Bool(_)
            | Node::Integer(_)
            | Node::OtherNumber(_)
            | Node::List(_) => return at.not_text(node, WANTED),
        };
        let noted = at.problem_count();
        let mut doc = KeyPartDoc::read(node, at)?;
        if at.problem_count() > noted {
            return None;
        }
        let Some(source) = doc.source(fields) else { return at.wrong(node, WANTED) };
        let form = doc.form();
        let has_name = source.is_text();
        let may_have_several =
            matches!(source, KeySource::Header(..) | KeySource::Cookie(..) | KeySource::Query(..));
        let is_empty_network = matches!(form, KeyForm::Network(own) if own.is_none());
        let (field, problem) = if is_empty_network {
            ("client_ip", NO_PREFIX)
        } else if doc.repeated.is_some() && !may_have_several {
            ("repeated", NOT_SEVERAL)
        } else if doc.lower.is_some() && !has_name {
            ("lower", NO_TEXT)
        } else if doc.r#match.is_some() && !has_name {
            ("match", NO_NAME)
        } else {
            let regex = doc.take_regex();
            let part = Self { form, regex, ..Self::as_sent(source) };
            if part.can_be_searched() {
                return Some(part);
            }
            ("match", SEVERAL_GROUPS)
        };
        at.field(field).problem(problem.into());
        None
    }

    schema!({"anyOf": [
        {"enum": KeySource::PLAIN.each_ref().map(|part| part.about().name)}, KeyPartDoc::schema()
    ]});
}

#[cfg(all(test, feature = "schema"))]
mod tests {
    use alloc::string::ToString;
    use core::cell::RefCell;

    use super::*;
    use crate::json::place::ProblemList;

    /// The fields that are not parts with a name.
    const SETTINGS: [&str; 7] =
        ["client_ip", "host", "path", "route", "repeated", "lower", "match"];

    // Guards: a part that no field of the document results in, a field that results in another
    // part, and a part with a name whose message does not say how to write it.
    #[test]
    fn every_part_with_a_name_is_read_by_its_field() {
        let schema = KeyPartDoc::schema();
        let fields = schema["properties"].as_object().unwrap().keys();
        let fields: Vec<&String> =
            fields.filter(|field| !SETTINGS.contains(&field.as_str())).collect();
        let mut named = KeySource::NAMED.to_vec();
        named.sort_unstable();
        assert_eq!(fields, named);
        for field in fields {
            let noted = RefCell::new(ProblemList::default());
            let at = At::root(&noted);
            let text = |text: &str| Node::Text(text.into());
            let (value, of) = match field.as_str() {
                "client_certificate" => (text("sha256"), "sha256"),
                "cf" => (text("ja4"), "ja4"),
                "metadata" => (Node::List(alloc::vec![text("a"), text("b")]), "a/b"),
                _ => (text("x"), "x"),
            };
            let node = Node::Object(alloc::vec![(field.clone(), value)]);
            let about = KeyPart::read(&node, &at).unwrap();
            let about = about.source.about();
            assert_eq!((about.name, about.of.to_string().as_str()), (field.as_str(), of));
            assert_eq!(KeyPart::read(&Node::Text(field.clone()), &at), None);
            let problems = noted.into_inner().in_order(&Node::Null).0;
            assert!(problems[0].message.contains("needs a "), "{field}: {problems:?}");
        }
    }
}
