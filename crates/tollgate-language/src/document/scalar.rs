//! The small values of a document: names, methods, windows, numbers within bounds.
//!
//! Invariant: each is valid on its own, and its message names the valid values.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{MAX_BUCKETS, MAX_LIMIT, MIN_BUCKETS, QuotaError, Span};
use tollgate_http_syntax::path::Pattern;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{
    Bounded, CookieName, HeaderName, MAX_METADATA, MAX_NAME, MAX_WAIT, MetadataPath, Method, Name,
    is_visible, quoted_text, stable_hash,
};

use crate::json::node::Node;
use crate::json::node::quoted;
use crate::json::place::At;
use crate::json::reader::{FromNode, names, schema};

/// The number 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version;

impl FromNode for Version {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(1) => Some(Self),
            // The rest is read as version 1, because its problems help to identify the version.
            _ => at.wrong(node, "a known version; use 1").or(Some(Self)),
        }
    }

    schema!({"const": 1});
}

impl FromNode for Name {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.not_text(node, "a string");
        };
        if text.is_empty() || text.chars().count() > MAX_NAME {
            at.problem(format!("{} must have 1 to {MAX_NAME} characters", quoted(node)));
            return None;
        }
        if !text.bytes().all(is_visible) {
            at.problem(format!("{} has a character outside %x20-7E", quoted(node)));
            return None;
        }
        Some(Self(text.clone()))
    }

    schema!({"type": "string", "pattern": "^[ -~]{1,64}$"});
}

impl FromNode for MetadataPath {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let names: Vec<Name> = Vec::read(node, at)?;
        let names: Vec<String> = names.into_iter().map(|name| name.0).collect();
        if !Self::is_one(&names) {
            at.problem(format!("needs the name of a filter and a path: 2 to {MAX_METADATA} names"));
            return None;
        }
        Some(Self(names))
    }

    schema!({
        "type": "array", "items": Name::schema(), "minItems": 2, "maxItems": MAX_METADATA
    });
}

impl FromNode for HeaderName {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if Self::is_any(text) => Some(Self(text.to_ascii_lowercase())),
            _ => at.not_text(node, "a header name"),
        }
    }

    schema!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$"});
}

/// A salt that makes a hash differ from those of others: 16 to 128 characters of %x20-7E.
#[derive(Clone, Debug)]
pub(crate) struct Salt(String);

impl Salt {
    /// The key of a hash, 128 bits.
    pub(crate) fn hash_key(&self) -> [u8; 16] {
        let half = |which: &[u8]| stable_hash(&[which, self.0.as_bytes()]).to_le_bytes();
        let mut key = [0; 16];
        for (byte, made) in key.iter_mut().zip(half(b"first").into_iter().chain(half(b"second"))) {
            *byte = made;
        }
        key
    }
}

impl FromNode for Salt {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text)
                if (16..=128).contains(&text.len()) && text.bytes().all(is_visible) =>
            {
                Some(Self(text.clone()))
            }
            // It is a secret, so it is not repeated.
            _ => {
                at.problem("is not a salt; use 16 to 128 characters of %x20-7E".into());
                None
            }
        }
    }

    schema!({"type": "string", "pattern": "^[ -~]{16,128}$"});
}

impl FromNode for CookieName {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if Self::is_one(text) => Some(Self(text.clone())),
            _ => at.not_text(node, "a cookie name"),
        }
    }

    schema!({"type": "string", "pattern": "^[^=;,]+$"});
}

impl FromNode for Method {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if Self::is_any(text) => {
                let upper = text.to_ascii_uppercase();
                if *text != upper {
                    at.problem(format!("methods are case-sensitive; use {}", quoted_text(&upper)));
                }
                Some(Self(text.clone()))
            }
            _ => at.not_text(node, "a request method"),
        }
    }

    schema!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Z-]{1,32}$"});
}

impl FromNode for Pattern {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.not_text(node, "a path pattern");
        };
        Self::parse(text).map_err(|why| at.problem(format!("{} {why}", quoted(node)))).ok()
    }

    schema!({"type": "string", "pattern": "^/", "maxLength": 1024});
}

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// A whole number and a unit, 1 ms to 366 d.
    Length(Span),
    /// A week of a calendar.
    Week,
    /// A month of a calendar.
    Month,
}

