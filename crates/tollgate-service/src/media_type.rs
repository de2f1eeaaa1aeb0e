//! The media type of a body.
//!
//! Invariant: parameters are ignored (RFC 9110, 8.3.1).

/// True when `field`, a `content-type`, names this media type.
#[must_use]
pub fn is_media_type(field: &str, media_type: &str) -> bool {
    let named = field.split(';').next().unwrap_or_default().trim();
    named.eq_ignore_ascii_case(media_type)
}
