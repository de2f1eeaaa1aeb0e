//! A parsed configuration of `envoyproxy/ratelimit`.
//!
//! Invariant: every value is valid in isolation, by the rules of that service. Source: the README
//! of that project, "The configuration format", and the names of its protocol's units
//! (`envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit`).

use super::finding::Place;

/// One file.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) at: Place,
    pub(super) domain: String,
    pub(super) descriptors: Vec<Descriptor>,
}

/// A node of the tree of descriptors: an entry of a request's descriptor, by key and value.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) at: Place,
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) limit: Option<Limit>,
    /// The limit is evaluated and counted, but never denies.
    pub(super) is_shadow: bool,
    /// All values that match the pattern share one count.
    pub(super) shares: bool,
    pub(super) descriptors: Vec<Descriptor>,
}

/// The value of a descriptor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Any value that no sibling matches.
    Default,
    /// Exactly this text.
    Exact(String),
    /// A text with stars, each of which matches anything.
    Pattern(String),
}

/// A limit.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) at: Place,
    /// Requests per unit of time; `None` for unlimited.
    pub(super) quota: Option<(u32, Unit)>,
    pub(super) name: Option<String>,
    /// The names of limits that do not apply to a call where this one does.
    pub(super) replaces: Vec<String>,
}

/// A unit of time: a fixed length, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    /// The window as a policy writes it.
    pub(super) window: &'static str,
}

/// The units of the protocol. A month is 30 days there, a year 365.
pub(super) const UNITS: [Unit; 7] = [
    Unit { name: "second", window: "1s" },
    Unit { name: "minute", window: "1m" },
    Unit { name: "hour", window: "1h" },
    Unit { name: "day", window: "1d" },
    Unit { name: "week", window: "7d" },
    Unit { name: "month", window: "30d" },
    Unit { name: "year", window: "365d" },
];

impl Value {
    /// True when a value can match both; only a pattern matches more than one.
    pub(super) fn takes(&self, text: &str) -> bool {
        match self {
            Self::Default => true,
            Self::Exact(exact) => exact == text,
            Self::Pattern(pattern) => is_like(pattern, text),
        }
    }
}

/// True when `text` matches `pattern`; each star matches any text, also an empty one.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(last)
}
