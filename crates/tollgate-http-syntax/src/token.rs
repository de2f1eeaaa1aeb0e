//! The token of HTTP (RFC 9110, 5.6.2): the grammar of methods and header names.
//!
//! Invariant: never empty.

/// True for a token of RFC 9110, 5.6.2.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}
