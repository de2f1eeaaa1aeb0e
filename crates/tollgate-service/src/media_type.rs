//! The media type of a body.
//!
//! Invariant: parameters are ignored (RFC 9110, 8.3.1).

/// True when `field`, a `content-type`, names this media type.
#[must_use]
pub fn is_media_type(field: &str, media_type: &str) -> bool {
    let named = field.split(';').next().unwrap_or_default().trim();
    named.eq_ignore_ascii_case(media_type)
}

/// True when a field `accept` lists this media type by its name, and does not refuse it (RFC 9110,
/// 12.5.1).
pub(crate) fn accepts(accept: Option<&str>, expected: &str) -> bool {
    let mut ranges = accept.unwrap_or_default().split(',').map(|range| range.trim());
    ranges.any(|range| {
        let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
        let refuses = |p: &str| matches!(p.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        kind.trim().eq_ignore_ascii_case(expected) && !parameters.split(';').any(refuses)
    })
}
