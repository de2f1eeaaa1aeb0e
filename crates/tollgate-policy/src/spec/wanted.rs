//! The values that conditions compare with: hosts, networks, header and parameter values,
//! countries.
//!
//! Invariant: each value is valid on its own, in the form that is compared with a request.

#[cfg(feature = "explain")]
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
#[cfg(feature = "explain")]
use core::fmt;

use crate::spec::regex::Regex;
use tollgate_http_syntax::alternatives::Alternative;
use tollgate_http_syntax::authority::write_host;
use tollgate_http_syntax::token::is_token;

/// A host: exact, or every subdomain of a suffix; in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// `api.example.com`
    Exact(Vec<u8>),
    /// `*.example.com`, kept as `.example.com`.
    Suffix(Vec<u8>),
}

impl Host {
    /// True for a name in normal form, a suffix with its leading dot.
    pub fn is_normal(&self) -> bool {
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
    pub fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }
}

/// A matcher for one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// `"*"`: any value, as long as it is present.
    Present,
    /// Exactly these bytes.
    Exact(Vec<u8>),
    /// A value that begins with these bytes.
    Prefix(Vec<u8>),
    /// A value in which this regular expression matches anywhere.
    Match(Regex),
}

impl Matcher {
    /// True when `value` matches.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(exact) => value == exact,
            Self::Prefix(prefix) => value.starts_with(prefix),
            Self::Match(regex) => regex.is_match(value),
        }
    }
}

impl Matcher {
    /// The bytes that a value is compared with; empty when any value matches, or a regular
    /// expression decides.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Present | Self::Match(_) => &[],
            Self::Exact(bytes) | Self::Prefix(bytes) => bytes,
        }
    }

    /// True when a value is searched.
    pub const fn is_regex(&self) -> bool {
        matches!(self, Self::Match(_))
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

/// A two-letter country code (ISO 3166-1), in upper case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Country(pub Vec<u8>);

impl Country {
    /// True for a country code in either case.
    pub fn is_any(text: &[u8]) -> bool {
        text.len() == 2 && is_token(text)
    }

    /// True for a country code in upper case.
    pub fn is_one(text: &[u8]) -> bool {
        Self::is_any(text) && !text.iter().any(u8::is_ascii_lowercase)
    }
}

/// An autonomous system number, as its decimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asn(pub Vec<u8>);

impl Asn {
    /// True for the decimal digits of a system number, without leading zeros.
    pub fn is_one(digits: &[u8]) -> bool {
        let text = core::str::from_utf8(digits).unwrap_or_default();
        let is_decimal = text == "0" || text.starts_with(|c: char| matches!(c, '1'..='9'));
        is_decimal && text.parse::<u32>().is_ok()
    }
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
            Self::Match(regex) => write!(f, "matching {:?}", regex.text()),
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
