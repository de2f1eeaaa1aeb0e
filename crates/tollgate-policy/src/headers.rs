//! The header fields of each generation (HEADERS.md).
//!
//! Invariant: what is written is a canonical structured field (RFC 9651) whose numbers a client may
//! rely on: who spreads `r` units over `t` seconds is never refused, who waits `Retry-After` is
//! admitted. Seconds round up, and are never 0.

use alloc::string::String;
use core::fmt::Write;

use tollgate_core::Span;

use crate::document::HeaderGeneration;
use crate::outcome::{Cause, Reported};

/// Where fields go: name in lower case, value.
type Sink<'s> = &'s mut dyn FnMut(&'static str, &str);

/// Whole seconds of a wait: rounded up, at least 1.
pub(crate) fn seconds(span: Span) -> u64 {
    span.as_secs_ceil().max(1)
}

/// Writes into `text`, which cannot fail, and sends it.
macro_rules! send {
    ($sink:ident, $text:ident, $name:literal, $($format:tt)*) => {{
        $text.clear();
        let _ = write!($text, $($format)*);
        $sink($name, $text);
    }};
}

/// The fields of every refusal.
pub(crate) fn refusal(cause: Cause, retry_after: Option<Span>, text: &mut String, sink: Sink<'_>) {
    sink("content-type", "application/problem+json");
    if cause != Cause::Failure {
        // A 429 answers one client; RFC 6585, 4: it must not be stored by a cache.
        sink("cache-control", "no-store");
    }
    if let Some(wait) = retry_after {
        send!(sink, text, "retry-after", "{}", seconds(wait));
    }
}

/// The rate limit fields for the quotas that were decided; none when none was.
pub(crate) fn fields<'a, I>(
    generation: HeaderGeneration,
    reported: impl Fn() -> I,
    text: &mut String,
    sink: Sink<'_>,
) where
    I: Iterator<Item = Reported<'a>> + Clone,
{
    let Some(nearest) = reported().min_by_key(exhaustion) else { return };
    let (limit, r, t) = (nearest.decision.limit, available(&nearest), effective_window(&nearest));
    match generation {
        HeaderGeneration::Off => {}
        HeaderGeneration::Draft11 => draft_11(reported(), text, sink),
        HeaderGeneration::Draft7 => {
            plain_policy(reported(), text, sink);
            send!(sink, text, "ratelimit", "limit={limit}, remaining={r}, reset={t}");
        }
        HeaderGeneration::Draft6 => {
            plain_policy(reported(), text, sink);
            send!(sink, text, "ratelimit-limit", "{limit}");
            send!(sink, text, "ratelimit-remaining", "{r}");
            send!(sink, text, "ratelimit-reset", "{t}");
        }
        HeaderGeneration::XRateLimit => {
            send!(sink, text, "x-ratelimit-limit", "{limit}");
            send!(sink, text, "x-ratelimit-remaining", "{r}");
            send!(sink, text, "x-ratelimit-reset", "{t}");
        }
    }
}

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11, one member a quota.
fn draft_11<'a>(
    reported: impl Iterator<Item = Reported<'a>> + Clone,
    text: &mut String,
    sink: Sink<'_>,
) {
    text.clear();
    for quota in reported.clone() {
        begin_member(text);
        push_quoted(&quota.meter.name, text);
        let _ = write!(text, ";q={}", quota.decision.limit);
        push_window(quota.meter.window, text);
    }
    sink("ratelimit-policy", text);
    text.clear();
    for quota in reported {
        begin_member(text);
        push_quoted(&quota.meter.name, text);
        let _ = write!(text, ";r={};t={}", available(&quota), effective_window(&quota));
    }
    sink("ratelimit", text);
}

/// `RateLimit-Policy` of drafts 6 and 7: `100;w=60, 1000;w=86400`.
fn plain_policy<'a>(
    reported: impl Iterator<Item = Reported<'a>>,
    text: &mut String,
    sink: Sink<'_>,
) {
    text.clear();
    for quota in reported {
        begin_member(text);
        let _ = write!(text, "{}", quota.decision.limit);
        push_window(quota.meter.window, text);
    }
    sink("ratelimit-policy", text);
}

/// `r`: what may be used now; nothing while the quota denies.
fn available(quota: &Reported<'_>) -> u64 {
    match quota.decision.retry_after {
        Some(_) => 0,
        None => quota.decision.remaining,
    }
}

/// `t`: the effective window; while the quota denies, the time until it does not.
fn effective_window(quota: &Reported<'_>) -> u64 {
    seconds(quota.decision.retry_after.unwrap_or(quota.decision.reset_after))
}

/// Orders quotas by how close they are to exhaustion: least available first, then longest window.
fn exhaustion(quota: &Reported<'_>) -> (u64, core::cmp::Reverse<u64>) {
    (available(quota), core::cmp::Reverse(effective_window(quota)))
}

fn begin_member(text: &mut String) {
    if !text.is_empty() {
        text.push_str(", ");
    }
}

/// `;w=60`; left out when the window is not whole seconds, because `w` is an Integer of seconds.
fn push_window(window: Span, text: &mut String) {
    let secs = window.as_secs_ceil();
    if Span::from_secs(secs) == window {
        let _ = write!(text, ";w={secs}");
    }
}

/// `name` as a structured-field String (RFC 9651, 3.3.3), which is a JSON string too: names are %x20-7E.
pub(crate) fn push_quoted(name: &str, text: &mut String) {
    text.push('"');
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
}
