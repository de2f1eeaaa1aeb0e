//! Entity tags: made, read from `if-match` and `if-none-match`, and compared.
//!
//! Invariant: a tag is strong: two bodies that differ in a byte have two tags. A client's field
//! either parses as a list of tags or is reported as invalid. Source: RFC 9110, 8.8.3, 13.1.1 and
//! 13.1.2.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sha2::{Digest, Sha256};

/// The tag of `content`, quotes included: its version, and the first 64 bits of its hash. The hash
/// reveals that a store was lost and numbers from the start again.
pub(crate) fn strong(version: u64, content: &str) -> String {
    let hash = Sha256::digest(content.as_bytes());
    let hash = hash.iter().take(8).fold(0_u64, |hash, byte| (hash << 8) | u64::from(*byte));
    format!("\"{version}-{hash:016x}\"")
}

/// The tags of a precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    /// `*`: any content.
    Any,
    /// One of these.
    These(Vec<Tag>),
}

/// One tag, as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    is_weak: bool,
    /// With its quotes.
    opaque: String,
}

impl Tags {
    /// Reads a field's value; `None` when it is not a list of tags. Empty items of a list are
    /// ignored (RFC 9110, 5.6.1.2).
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let value = value.trim_matches([' ', '\t']);
        if value == "*" {
            return Some(Self::Any);
        }
        let (mut rest, mut tags) = (value, Vec::new());
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return (!tags.is_empty()).then_some(Self::These(tags));
            }
            let (tag, behind) = Tag::take(rest)?;
            tags.push(tag);
            rest = behind.trim_start_matches([' ', '\t']);
            if !rest.is_empty() && !rest.starts_with(',') {
                return None;
            }
        }
    }

    /// True when one of these is `tag`, and strong (RFC 9110, 8.8.3.2).
    pub(crate) fn match_strongly(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|it| !it.is_weak && it.opaque == tag),
        }
    }

    /// True when one of these is `tag`, weak or not.
    pub(crate) fn match_weakly(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|it| it.opaque == tag),
        }
    }
}

impl Tag {
    /// The tag at the beginning of `text`, and the rest after it.
    fn take(text: &str) -> Option<(Self, &str)> {
        let (is_weak, quoted) = text.strip_prefix("W/").map_or((false, text), |rest| (true, rest));
        let inside = quoted.strip_prefix('"')?;
        let end = inside.find(|c: char| !matches!(c, '!' | '#'..='~' | '\u{80}'..))?;
        let opaque = quoted.get(..end.checked_add(2)?)?;
        if !opaque.ends_with('"') {
            return None;
        }
        let behind = quoted.get(opaque.len()..)?;
        Some((Self { is_weak, opaque: opaque.to_owned() }, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_its_version_and_its_content() {
        assert_eq!(strong(3, ""), "\"3-e3b0c44298fc1c14\"");
        assert_ne!(strong(3, "a"), strong(3, "b"));
        assert!(Tags::parse(&strong(3, "a")).is_some_and(|t| t.match_strongly(&strong(3, "a"))));
    }

    #[test]
    fn lists_are_read_as_the_grammar_has_them() {
        let cases = [
            // field, reads as "a", matches "a" strongly, weakly
            ("*", Some((true, true))),
            (" * ", Some((true, true))),
            ("\"a\"", Some((true, true))),
            (" \"a\" ", Some((true, true))),
            ("W/\"a\"", Some((false, true))),
            ("\"b\", \"a\"", Some((true, true))),
            ("\"b\",W/\"a\"", Some((false, true))),
            (",, \"b\" , ,\"a\",", Some((true, true))),
            ("\"a,b\"", Some((false, false))),
            ("\"a \"", None), // no space within
            ("\"\"", Some((false, false))),
            ("\"ä\"", Some((false, false))),
            ("a", None),
            ("\"a", None),
            ("a\"", None),
            ("'a'", None),
            ("w/\"a\"", None),
            ("W/ \"a\"", None),
            ("\"a\" \"b\"", None),
            ("\"a\"\"a\"", None),
            ("*, \"a\"", None),
            ("\"a\", *", None),
            ("", None),
            (" , ,", None),
            ("\"", None),
            ("W/", None),
        ];
        for (field, expected) in cases {
            let tags = Tags::parse(field);
            let found = tags.map(|t| (t.match_strongly("\"a\""), t.match_weakly("\"a\"")));
            assert_eq!(found, expected, "{field}");
        }
    }
}
