//! Percent-encoding (RFC 3986, 2.1).
//!
//! Invariant: nothing is decoded twice. A percent sign that begins no escape is a byte like any
//! other to [`next_byte`], and refused by [`decoded`].

use alloc::string::String;
use alloc::vec::Vec;

/// The next byte of `text`, whether it was written as an escape, and the bytes that follow it;
/// `None` at the end.
pub fn next_byte(text: &[u8]) -> Option<(u8, bool, &[u8])> {
    if let [b'%', high, low, after @ ..] = text
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        return Some((high.wrapping_shl(4) | low, true, after));
    }
    text.split_first().map(|(byte, after)| (*byte, false, after))
}

/// `text` with each escape as the byte that it names; `None` for a percent sign that begins no
/// escape, and for bytes that are not UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, is_escaped, after)) = next_byte(rest) {
        if byte == b'%' && !is_escaped {
            return None;
        }
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
        for (text, expected) in [
            ("a%2Fb", Some("a/b")),
            ("%252e", Some("%2e")),
            ("%c3%A4", Some("\u{e4}")),
            ("", Some("")),
            ("a+b", Some("a+b")),
            ("%25", Some("%")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%+1", None),
            ("%ff", None),
            ("%c3", None),
        ] {
            assert_eq!(decoded(text).as_deref(), expected, "{text}");
        }
    }
}