impl FromNode for Window {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "1w" => return Some(Self::Week),
            Node::Text(text) if text == "1mo" => return Some(Self::Month),
            _ => {}
        }
        let Some(span) = parsed(node) else {
            return at.not_text(
                node,
                "a window; use 1ms to 366d, such as \"500ms\", \"10s\", \"1m\", \"1h\" or \"1d\"",
            );
        };
        let why = if span < tollgate_core::MIN_WINDOW {
            "too short"
        } else if span > tollgate_core::MAX_WINDOW {
            "too long"
        } else {
            return Some(Self::Length(span));
        };
        at.problem(format!("{} is {why}; use 1ms to 366d", quoted(node)));
        None
    }

    schema!({"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d)|1w|1mo)$"});
}

/// Quota units per window; 0 denies every request. The core checks the limits of the window and of
/// the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) u64);

impl FromNode for Limit {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let limit = u64::read(node, at)?;
        if limit > MAX_LIMIT {
            at.problem(format!("{limit} is not valid: limit must be 0 to {MAX_LIMIT}"));
            return None;
        }
        Some(Self(limit))
    }

    schema!({"type": "integer", "minimum": 0, "maximum": MAX_LIMIT});
}

/// Quota units at once: at least 1. The core checks the limits of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst(pub(crate) u64);

impl FromNode for Burst {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let burst = u64::read(node, at)?;
        if burst == 0 {
            at.problem("0 is not valid: burst must be at least 1".into());
            return None;
        }
        Some(Self(burst))
    }

    schema!({"type": "integer", "minimum": 1});
}

/// The parts of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets(pub(crate) u16);

impl FromNode for Buckets {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let buckets = u64::read(node, at)?;
        let parts = u16::try_from(buckets).ok();
        let parts = parts.filter(|parts| (MIN_BUCKETS..=MAX_BUCKETS).contains(parts));
        if parts.is_none() {
            at.problem(format!("{buckets} is not valid: {}", QuotaError::Buckets));
        }
        parts.map(Self)
    }

    schema!({"type": "integer", "minimum": MIN_BUCKETS, "maximum": MAX_BUCKETS});
}

/// A wait: 0 s to 5 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Span);

impl FromNode for Wait {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match parsed(node).filter(|span| *span <= MAX_WAIT) {
            Some(span) => Some(Self(span)),
            None => at.not_text(node, "a wait; use 0s to 5m, such as \"500ms\" or \"2s\""),
        }
    }

    schema!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"});
}

fn parsed(node: &Node) -> Option<Span> {
    match node {
        Node::Text(text) => parse_span(text),
        _ => None,
    }
}

/// `500ms`, `10s`, `1m`, `1h` or `1d`; `None` for anything else.
pub(crate) fn parse_span(text: &str) -> Option<Span> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok().map(|n| Span::from_millis(n.saturating_mul(millis)))
}

impl<const MIN: u32, const MAX: u32> FromNode for Bounded<MIN, MAX> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let value = match node {
            Node::Integer(n) => u32::try_from(*n).ok().filter(|n| (MIN..=MAX).contains(n)),
            _ => None,
        };
        match value {
            Some(n) => Some(Self(n)),
            None => at.wrong(node, &format!("a whole number from {MIN} to {MAX}")),
        }
    }

    schema!({"type": "integer", "minimum": MIN, "maximum": MAX});
}

/// Why a cost or a token has fewer modes than a key.
pub(crate) const NO_JOIN: &str =
    "\"join\" makes a list, and one value is read here; use \"refuse\", \"first\" or \"last\"";

names! {
    Repeated ("mode") {
        /// The value that all are equal to; a request whose values differ is denied with 400.
        "refuse" => Refuse,
        /// The first value.
        "first" => First,
        /// The last value.
        "last" => Last,
        /// All values together, in their order.
        "join" => Join,
    }
}
