//! The key that a rule counts by.
//!
//! Invariant: two keys that are written the same way are one group.

use alloc::format;
use alloc::string::String;

use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use crate::json::suggest::{nearest, unknown};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::token::is_token;
use tollgate_policy::spec::{CookieName, HeaderName, KeyPart, quoted_text};

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

/// The part that a text names.
fn of_text(text: &str, at: &At<'_>) -> Option<KeyPart> {
    let names = KeyPart::PLAIN.each_ref().map(|part| part.about().name);
    let found = KeyPart::PLAIN.into_iter().find(|part| part.about().name == text);
    if found.is_none() && !at.is_full() {
        at.problem(match text {
            "ip" | "client" | "remote_addr" | "x-forwarded-for" => {
                format!("unknown key part {}; did you mean \"client_ip\"?", quoted_text(text))
            }
            _ if KeyPart::NAMED.contains(&text) => {
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
            Node::Text(text) => return of_text(text, at),
            Node::Object(fields) => fields.len(),
            _ => return at.not_text(node, WANTED),
        };
        let noted = at.problem_count();
        let doc = KeyPartDoc::read(node, at)?;
        if at.problem_count() > noted {
            return None;
        }
        let has_repeated = doc.repeated.is_some();
        let Some(part) = doc.part(fields) else { return at.wrong(node, WANTED) };
        let may_have_several = match part {
            Self::Header(..) | Self::Cookie(..) | Self::Query(..) => true,
            Self::PathParam(_) | Self::JwtClaim(_) | Self::Descriptor(_) => false,
            Self::ClientIp
            | Self::Method
            | Self::Host
            | Self::Path
            | Self::Country
            | Self::Asn
            | Self::Route => false,
        };
        if has_repeated && !may_have_several {
            at.field("repeated")
                .problem("is for a header, a cookie or a query parameter; leave it out".into());
            return None;
        }
        Some(part)
    }

    schema!({"anyOf": [
        {"enum": Self::PLAIN.each_ref().map(|part| part.about().name)}, KeyPartDoc::schema()
    ]});
}

#[cfg(all(test, feature = "schema"))]
mod tests {
    use alloc::vec::Vec;
    use core::cell::RefCell;

    use super::*;
    use crate::json::place::ProblemList;

    // Guards: a part that no field of the document results in, a field that results in another
    // part, and a part with a name whose message does not say how to write it.
    #[test]
    fn every_part_with_a_name_is_read_by_its_field() {
        let schema = KeyPartDoc::schema();
        let fields = schema["properties"].as_object().unwrap().keys();
        let fields: Vec<&String> = fields.filter(|field| *field != "repeated").collect();
        let mut named = KeyPart::NAMED.to_vec();
        named.sort_unstable();
        assert_eq!(fields, named);
        for field in fields {
            let noted = RefCell::new(ProblemList::default());
            let at = At::root(&noted);
            let node = Node::Object(alloc::vec![(field.clone(), Node::Text("x".into()))]);
            let part = KeyPart::read(&node, &at).unwrap();
            assert_eq!((part.about().name, part.about().of), (field.as_str(), "x"));
            assert_eq!(KeyPart::read(&Node::Text(field.clone()), &at), None);
            let problems = noted.into_inner().in_order(&Node::Null).0;
            assert!(problems[0].message.contains("needs a name"), "{field}: {problems:?}");
        }
    }
}
