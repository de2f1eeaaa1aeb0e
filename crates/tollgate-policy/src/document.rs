//! The policy document, version 1, as people write it: types, and how each value is read.
//!
//! Invariant: a value of these types is valid on its own; what depends on several values (duplicate
//! names, a burst too large for its rate) is checked by `compile`. Fields that a later version
//! brings are unknown fields here, never ignored.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::node::Node;
use crate::path::Pattern;
use crate::read::{At, FromNode, choice, quoted, quoted_text, record};

/// The longest name of a rule or quota, in characters.
const MAX_NAME: usize = 64;
/// The longest header name.
const MAX_HEADER_NAME: usize = 256;
/// The longest method name.
const MAX_METHOD: usize = 32;

record! {
    /// The whole document.
    Document {
        /// The version of this format.
        version: Version,
        /// What is said to clients.
        response: Option<ResponseDoc>,
        /// What happens when a rule's state cannot be read or written.
        on_failure: Option<OnFailure>,
        /// The rules; every one that matches applies.
        rules: Vec<RuleDoc>,
    }
}

record! {
    /// What is said to clients.
    ResponseDoc {
        /// The generation of header fields.
        headers: Option<HeaderGeneration>,
        /// Send the fields on allowed responses too.
        on_allow: Option<bool>,
    }
}

record! {
    /// One rule: whom it concerns, what it counts by, and its quotas.
    RuleDoc {
        /// Unique in the policy.
        name: Name,
        /// All conditions must hold; without any, every request is meant.
        when: Option<WhenDoc>,
        /// What the counts are kept by; an empty list is one count for everybody.
        key: Vec<KeyPart>,
        /// What happens when a key part is not in the request.
        on_missing: Option<OnMissing>,
        /// Layered quotas, admitted all or none.
        quotas: Vec<QuotaDoc>,
        /// What happens when this rule's state cannot be read or written.
        on_failure: Option<OnFailure>,
        /// Envoy: how many keys are held.
        capacity: Option<Capacity>,
    }
}

record! {
    /// Conditions; all that are given must hold, the values of one are alternatives.
    WhenDoc {
        /// Request methods.
        methods: Option<Vec<Method>>,
        /// Path patterns.
        paths: Option<Vec<Pattern>>,
    }
}

record! {
    /// One quota.
    QuotaDoc {
        /// What clients are told it is called; the rule's name by default.
        name: Option<Name>,
        /// Quota units per window.
        limit: u64,
        /// The window.
        window: Window,
        /// Quota units admitted at once when idle; the limit by default.
        burst: Option<u64>,
        /// How it is counted; gcra by default.
        algorithm: Option<AlgorithmName>,
        /// Never more than the limit in any window.
        strict: Option<bool>,
        /// The parts of a sliding-buckets window.
        buckets: Option<u64>,
    }
}

choice! {
    /// What happens when state cannot be read or written.
    OnFailure ("failure mode") {
        /// The request passes.
        "allow" => Allow,
        /// The request is refused with 503.
        "deny" => Deny,
    }
}

choice! {
    /// What happens when a key part is not in the request.
    OnMissing ("missing mode") {
        /// The rule does not apply.
        "skip" => Skip,
        /// The request is refused.
        "deny" => Deny,
        /// All such requests share one count.
        "shared" => Shared,
    }
}

choice! {
    /// A generation of rate limit header fields.
    HeaderGeneration ("header generation") {
        /// draft-ietf-httpapi-ratelimit-headers-11.
        "draft-11" => Draft11,
        /// draft-ietf-httpapi-ratelimit-headers-07.
        "draft-7" => Draft7,
        /// draft-ietf-httpapi-ratelimit-headers-06.
        "draft-6" => Draft6,
        /// The X-RateLimit-* fields, reset in seconds.
        "x-ratelimit" => XRateLimit,
        /// None but Retry-After.
        "off" => Off,
    }
}

