//! The parts of a quota's header fields that are the same in every response.
//!
//! Invariant: a template is derived from its quota when the policy is made, and is never stored in
//! a compiled policy. The fields are the same bytes with it and without it. Deliberately absent:
//! the templates of quotas whose window differs between requests, and of requests in flight.

use alloc::format;
use alloc::string::String;

use tollgate_core::{Limiter, Span};

/// The parts of the fields of one quota.
#[derive(Debug)]
pub(crate) struct FieldTemplate {
    /// The limit in `policy`: a request may have one of its own.
    pub(crate) limit: u64,
    /// The member of `RateLimit-Policy`, without unit and key: `"name";q=10;w=60`.
    pub(crate) policy: String,
    /// The begin of the member of `RateLimit`: `"name";r=`.
    pub(crate) remaining: String,
}

impl FieldTemplate {
    /// The template of the quota of this name.
    pub(crate) fn new(name: &str, limiter: &Limiter) -> Option<Self> {
        if limiter.calendar().is_some() || limiter.max_age().is_some() {
            return None;
        }
        let (name, limit) = (quoted(name), limiter.limit());
        let window = whole_seconds(limiter.window());
        let window = window.map_or_else(String::new, |seconds| format!(";w={seconds}"));
        let policy = format!("{name};q={limit}{window}");
        Some(Self { limit, policy, remaining: format!("{name};r=") })
    }
}

/// The length of a window as `w`: left out when there is none, and when it is not a whole number of
/// seconds, because `w` is an Integer of seconds.
pub(crate) fn whole_seconds(window: Span) -> Option<u64> {
    let seconds = window.as_secs_ceil();
    (Span::from_secs(seconds) == window && seconds > 0).then_some(seconds)
}

/// `name` as a structured-field String (RFC 9651, 3.3.3), which is also a JSON string: names are
/// %x20-7E.
pub(crate) fn quoted(name: &str) -> String {
    let mut out = String::with_capacity(name.len().saturating_add(2));
    out.push('"');
    for letter in name.chars() {
        if matches!(letter, '"' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out.push('"');
    out
}
