//! The parts of a key and its items: an item is one part, or the first of several parts that a
//! request has.
//!
//! Invariant: a key is one list of parts, so bytes cannot nest. The form of a part is one that its
//! source can have.

#[cfg(feature = "explain")]
use alloc::format;
#[cfg(feature = "explain")]
use alloc::vec::Vec;
#[cfg(feature = "explain")]
use core::fmt;

use crate::spec::bounds::{MAX_ANY_OF, MAX_KEY_PARTS};
use crate::spec::coded::{fields, variants};
#[cfg(feature = "explain")]
use crate::spec::key::Origin;
use crate::spec::key::{Breadth, KeySource};
use crate::spec::regex::Regex;
use crate::spec::scalar::Bounded;
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::repeated::Repeated;

fields! {
    /// One part of a partition key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct KeyPart {
        /// Where a request has its value.
        source: KeySource,
        /// The form in which the value is counted.
        form: KeyForm,
        /// The value is what this finds in it, before it gets its form: the group, or else all that
        /// matches.
        regex: Option<Regex>,
        /// The next part of the key is for requests that lack this one: both are parts of an
        /// `any_of`.
        has_alternative: bool,
    } if |it| it.can_be_searched() && match it.form {
        KeyForm::AsSent => true,
        KeyForm::Lower => it.source.is_text(),
        KeyForm::Network(own) => it.is_address() && !own.is_none(),
    }
}

/// The form in which the value of a key part is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Text as the client sent it; an address by the prefixes of the document.
    AsSent,
    /// Text with its ASCII letters in lower case; other bytes as the client sent them.
    Lower,
    /// An address by prefixes of its own.
    Network(OwnPrefixes),
}

variants!(KeyForm {
    0 => AsSent,
    1 => Lower,
    2 => Network(own: OwnPrefixes),
});

fields! {
    /// The leading bits of an address that identify one client in a key part, where they are not
    /// those of the document.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OwnPrefixes {
        /// Those of an IPv4 address.
        ipv4_prefix: Option<Bounded<0, 32>>,
        /// Those of an IPv6 address.
        ipv6_prefix: Option<Bounded<0, 128>>,
    }
}

/// One item of a key: a part, or the parts of an `any_of`, of which the first one that the request
/// has is counted. Its index belongs to the key, so a text in one part is never the same as that
/// text in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyItem<'k> {
    /// The parts that it may read, in their order.
    pub parts: &'k [KeyPart],
}

/// The items of a key.
pub fn items(key: &[KeyPart]) -> impl Iterator<Item = KeyItem<'_>> {
    key.chunk_by(|part, _| part.has_alternative).map(|parts| KeyItem { parts })
}

/// True for the parts of a key that a document can have.
pub(crate) fn is_key(key: &[KeyPart]) -> bool {
    items(key).count() <= MAX_KEY_PARTS
        && items(key).all(|item| item.parts.len() <= MAX_ANY_OF)
        && key.iter().filter(|part| part.is_address()).count() <= 1
        && !key.last().is_some_and(|part| part.has_alternative)
}

impl KeyItem<'_> {
    /// True for an `any_of`.
    pub const fn is_choice(&self) -> bool {
        self.parts.len() > 1
    }

    /// Its name in the document.
    pub fn name(&self) -> &'static str {
        match self.parts {
            [part] => part.source.about().name,
            _ => "any_of",
        }
    }

    /// True when it is only this part.
    pub fn is(&self, part: &KeyPart) -> bool {
        matches!(self.parts, [own] if own == part)
    }

    /// Every request has it.
    #[cfg(feature = "explain")]
    pub fn is_always_there(&self) -> bool {
        self.parts.iter().any(KeyPart::is_always_there)
    }

    /// How many clients may share a value.
    pub fn breadth(&self) -> Breadth {
        self.parts.iter().map(|part| part.source.about().breadth).max().unwrap_or(Breadth::All)
    }

    /// Where a request has it from, in the worst case: a client that may write one of the parts can
    /// choose that part. With a verified value or else the connection, every request has a value
    /// that the client cannot make up.
    #[cfg(feature = "explain")]
    pub fn origin(&self) -> Origin {
        let is = |origin| self.parts.iter().any(|part| part.source.about().origin == origin);
        match () {
            () if is(Origin::Client) => Origin::Client,
            () if is(Origin::Target) => Origin::Target,
            () if is(Origin::Connection) => Origin::Connection,
            () => Origin::Verified,
        }
    }
}

