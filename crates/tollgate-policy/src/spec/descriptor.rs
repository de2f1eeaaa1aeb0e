//! Conditions on descriptors: the lists of keys and values in requests to a rate limit service.
//!
//! Invariant: keys and values are compared byte by byte, as they were sent; no key or value has two
//! spellings. Deliberately absent: patterns for keys, because the author of the proxy's
//! configuration chooses the keys.

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "explain")]
use core::fmt;

use crate::facts::Entry;
use crate::spec::wanted::Matcher;

/// The most entries of one descriptor that a condition names; services see two or three.
pub const MAX_ENTRIES: usize = 32;

/// A whole descriptor: these entries in this order, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries(pub Vec<WantedEntry>);

/// One entry: its key, and the condition on its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedEntry {
    /// The key.
    pub key: String,
    /// The value has one of these forms.
    pub wanted: Vec<EntryMatcher>,
}

/// The forms that the value of an entry must have, and those that it must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMatcher {
    /// The form that it has.
    pub form: Form,
    /// The forms that it does not have.
    pub not: Vec<Form>,
}

/// A form of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The same forms as for a header's value.
    Plain(Matcher),
    /// These bytes in their order, with anything between two of them.
    Like(Like),
}

/// A pattern, split at its stars, so it has at least two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Like(pub Vec<Vec<u8>>);

impl Entries {
    /// True when a value is searched.
    pub(crate) fn have_regex(&self) -> bool {
        self.0.iter().flat_map(|entry| &entry.wanted).any(EntryMatcher::has_regex)
    }

    /// True when `entries` are exactly these.
    pub fn matches<'e>(&self, mut entries: impl Iterator<Item = Entry<'e>>) -> bool {
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
    pub fn matches(&self, value: &[u8]) -> bool {
        self.form.matches(value) && !self.not.iter().any(|form| form.matches(value))
    }

    /// True when a value is searched.
    pub(crate) fn has_regex(&self) -> bool {
        let is_one = |form: &Form| matches!(form, Form::Plain(Matcher::Match(_)));
        is_one(&self.form) || self.not.iter().any(is_one)
    }

    /// True when every value matches.
    #[cfg(feature = "explain")]
    pub fn is_any(&self) -> bool {
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
