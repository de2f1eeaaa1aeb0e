//! Cookies of a request: those of one name, and their values in one form.
//!
//! Invariant: two requests with the same cookie value for an origin have the same value here, for
//! each of the usual ways in which origins read cookies. Sources: RFC 6265, 4.2 and 5.4; origins
//! differ in the meaning of quotes, escapes and commas.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::malformed::Malformed;
use crate::query::split_once;
use crate::repeated::Repeated;
use crate::values::{trimmed, write_one};

/// Appends the effective value of the cookies called `name`; false when there is none.
///
/// # Errors
/// They differ, and the mode selects none of them.
pub fn write_cookie(
    header: &[u8],
    name: &[u8],
    repeated: Repeated,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let repeated = match repeated {
        // A comma is part of a value, or separates joined lines, and a quote may hide the cookies
        // after it: origins do not agree on the order of such cookies.
        Repeated::First | Repeated::Last if header.iter().any(|b| matches!(b, b',' | b'"')) => {
            Repeated::Refuse
        }
        other => other,
    };
    if header.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(Malformed::Control);
    }
    write_one(named(header, name), repeated, out, |value, out| {
        write_value(value, out);
        Ok(())
    })
}

/// The values of the cookies called `name`, between semicolons and, where several lines were
/// joined, commas.
fn named<'c>(header: &'c [u8], name: &'c [u8]) -> impl Iterator<Item = &'c [u8]> {
    let pairs = header.split(|byte| matches!(byte, b';' | b','));
    let pairs = pairs.filter_map(|pair| split_once(pair, b'='));
    pairs.filter(move |(key, _)| trimmed(key) == name).map(|(_, value)| trimmed(value))
}

/// Appends a value without its quotes and escapes: some origins read `"a"`, `"\141"` and `%61` as
/// `a`.
fn write_value(value: &[u8], out: &mut Vec<u8>) {
    let value = match value {
        [b'"', inner @ .., b'"'] => inner,
        value => value,
    };
    let mut rest = &*unescaped(value);
    while let Some((byte, _, after)) = crate::percent::next_byte(rest) {
        rest = after;
        out.push(byte);
    }
}

/// `value` with `\141` as the byte of that octal number, and `\a` as `a`.
fn unescaped(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.contains(&b'\\') {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, after)) = rest.split_first() {
        (rest, _) = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                let digit = |d: &u8| d.saturating_sub(b'0');
                (after, out.push(digit(a).wrapping_shl(6) | digit(b).wrapping_shl(3) | digit(c)))
            }
            [b'\\', escaped, after @ ..] => (after, out.push(*escaped)),
            _ => (after, out.push(*byte)),
        };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, repeated: Repeated, expected: Result<Option<&str>, Malformed>) {
        let mut out = Vec::new();
        let found = write_cookie(header.as_bytes(), b"sid", repeated, &mut out);
        let text = core::str::from_utf8(&out).expect("text");
        assert_eq!(found.map(|found| found.then_some(text)), expected, "{header:?}");
    }

    #[test]
    fn a_value_has_one_form() {
        for value in [
            "abc",
            "\"abc\"",
            " abc\t",
            "%61bc",
            "\"\\141bc\"",
            "a\\bc",
            "\"a%62c\"",
            "\\141\\b\\143",
        ] {
            check(&alloc::format!("sid={value}"), Repeated::Refuse, Ok(Some("abc")));
        }
        check("sid=a%zz", Repeated::Refuse, Ok(Some("a%zz")));
        check("sid=\"", Repeated::Refuse, Ok(Some("\"")));
        check("sid=a+b", Repeated::Refuse, Ok(Some("a+b")));
        check("sid=", Repeated::Refuse, Ok(Some("")));
        check("sid=a\x01", Repeated::Refuse, Err(Malformed::Control));
    }

    #[test]
    fn several_cookies_of_one_name() {
        use Repeated::{First, Join, Last, Refuse};
        const DIFFER: Result<Option<&str>, Malformed> = Err(Malformed::Repeated);
        for (header, refuse, first, last) in [
            ("a=b", Ok(None), Ok(None), Ok(None)),
            ("sid", Ok(None), Ok(None), Ok(None)),
            ("xsid=1; sid=2", Ok(Some("2")), Ok(Some("2")), Ok(Some("2"))),
            ("sid=1; sid=\"1\"", Ok(Some("1")), Ok(Some("1")), Ok(Some("1"))),
            ("sid=1; sid=2", DIFFER, Ok(Some("1")), Ok(Some("2"))),
            ("sid=1, sid=2", DIFFER, DIFFER, DIFFER),
            ("a=b, sid=1; sid=2", DIFFER, DIFFER, DIFFER),
            ("a=\"b; sid=1\"; sid=2", DIFFER, DIFFER, DIFFER),
            ("a=b, sid=1", Ok(Some("1")), Ok(Some("1")), Ok(Some("1"))),
        ] {
            check(header, Refuse, refuse);
            check(header, First, first);
            check(header, Last, last);
        }
        check("sid=1; a=b; sid=2", Join, Ok(Some("1,2")));
    }
}
