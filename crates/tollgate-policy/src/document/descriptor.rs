//! Conditions on descriptors: the lists of keys and values in requests to a rate limit service.
//!
//! Invariant: keys and values are compared byte by byte, as they were sent; no key or value has two
//! spellings. Deliberately absent: patterns for keys, because the author of the proxy's
//! configuration chooses the keys.

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "explain")]
use core::fmt;

use crate::document::lists::{OneOrMore, within};
use crate::document::wanted::Matcher;
use crate::facts::Entry;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};

/// The most entries of one descriptor that a condition names; services see two or three.
pub(crate) const MAX_ENTRIES: usize = 32;

/// A whole descriptor: these entries in this order, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries(pub(crate) Vec<WantedEntry>);

/// One entry: its key, and the condition on its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedEntry {
    pub(crate) key: String,
    pub(crate) wanted: Vec<EntryMatcher>,
}

/// The forms that the value of an entry must have, and those that it must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryMatcher {
    pub(crate) form: Form,
    pub(crate) not: Vec<Form>,
}

/// A form of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The same forms as for a header's value.
    Plain(Matcher),
    /// These bytes in their order, with anything between two of them.
    Like(Like),
}

/// A pattern, split at its stars, so it has at least two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Like(pub(crate) Vec<Vec<u8>>);

record! {
    /// The condition on the value of an entry.
    EntryDoc {
        /// The beginning of the value.
        prefix: Option<String>,
        /// A pattern in which each * matches any text, including an empty one.
        like: Option<Like>,
        /// Excluded values: a value, {"prefix": "..."}, {"like": "..."}, or a list of these.
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
    }
}

impl Entries {
    /// True when `entries` are exactly these.
    pub(crate) fn matches<'e>(&self, mut entries: impl Iterator<Item = Entry<'e>>) -> bool {
        self.0.iter().all(|wanted| entries.next().is_some_and(|entry| wanted.matches(&entry)))
            && entries.next().is_none()
    }
}

impl WantedEntry {
    fn matches(&self, entry: &Entry<'_>) -> bool {
        *self.key.as_bytes() == *entry.key && self.wanted.iter().any(|m| m.matches(&entry.value))
    }
}

impl EntryMatcher {
    /// True when `value` matches.
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        self.form.matches(value) && !self.not.iter().any(|form| form.matches(value))
    }

    /// True when every value matches.
    #[cfg(feature = "explain")]
    pub(crate) fn is_any(&self) -> bool {
        self.form == Form::Plain(Matcher::Present) && self.not.is_empty()
    }
}

impl Form {
    fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Plain(matcher) => matcher.matches(value),
            Self::Like(like) => like.matches(value),
        }
    }

    /// The form that an object gives, if any.
    ///
    /// # Errors
    /// The object gives both.
    fn of(prefix: Option<String>, like: Option<Like>) -> Result<Option<Self>, ()> {
        match (prefix, like) {
            (Some(_), Some(_)) => Err(()),
            (Some(prefix), None) => Ok(Some(Self::Plain(Matcher::Prefix(prefix.into())))),
            (None, Some(like)) => Ok(Some(Self::Like(like))),
            (None, None) => Ok(None),
        }
    }
}

impl Like {
    /// True when `value` begins with the first part, ends with the last one and contains the others
    /// between them, in their order. The earliest position of each part is as good as any later
    /// one.
    fn matches(&self, value: &[u8]) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else { return false };
        let inner = value.strip_prefix(first.as_slice());
        let Some(mut rest) = inner.and_then(|rest| rest.strip_suffix(last.as_slice())) else {
            return false;
        };
        for part in middle.iter().filter(|part| !part.is_empty()) {
            let found = rest.windows(part.len()).position(|window| window == part.as_slice());
            let after = found.and_then(|at| at.checked_add(part.len()));
            let Some(after) = after.and_then(|after| rest.get(after..)) else { return false };
            rest = after;
        }
        true
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
const WANTED: &str = "a value, \"*\", {\"prefix\": \"...\"}, {\"like\": \"...\"} or {\"not\": ...}";
const WANTED_FORM: &str = "a value, {\"prefix\": \"...\"} or {\"like\": \"...\"}";

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
        let noted = at.noted();
        let EntryDoc { prefix, like, not } = EntryDoc::read(node, at)?;
        if at.noted() > noted {
            return None;
        }
        let not = not.map_or_else(Vec::new, |list| list.0);
        match Form::of(prefix, like) {
            Ok(Some(form)) => Some(Self { form, not }),
            Ok(None) if !not.is_empty() => Some(Self { form: Form::Plain(Matcher::Present), not }),
            _ => at.wrong(node, WANTED),
        }
    }

    // Every condition contains it twice, so it is as short as possible.
    schema!({
        "type": ["string", "object"], "additionalProperties": false,
        "properties": {
            "prefix": {"type": "string"}, "like": Like::schema(),
            "not": {"type": ["string", "object", "array"]}
        }
    });
}

impl FromNode for Form {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "*" => {
                at.problem("is every value, so none is left; give some of them".into());
                None
            }
            Node::Text(text) => Some(Self::Plain(Matcher::Exact(text.clone().into()))),
            Node::Object(_) => {
                let noted = at.noted();
                let FormDoc { prefix, like } = FormDoc::read(node, at)?;
                if at.noted() > noted {
                    return None;
                }
                Self::of(prefix, like).ok().flatten().or_else(|| at.wrong(node, WANTED_FORM))
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
        let OneOrMore(wanted) = OneOrMore::read(value, &at.own(key))?;
        Some(Self { key: key.clone(), wanted })
    }

    schema!({
        "type": "object", "minProperties": 1, "maxProperties": 1,
        "additionalProperties": OneOrMore::<EntryMatcher>::schema()
    });
}

/// In words: `(to_number "1" or "2"), (plan)`.
#[cfg(feature = "explain")]
impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, WantedEntry { key, wanted }) in self.0.iter().enumerate() {
            write!(f, "{}({key}", if i == 0 { "" } else { ", " })?;
            let wanted = if wanted.iter().any(EntryMatcher::is_any) { &[] } else { &**wanted };
            for (i, matcher) in wanted.iter().enumerate() {
                write!(f, "{}{matcher}", if i == 0 { " " } else { " or " })?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

#[cfg(feature = "explain")]
impl fmt::Display for EntryMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_any = self.form == Form::Plain(Matcher::Present);
        if !is_any || self.not.is_empty() {
            write!(f, "{}", self.form)?;
        }
        for (i, form) in self.not.iter().enumerate() {
            let before = match (i, is_any) {
                (0, true) => "not ",
                (0, false) => " but not ",
                _ => " or ",
            };
            write!(f, "{before}{form}")?;
        }
        Ok(())
    }
}

#[cfg(feature = "explain")]
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(matcher) => matcher.fmt(f),
            Self::Like(Like(parts)) => {
                let parts = parts.iter().map(|part| String::from_utf8_lossy(part));
                write!(f, "like {:?}", parts.collect::<Vec<_>>().join("*"))
            }
        }
    }
}