impl KeyPart {
    /// The part as requests have it.
    pub const fn as_sent(source: KeySource) -> Self {
        Self { source, form: KeyForm::AsSent, regex: None, has_alternative: false }
    }

    /// The same part with its settings: its own, or else those that its name implies, or else
    /// those of the document. A part with a prefix of the document has none of its own.
    #[must_use]
    pub fn resolved(mut self, default: Repeated, of_document: Prefixes) -> Self {
        self.source.resolve(default);
        if let KeyForm::Network(own) = self.form {
            self.form = own.form_in(of_document);
        }
        self
    }

    /// True when it is an item of its own, in the form in which requests have it.
    pub(crate) const fn is_plain(&self) -> bool {
        !self.has_alternative && matches!(self.form, KeyForm::AsSent) && self.regex.is_none()
    }

    /// True when it has no regular expression, or one that selects a part of a text.
    pub fn can_be_searched(&self) -> bool {
        self.regex.as_ref().is_none_or(|it| self.source.is_searchable() && it.groups() <= 1)
    }

    /// True when every request has it.
    pub fn is_always_there(&self) -> bool {
        self.regex.is_none() && self.source.about().is_always_there
    }

    /// True for the client's address, whose bytes in a key are not text.
    pub fn is_address(&self) -> bool {
        self.source == KeySource::ClientIp
    }

    /// The prefixes by which it groups addresses, where the document has `of_document`; `None` for
    /// a part that is not an address.
    pub fn prefixes(&self, of_document: Prefixes) -> Option<Prefixes> {
        self.is_address().then_some(match self.form {
            KeyForm::Network(own) => own.or(of_document),
            KeyForm::AsSent | KeyForm::Lower => of_document,
        })
    }
}

impl KeyForm {
    /// Gives a text this form.
    pub(crate) fn apply(self, text: &mut [u8]) {
        match self {
            Self::Lower => text.make_ascii_lowercase(),
            Self::AsSent | Self::Network(_) => {}
        }
    }
}

impl OwnPrefixes {
    /// True when both are those of the document.
    pub const fn is_none(self) -> bool {
        self.ipv4_prefix.is_none() && self.ipv6_prefix.is_none()
    }

    /// These, or else those of the document.
    pub fn or(self, of_document: Prefixes) -> Prefixes {
        Prefixes {
            ipv4: self.ipv4_prefix.map_or(of_document.ipv4, |own| own.0),
            ipv6: self.ipv6_prefix.map_or(of_document.ipv6, |own| own.0),
        }
    }

    /// The form without those that the document has, too.
    fn form_in(self, of_document: Prefixes) -> KeyForm {
        let own = Self {
            ipv4_prefix: self.ipv4_prefix.filter(|own| own.0 != of_document.ipv4),
            ipv6_prefix: self.ipv6_prefix.filter(|own| own.0 != of_document.ipv6),
        };
        if own.is_none() { KeyForm::AsSent } else { KeyForm::Network(own) }
    }
}

/// In words: `header x-user or else client address`.
#[cfg(feature = "explain")]
impl fmt::Display for KeyItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " or else " })?;
            part.fmt(f)?;
        }
        Ok(())
    }
}

/// In words: `header x-user in lower case`, `client address (IPv4 /24, IPv6 /48)`.
#[cfg(feature = "explain")]
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)?;
        if let Some(regex) = &self.regex {
            write!(f, " matching {:?}", regex.text())?;
        }
        match self.form {
            KeyForm::AsSent => {}
            KeyForm::Lower => f.write_str(" in lower case")?,
            KeyForm::Network(OwnPrefixes { ipv4_prefix, ipv6_prefix }) => {
                let ipv4 = ipv4_prefix.map(|own| format!("IPv4 /{}", own.0));
                let ipv6 = ipv6_prefix.map(|own| format!("IPv6 /{}", own.0));
                let own = [ipv4, ipv6].into_iter().flatten().collect::<Vec<_>>();
                write!(f, " ({})", own.join(", "))?;
            }
        }
        f.write_str(self.source.unusual().map_or("", Repeated::in_words))
    }
}
