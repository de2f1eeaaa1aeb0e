//! The escapes with which a log writes bytes that would break its own form, and the way back.
//!
//! Invariant: unescaping never fails and never grows: text that is not an escape is unchanged.

use memchr::memchr;

/// How texts of a format are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Not at all, so a line may be readable in more than one way.
    None,
    /// `\x22`, `\"`, `\\`, `\n` and their like: nginx's default, and Apache's.
    Backslash,
    /// As in JSON's strings: the same, and `\u0022`.
    Json,
    /// A quote is doubled, as in RFC 4180.
    Doubled,
}

impl Escape {
    /// The byte that every escape begins with.
    const fn mark(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Backslash | Self::Json => Some(b'\\'),
            Self::Doubled => Some(b'"'),
        }
    }
}

/// `text` without its escapes, appended to `out`; `false` when it has none, and nothing is
/// appended.
pub(crate) fn unescape(text: &[u8], escape: Escape, out: &mut Vec<u8>) -> bool {
    let Some(mark) = escape.mark() else { return false };
    let Some(first) = memchr(mark, text) else { return false };
    let (mut plain, mut rest) = text.split_at_checked(first).unwrap_or((text, &[]));
    loop {
        out.extend_from_slice(plain);
        let Some((_, escaped)) = rest.split_first() else { return true };
        let after = match escape {
            Escape::Doubled => {
                out.push(b'"');
                escaped.strip_prefix(b"\"").unwrap_or(escaped)
            }
            Escape::None | Escape::Backslash | Escape::Json => one(escaped, escape, out),
        };
        let next = memchr(mark, after).unwrap_or(after.len());
        (plain, rest) = after.split_at_checked(next).unwrap_or((after, &[]));
    }
}

/// Appends the meaning of the escape after a backslash, and returns the bytes after it.
fn one<'a>(escaped: &'a [u8], escape: Escape, out: &mut Vec<u8>) -> &'a [u8] {
    let Some((kind, rest)) = escaped.split_first() else {
        out.push(b'\\');
        return escaped;
    };
    let plain = match kind {
        b'"' | b'\\' | b'/' => *kind,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'x' => {
            if let Some(([high, low], rest)) = rest.split_first_chunk()
                && let (Some(high), Some(low)) = (hex(*high), hex(*low))
            {
                out.push(high.wrapping_mul(16).wrapping_add(low));
                return rest;
            }
            out.push(b'\\');
            return escaped;
        }
        b'u' if escape == Escape::Json => {
            if let Some((character, rest)) = unicode(rest) {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return rest;
            }
            out.push(b'\\');
            return escaped;
        }
        _ => {
            out.push(b'\\');
            return escaped;
        }
    };
    out.push(plain);
    rest
}

/// The character of four hexadecimal digits, or of two surrogates; a lone surrogate is U+FFFD.
fn unicode(digits: &[u8]) -> Option<(char, &[u8])> {
    let (unit, rest) = four_hex(digits)?;
    if let Some(character) = char::from_u32(unit) {
        return Some((character, rest));
    }
    let lone = Some((char::REPLACEMENT_CHARACTER, rest));
    if unit >= 0xDC00 {
        return lone;
    }
    let Some((low, after)) = rest.strip_prefix(b"\\u").and_then(four_hex) else { return lone };
    if !(0xDC00..0xE000).contains(&low) {
        return lone;
    }
    let high_bits = unit.wrapping_sub(0xD800).wrapping_shl(10);
    let code = high_bits.wrapping_add(low.wrapping_sub(0xDC00)).wrapping_add(0x1_0000);
    Some((char::from_u32(code)?, after))
}

fn four_hex(digits: &[u8]) -> Option<(u32, &[u8])> {
    let (four, rest) = digits.split_first_chunk::<4>()?;
    let mut unit = 0_u32;
    for digit in four {
        unit = unit.wrapping_mul(16).wrapping_add(u32::from(hex(*digit)?));
    }
    Some((unit, rest))
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_all_else_stays() {
        use Escape::{Backslash, Doubled, Json};
        let rows: [(&[u8], Escape, &[u8]); 19] = [
            (br"a\x22b\x5C", Backslash, b"a\"b\\"),
            (br#"\"\\\n\t\r\v"#, Backslash, b"\"\\\n\t\r\x0b"),
            (br"\xE4\x00\xff", Backslash, b"\xE4\0\xff"),
            (br"\x2", Backslash, br"\x2"),
            (br"\xg0", Backslash, br"\xg0"),
            (br"\", Backslash, br"\"),
            (br"\q\x41", Backslash, br"\qA"),
            (br"\u0041", Backslash, br"\u0041"),
            (br"\u0041\/\u00e4", Json, "A/ä".as_bytes()),
            (br"\ud83d\ude00", Json, "😀".as_bytes()),
            (br"\ud83dx", Json, "\u{fffd}x".as_bytes()),
            (br"\ud83d\u0041", Json, "\u{fffd}A".as_bytes()),
            (br"\ude00", Json, "\u{fffd}".as_bytes()),
            (br"\u12", Json, br"\u12"),
            (br"\u0000", Json, b"\0"),
            (br"\x41", Json, b"A"),
            (br"\\u0041", Json, br"\u0041"),
            (b"\"\"a\"\"", Doubled, b"\"a\""),
            (b"a\"b\\", Doubled, b"a\"b\\"),
        ];
        for (text, escape, expected) in rows {
            let mut out = vec![];
            assert!(unescape(text, escape, &mut out));
            assert_eq!(out, expected, "{}", text.escape_ascii());
            assert!(out.len() <= text.len());
        }
        for (text, escape) in [(&br"\x22"[..], Escape::None), (b"plain", Backslash)] {
            let mut out = vec![];
            assert!(!unescape(text, escape, &mut out) && out.is_empty());
        }
    }
}