choice! {
    /// An algorithm by its name.
    AlgorithmName ("algorithm") {
        /// Generic cell rate algorithm.
        "gcra" => Gcra,
        /// Token bucket.
        "token-bucket" => TokenBucket,
        /// Leaky bucket as a meter.
        "leaky-bucket" => LeakyBucket,
        /// Leaky bucket as a queue.
        "leaky-queue" => LeakyQueue,
        /// Fixed window.
        "fixed-window" => FixedWindow,
        /// Sliding window counter.
        "sliding-window" => SlidingWindow,
        /// Rolling window in parts.
        "sliding-buckets" => SlidingBuckets,
        /// Sliding window log.
        "sliding-log" => SlidingLog,
    }
}

/// The number 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version;

impl FromNode for Version {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(1) => Some(Self),
            _ => at.wrong(node, "a known version; use 1"),
        }
    }
}

/// 1 to 64 characters of %x20-7E: what a structured-field String can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) String);

impl FromNode for Name {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.wrong(node, "a string");
        };
        if text.is_empty() || text.chars().count() > MAX_NAME {
            at.problem(format!("{} must have 1 to {MAX_NAME} characters", quoted(node)));
            return None;
        }
        if !text.bytes().all(|b| (0x20..=0x7e).contains(&b)) {
            at.problem(format!("{} has a character outside %x20-7E", quoted(node)));
            return None;
        }
        Some(Self(text.clone()))
    }
}

/// A header's name, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderName(pub(crate) String);

impl FromNode for HeaderName {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if is_token(text.as_bytes()) && text.len() <= MAX_HEADER_NAME => {
                Some(Self(text.to_ascii_lowercase()))
            }
            _ => at.wrong(node, "a header name"),
        }
    }
}

/// A request method; methods are case-sensitive (RFC 9110, 9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Method(pub(crate) String);

impl FromNode for Method {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if is_token(text.as_bytes()) && text.len() <= MAX_METHOD => {
                let upper = text.to_ascii_uppercase();
                if *text != upper {
                    at.problem(format!("methods are case-sensitive; use {}", quoted_text(&upper)));
                }
                Some(Self(text.clone()))
            }
            _ => at.wrong(node, "a request method"),
        }
    }
}

/// True for a token of RFC 9110, 5.6.2.
fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

impl FromNode for Pattern {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else {
            return at.wrong(node, "a path pattern");
        };
        Self::parse(text).map_err(|why| at.problem(format!("{} {why}", quoted(node)))).ok()
    }
}

/// One part of a partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    /// The client's address, grouped by prefix.
    ClientIp,
    /// The value of a header.
    Header(HeaderName),
}

record! {
    /// A key part that has a name.
    NamedPart {
        /// A header.
        header: HeaderName,
    }
}

impl FromNode for KeyPart {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "client_ip" => Some(Self::ClientIp),
            Node::Object(_) => NamedPart::read(node, at).map(|part| Self::Header(part.header)),
            _ => at.wrong(node, "a key part; use \"client_ip\" or {\"header\": name}"),
        }
    }
}

/// A window: a whole number and a unit, 1 ms to 366 d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) Span);

impl FromNode for Window {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Some(span) = (match node {
            Node::Text(text) => parse_span(text),
            _ => None,
        }) else {
            return at.wrong(
                node,
                "a window; use 1ms to 366d, such as \"500ms\", \"10s\", \"1m\", \"1h\" or \"1d\"",
            );
        };
        let why = if span < tollgate_core::MIN_WINDOW {
            "too short"
        } else if span > tollgate_core::MAX_WINDOW {
            "too long"
        } else {
            return Some(Self(span));
        };
        at.problem(format!("{} is {why}; use 1ms to 366d", quoted(node)));
        None
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

/// Keys held by a rule in Envoy: 4 to 16,777,216.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity(pub(crate) u32);

impl FromNode for Capacity {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let value = match node {
            Node::Integer(n) => u32::try_from(*n).ok().filter(|n| (4..=1 << 24).contains(n)),
            _ => None,
        };
        match value {
            Some(n) => Some(Self(n)),
            None => at.wrong(node, "a whole number from 4 to 16777216"),
        }
    }
}
