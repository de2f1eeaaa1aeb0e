//! Conditions on descriptors: the lists of keys and values in requests to a rate limit service.
//!
//! Invariant: keys and values are compared byte by byte, as they were sent; no key or value has two
//! spellings. Deliberately absent: patterns for keys, because the author of the proxy's
//! configuration chooses the keys.

use alloc::string::String;
use alloc::vec::Vec;

use crate::document::lists::{OneOrMore, within};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_policy::spec::{
    Entries, EntryMatcher, Form, Like, MAX_ENTRIES, Matcher, Regex, WantedEntry,
};

record! {
    /// The condition on the value of an entry.
    EntryDoc {
        /// The beginning of the value.
        prefix: Option<String>,
        /// A pattern in which each * matches any text, including an empty one.
        like: Option<Like>,
        /// A regular expression that matches anywhere in the value.
        r#match: Option<Regex>,
        /// Excluded values: a value, {"prefix": "..."}, {"like": "..."}, {"match": "..."}, or a
        /// list of these.
        not: Option<OneOrMore<Form>>,
    }
}

record! {
    /// A form of values.
    FormDoc {
        /// The beginning of the value.
        prefix: Option<String>,
        /// A pattern in which each * matches any text, including an empty one.
        like: Option<Like>,
        /// A regular expression that matches anywhere in the value.
        r#match: Option<Regex>,
    }
}

impl FormDoc {
    /// The form that the object gives, if any.
    ///
    /// # Errors
    /// The object gives several.
    fn form(self) -> Result<Option<Form>, ()> {
        match self {
            Self { prefix: None, like: None, r#match: None } => Ok(None),
            Self { prefix: Some(prefix), like: None, r#match: None } => {
                Ok(Some(Form::Plain(Matcher::Prefix(prefix.into()))))
            }
            Self { prefix: None, like: Some(like), r#match: None } => Ok(Some(Form::Like(like))),
            Self { prefix: None, like: None, r#match: Some(regex) } => {
                Ok(Some(Form::Plain(Matcher::Match(regex))))
            }
            Self { .. } => Err(()),
        }
    }
}

impl FromNode for Like {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text.contains('*') => {
                Some(Self(text.split('*').map(|part| part.into()).collect()))
            }
            _ => at.wrong(node, "a pattern; use a text with \"*\" in it"),
        }
    }

    schema!({"type": "string", "pattern": "\\*"});
}

/// The expected forms, for the message about a value that has none of them.
const WANTED: &str = "a value, \"*\", {\"prefix\": \"...\"}, {\"like\": \"...\"}, {\"match\": \"...\"} or {\"not\": ...}";
const WANTED_FORM: &str =
    "a value, {\"prefix\": \"...\"}, {\"like\": \"...\"} or {\"match\": \"...\"}";

impl FromNode for EntryMatcher {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(_) = node else {
            return match node {
                Node::Text(_) => {
                    Matcher::read(node, at).map(|m| Self { form: Form::Plain(m), not: Vec::new() })
                }
                _ => at.not_text(node, WANTED),
            };
        };
        let noted = at.problem_count();
        let EntryDoc { prefix, like, r#match, not } = EntryDoc::read(node, at)?;
        if at.problem_count() > noted {
            return None;
        }
        let not = not.map_or_else(Vec::new, |list| list.0);
        match (FormDoc { prefix, like, r#match }).form() {
            Ok(Some(form)) => Some(Self { form, not }),
            Ok(None) if !not.is_empty() => Some(Self { form: Form::Plain(Matcher::Present), not }),
            _ => at.wrong(node, WANTED),
        }
    }

    // Every condition contains it twice, so it is as short as possible.
    schema!({
        "type": ["string", "object"], "additionalProperties": false,
        "properties": {
            "prefix": {"type": "string"}, "like": Like::schema(), "match": Regex::schema(),
            "not": {"type": ["string", "object", "array"]}
        }
    });
}

impl FromNode for Form {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "*" => {
                at.problem("is every value, so no value is left; give some of them".into());
                None
            }
            Node::Text(text) => Some(Self::Plain(Matcher::Exact(text.clone().into()))),
            Node::Object(_) => {
                let noted = at.problem_count();
                let doc = FormDoc::read(node, at)?;
                if at.problem_count() > noted {
                    return None;
                }
                doc.form().ok().flatten().or_else(|| at.wrong(node, WANTED_FORM))
            }
            _ => at.not_text(node, WANTED_FORM),
        }
    }

    schema!({"type": ["string", "object"]});
}

impl FromNode for Entries {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::List(items) = node else {
            return at.wrong(node, "a list of entries; use [{\"key\": \"value\"}]");
        };
        within(MAX_ENTRIES, items.len(), at)?;
        if items.is_empty() {
            at.problem("is empty; give at least one entry".into());
            return None;
        }
        Vec::read(node, at).map(Self)
    }

    schema!({
        "type": "array", "minItems": 1, "maxItems": MAX_ENTRIES, "items": WantedEntry::schema()
    });
}

impl FromNode for WantedEntry {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an entry; use {\"key\": \"value\"}");
        };
        let [(key, value)] = fields.as_slice() else {
            return at.wrong(node, "one entry; use a list of objects with one key each");
        };
        let OneOrMore(wanted) = OneOrMore::read(value, &at.user_field(key))?;
        Some(Self { key: key.clone(), wanted })
    }

    schema!({
        "type": "object", "minProperties": 1, "maxProperties": 1,
        "additionalProperties": OneOrMore::<EntryMatcher>::schema()
    });
}
