//! The value of a header as keys contain it, and its credentials.
//!
//! Invariant: values that are the same to HTTP have the same bytes: elements, white space, the case
//! of a scheme, the spelling of a password.

use alloc::vec::Vec;

use crate::malformed::Malformed;
use crate::repeated::Repeated;
use crate::values::{elements, the_one, trimmed, write_one};

/// Appends the effective value of the header `name`, whose lines are joined. A header that is
/// present has a value, possibly an empty one.
pub fn write_header(
    name: &str,
    value: &[u8],
    repeated: Repeated,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    // RFC 9110, 5.5: such a value is invalid, and recipients treat it differently.
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(Malformed::Control);
    }
    if is_credentials(name) {
        return write_credentials(value, repeated, out);
    }
    write_one(elements(value), repeated, out, copy).map(|_| ())
}

#[allow(clippy::unnecessary_wraps)] // one of several ways to write a value
fn copy(value: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.extend_from_slice(value);
    Ok(())
}

/// True for the headers that contain credentials: a scheme, white space and its parameters (RFC
/// 9110, 11.4).
pub fn is_credentials(name: &str) -> bool {
    matches!(name, "authorization" | "proxy-authorization")
}

/// The scheme and the rest after it.
pub fn split_scheme(credentials: &[u8]) -> (&[u8], &[u8]) {
    let end = credentials.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (scheme, rest) =
        credentials.split_at_checked(end.unwrap_or(credentials.len())).unwrap_or_default();
    (scheme, trimmed(rest))
}

/// The credentials in a header. Most schemes have parameters with commas between them (RFC 9110,
/// 11.2); only a token or a password is complete without one.
pub fn credentials(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let whole = trimmed(value);
    let (scheme, rest) = split_scheme(whole);
    let is_one = [&b"bearer"[..], b"basic"].iter().any(|one| scheme.eq_ignore_ascii_case(one));
    let name = rest.iter().position(|byte| matches!(byte, b'=' | b',' | b' '));
    let has_parameters = !is_one
        && name
            .is_some_and(|end| matches!(rest.get(end..), Some([b'=', next, ..]) if *next != b'='));
    let parameters = has_parameters.then_some(whole);
    let list = if has_parameters { &[][..] } else { value };
    parameters.into_iter().chain(elements(list))
}

/// Appends credentials in one form: the scheme is case-insensitive, the white space after it has
/// any length, and a password is compared as its decoded base64, which has several spellings.
fn write_credentials(value: &[u8], repeated: Repeated, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let write = |credentials: &[u8], out: &mut Vec<u8>| {
        let (scheme, rest) = split_scheme(credentials);
        out.extend(scheme.iter().map(u8::to_ascii_lowercase));
        out.push(b' ');
        if scheme.eq_ignore_ascii_case(b"basic") {
            return write_base64(rest, out);
        }
        copy(rest, out)
    };
    write_one(credentials(value), repeated, out, write).map(|_| ())
}

/// Appends the bytes that `text` encodes, in either alphabet, with or without padding, whatever the
/// bits beyond the last byte: decoders differ in the texts they accept, but not in the bytes they
/// return.
fn write_base64(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = text.get(..text.len().saturating_sub(padding)).unwrap_or_default();
    let (mut bits, mut held) = (0_u32, 0_u32);
    for digit in digits {
        let six = match digit {
            b'A'..=b'Z' => digit.saturating_sub(b'A'),
            b'a'..=b'z' => digit.saturating_sub(b'a').saturating_add(26),
            b'0'..=b'9' => digit.saturating_sub(b'0').saturating_add(52),
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return Err(Malformed::Credentials),
        };
        bits = bits.wrapping_shl(6) | u32::from(six);
        held = held.saturating_add(6);
        if held >= 8 {
            held = held.saturating_sub(8);
            out.push(bits.wrapping_shr(held).to_le_bytes()[0]);
        }
    }
    Ok(())
}

