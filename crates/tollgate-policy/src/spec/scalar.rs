//! The small values of a document: names, methods, windows, numbers within bounds.
//!
//! Invariant: each is valid on its own, and its message names the valid values.

use alloc::string::String;

use tollgate_core::Span;

use tollgate_http_syntax::token::is_token;

/// The longest name of a rule or quota, in characters.
pub const MAX_NAME: usize = 64;
/// The longest header name.
const MAX_HEADER_NAME: usize = 256;
/// The longest method name.
const MAX_METHOD: usize = 32;

/// 1 to 64 characters of %x20-7E, which a structured-field String can contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

impl Name {
    /// True for a valid name.
    pub fn is_one(text: &str) -> bool {
        (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_visible)
    }
}

/// %x20-7E
pub const fn is_visible(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e)
}

/// A header's name, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeaderName(pub String);

impl AsRef<[u8]> for HeaderName {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl HeaderName {
    /// True for a header name in any case.
    pub fn is_any(text: &str) -> bool {
        is_token(text.as_bytes()) && text.len() <= MAX_HEADER_NAME
    }

    /// True for a name of a header in lower case.
    pub fn is_one(text: &str) -> bool {
        Self::is_any(text) && !text.bytes().any(|b| b.is_ascii_uppercase())
    }
}

/// The name of a cookie, as it appears before the first `=` of a pair (RFC 6265, 5.2): any name
/// that a pair can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieName(pub String);

impl CookieName {
    /// True for the name of a cookie.
    pub fn is_one(text: &str) -> bool {
        !text.is_empty() && text.trim() == text && !text.contains(['=', ';', ','])
    }
}

/// A request method; methods are case-sensitive (RFC 9110, 9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(pub String);

impl Method {
    /// True when `given` is this method. With `in_any_case`, also true when its upper-case form is,
    /// as Werkzeug and Django read `post` as POST. Other servers reject `post`, so it must not
    /// bypass a rule.
    pub fn is(&self, given: &[u8], in_any_case: bool) -> bool {
        let wanted = self.0.as_bytes();
        wanted == given || (in_any_case && wanted.eq_ignore_ascii_case(given))
    }
}

impl Method {
    /// True for a method in any case.
    pub fn is_any(text: &str) -> bool {
        is_token(text.as_bytes()) && text.len() <= MAX_METHOD
    }

    /// True for a method in upper case.
    pub fn is_one(text: &str) -> bool {
        Self::is_any(text) && !text.bytes().any(|b| b.is_ascii_lowercase())
    }
}

/// The longest wait: after it clients give up, and so does the proxy in front.
pub const MAX_WAIT: Span = Span::from_secs(300);

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded<const MIN: u32, const MAX: u32>(pub u32);
