//! Query strings (URL standard, form decoding).
//!
//! Invariant: every text is a query; a percent sign that begins no escape is literal.

/// The bytes of a query key or value: `+` is a space, `%41` is `A` (URL standard, form decoding).
pub fn decoded(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (byte, escaped, after) = crate::percent::next_byte(rest)?;
        rest = after;
        Some(if byte == b'+' && !escaped { b' ' } else { byte })
    })
}

/// The bytes before and after the first `separator`.
pub fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == separator)?;
    Some((bytes.get(..at)?, bytes.get(at.saturating_add(1)..)?))
}