/// The token in the header `name`: the text after `Bearer`, or else the whole value.
///
/// # Errors
/// There are several that differ.
pub fn token<'v>(
    name: &str,
    value: &'v [u8],
    repeated: Repeated,
) -> Result<Option<&'v [u8]>, Malformed> {
    let token = |credentials: &'v [u8]| match split_scheme(credentials) {
        (scheme, token) if scheme.eq_ignore_ascii_case(b"bearer") => token,
        _ => credentials,
    };
    if is_credentials(name) {
        return the_one(credentials(value).map(token), repeated);
    }
    the_one(elements(value).map(token), repeated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[track_caller]
    fn check(name: &str, value: &str, repeated: Repeated, expected: Result<&str, Malformed>) {
        let mut out = b"before".to_vec();
        let written = write_header(name, value.as_bytes(), repeated, &mut out)
            .map(|()| String::from_utf8(out.split_off(6)).expect("text"));
        assert_eq!(written.as_deref().map_err(|m| *m), expected, "{name}: {value:?}");
    }

    #[test]
    fn several_values_are_one_of_them_or_none() {
        use Repeated::{First, Join, Last, Refuse};
        for (value, refuse, first, last, join) in [
            ("", Ok(""), "", "", ""),
            (" , ", Ok(""), "", "", ""),
            ("\ta ", Ok("a"), "a", "a", "a"),
            ("a,a, a", Ok("a"), "a", "a", "a,a,a"),
            ("a, b ,c", Err(Malformed::Repeated), "a", "c", "a,b,c"),
            ("a, ab", Err(Malformed::Repeated), "a", "ab", "a,ab"),
        ] {
            check("x", value, Refuse, refuse);
            check("x", value, First, Ok(first));
            check("x", value, Last, Ok(last));
            check("x", value, Join, Ok(join));
        }
        check("x", "a\x0b", First, Err(Malformed::Control));
        check("x", "a\x7f", Join, Err(Malformed::Control));
        check("x", "a\tb", Refuse, Ok("a\tb"));
    }

    #[test]
    fn credentials_have_one_form() {
        for (value, expected) in [
            ("Bearer abc", Ok("bearer abc")),
            ("bEARER\t  abc", Ok("bearer abc")),
            ("Bearer abc, bearer  abc", Ok("bearer abc")),
            ("Bearer abc, abc", Err(Malformed::Repeated)),
            ("Bearer abc, x=1", Err(Malformed::Repeated)),
            ("Bearer abc=", Ok("bearer abc=")),
            ("Basic dTpw", Ok("basic u:p")),
            ("basic dTpw=", Ok("basic u:p")),
            ("BASIC dTpwcA==", Ok("basic u:pp")),
            ("Basic dTpwcB", Ok("basic u:pp")),
            ("Basic dTpwPz8_", Ok("basic u:p???")),
            ("Basic dTpwPz8/", Ok("basic u:p???")),
            ("Basic =dTpw", Err(Malformed::Credentials)),
            ("Basic dT pw", Err(Malformed::Credentials)),
            ("Digest username=\"a\", uri=\"/a,b\"", Ok("digest username=\"a\", uri=\"/a,b\"")),
            ("Key abc==, abc==", Err(Malformed::Repeated)),
            ("token", Ok("token ")),
        ] {
            check("authorization", value, Repeated::Refuse, expected);
        }
    }

    #[test]
    fn a_token_is_what_follows_bearer() {
        for (name, value, expected) in [
            ("authorization", "Bearer abc", Ok(Some("abc"))),
            ("authorization", "Bearer\tabc ", Ok(Some("abc"))),
            ("authorization", "abc", Ok(Some("abc"))),
            ("authorization", "Bearer abc,BEARER abc", Ok(Some("abc"))),
            ("authorization", "Bearer abc, Bearer d", Err(Malformed::Repeated)),
            ("x-token", " abc", Ok(Some("abc"))),
            ("x-token", "abc, d", Err(Malformed::Repeated)),
            ("x-token", "", Ok(None)),
        ] {
            let expected = expected.map(|token| token.map(str::as_bytes));
            assert_eq!(token(name, value.as_bytes(), Repeated::Refuse), expected, "{value:?}");
        }
    }
}
