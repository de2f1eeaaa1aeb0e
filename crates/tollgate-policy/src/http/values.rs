//! The values of a header, a cookie or a query parameter: one by one, and the one that is meant.
//!
//! Invariant: what HTTP calls the same message has the same values: white space round a value (RFC 9110, 5.5), several
//! lines or one line with commas, and empty elements (5.3, 5.6.1) make no difference. Of values that differ none
//! is taken, unless the policy says which.

use alloc::vec::Vec;

use crate::document::conditions::Matcher;
use crate::document::identity::Repeated;
use crate::http::malformed::Malformed;

/// `value` without spaces and tabs round it: the white space of HTTP, and nothing else.
pub(crate) const fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The elements of a list, those that are empty left out.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    list.split(|byte| *byte == b',').map(trimmed).filter(|element| !element.is_empty())
}

/// The one of `values` that is meant; `None` when there is none.
///
/// # Errors
/// They differ, and none of them is meant.
pub(crate) fn the_one<V: PartialEq>(
    mut values: impl Iterator<Item = V>,
    repeated: Repeated,
) -> Result<Option<V>, Malformed> {
    match repeated {
        Repeated::First => Ok(values.next()),
        Repeated::Last => Ok(values.last()),
        Repeated::Refuse | Repeated::Join => {
            let first = values.next();
            let is_one = values.all(|value| Some(value) == first);
            if is_one { Ok(first) } else { Err(Malformed::Repeated) }
        }
    }
}

/// Appends to `out` what is meant by `values`, each as `write` writes it; false when there is none.
///
/// # Errors
/// They differ as written, and none of them is meant.
pub(crate) fn write_one<V>(
    mut values: impl Iterator<Item = V>,
    repeated: Repeated,
    out: &mut Vec<u8>,
    mut write: impl FnMut(V, &mut Vec<u8>) -> Result<(), Malformed>,
) -> Result<bool, Malformed> {
    let start = out.len();
    let Some(first) = values.next() else { return Ok(false) };
    write(first, out)?;
    if repeated == Repeated::First {
        return Ok(true);
    }
    for value in values {
        match repeated {
            Repeated::Last => out.truncate(start),
            Repeated::Join => out.push(b','),
            Repeated::Refuse | Repeated::First => {}
        }
        let end = out.len();
        write(value, out)?;
        if repeated == Repeated::Refuse {
            let is_same = out.get(start..end) == out.get(end..);
            out.truncate(end);
            if !is_same {
                return Err(Malformed::Repeated);
            }
        }
    }
    Ok(true)
}

/// Appends what is meant by the value of the header `name`, whose lines are joined; a header that is there has a
/// value, if an empty one.
pub(crate) fn write_header(
    name: &str,
    value: &[u8],
    repeated: Repeated,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    // RFC 9110, 5.5: such a value is invalid, and what becomes of it on its way differs.
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

/// True for the headers that hold credentials: a scheme, white space and what it wants (RFC 9110, 11.4).
fn is_credentials(name: &str) -> bool {
    matches!(name, "authorization" | "proxy-authorization")
}

/// The scheme and what follows it.
fn split_scheme(credentials: &[u8]) -> (&[u8], &[u8]) {
    let end = credentials.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (scheme, rest) =
        credentials.split_at_checked(end.unwrap_or(credentials.len())).unwrap_or_default();
    (scheme, trimmed(rest))
}

/// The credentials in a header. Those of most schemes are parameters with commas between them (RFC 9110, 11.2); only
/// a token or a password is whole without one.
fn credentials(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
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

/// Appends credentials in one form: the scheme is case-insensitive, the white space after it is of any length, and a
/// password is what its base64 says, which has several spellings.
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

/// Appends the bytes that `text` encodes, in either alphabet, with or without padding, whatever the bits beyond the last
/// byte are: decoders differ in what they take, and none in what it then is.
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

/// The token in the header `name`: what follows `Bearer`, or else the whole value.
///
/// # Errors
/// There are several that differ.
pub(crate) fn token<'v>(
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

/// How a condition takes several readings of what it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One that matches is enough: what counts a request.
    Any,
    /// All must match: what lets it off.
    Every,
    /// The one that is meant: what only chooses between quotas.
    Main(Repeated, Option<Repeated>),
}

/// True when the header `name` with this value is what one of `wanted` is.
///
/// # Errors
/// It has values that differ, and none is meant.
pub(crate) fn header_matches(
    name: &str,
    value: &[u8],
    wanted: &[Matcher],
    reading: Reading,
) -> Result<bool, Malformed> {
    let whole = trimmed(value);
    let is_wanted = |value: &[u8]| wanted.iter().any(|matcher| matcher.matches(value));
    Ok(match reading {
        Reading::Any => {
            is_wanted(whole)
                || elements(value).any(is_wanted)
                || is_credentials(name)
                    && credentials(value).any(|c| wanted.iter().any(|m| m.matches_credentials(c)))
        }
        Reading::Every if Repeated::of_header(name, None, Repeated::Refuse) == Repeated::Join => {
            is_wanted(whole)
        }
        Reading::Every => {
            // Nothing but the very value with its commas is as sure as all of its elements.
            let is_exact =
                |matcher: &Matcher| matches!(matcher, Matcher::Exact(exact) if exact == whole);
            wanted.iter().any(is_exact)
                || is_wanted(elements(value).next().unwrap_or_default())
                    && elements(value).all(is_wanted)
        }
        Reading::Main(default, own) => match Repeated::of_header(name, own, default) {
            Repeated::Join => is_wanted(whole),
            one if is_credentials(name) => {
                is_wanted(the_one(credentials(value), one)?.unwrap_or_default())
            }
            one => is_wanted(the_one(elements(value), one)?.unwrap_or_default()),
        },
    })
}

impl Matcher {
    /// True when `credentials` are what this wants, whatever the case of their scheme and the white space after it.
    fn matches_credentials(&self, credentials: &[u8]) -> bool {
        let (scheme, rest) = split_scheme(credentials);
        match self {
            Self::Present => true,
            Self::Exact(exact) => {
                let (wanted, tail) = split_scheme(exact);
                scheme.eq_ignore_ascii_case(wanted) && rest == tail
            }
            Self::Prefix(prefix) => {
                let (wanted, tail) = split_scheme(prefix);
                if wanted.len() == prefix.len() {
                    return scheme
                        .get(..wanted.len())
                        .is_some_and(|s| s.eq_ignore_ascii_case(wanted));
                }
                scheme.eq_ignore_ascii_case(wanted) && rest.starts_with(tail)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn white_space_round_a_value_is_no_part_of_it() {
        for (value, expected) in [
            ("a", "a"),
            (" \t a b\tc \t", "a b\tc"),
            ("\x0ba\x0b", "\x0ba\x0b"),
            ("\u{a0}a", "\u{a0}a"),
            (" \t ", ""),
            ("", ""),
        ] {
            assert_eq!(trimmed(value.as_bytes()), expected.as_bytes(), "{value:?}");
        }
    }

    #[test]
    fn lines_and_elements_are_the_same_values() {
        for (list, expected) in [
            ("a", &["a"][..]),
            ("a, b", &["a", "b"]),
            ("a,b", &["a", "b"]),
            ("\ta\t,, ,b ,", &["a", "b"]),
            (" , ", &[]),
            ("", &[]),
        ] {
            let expected: Vec<&[u8]> = expected.iter().map(|e| e.as_bytes()).collect();
            assert_eq!(elements(list.as_bytes()).collect::<Vec<_>>(), expected, "{list:?}");
        }
    }

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

    #[test]
    fn a_condition_takes_one_value_or_all() {
        let gold = [Matcher::Exact(b"gold".into())];
        let list = [Matcher::Exact(b"a, b".into())];
        let prefix = [Matcher::Prefix(b"pre".into())];
        let bearer = [Matcher::Prefix(b"Bearer ".into())];
        for (name, wanted, value, any, every) in [
            ("x", &gold, " gold\t", true, true),
            ("x", &gold, "gold, gold", true, true),
            ("x", &gold, "free, gold", true, false),
            ("x", &gold, "Gold", false, false),
            ("x", &gold, "", false, false),
            ("x", &list, "a, b", true, true),
            ("x", &list, "a,b", false, false),
            ("x", &prefix, "pre-a, b", true, false),
            ("x", &prefix, "b, pre-a", true, false),
            ("user-agent", &prefix, "pre-a, b", true, true),
            ("authorization", &bearer, "bearer\tx", true, false),
            ("authorization", &bearer, "Basic x", false, false),
        ] {
            let held = |reading| header_matches(name, value.as_bytes(), wanted, reading);
            assert_eq!(held(Reading::Any), Ok(any), "{value:?}");
            assert_eq!(held(Reading::Every), Ok(every), "{value:?}");
        }
        let main = |value: &str, own| {
            header_matches("x", value.as_bytes(), &gold, Reading::Main(Repeated::Refuse, own))
        };
        assert_eq!(main("gold, gold", None), Ok(true));
        assert_eq!(main("gold, free", None), Err(Malformed::Repeated));
        assert_eq!(main("gold, free", Some(Repeated::First)), Ok(true));
        assert_eq!(main("gold, free", Some(Repeated::Last)), Ok(false));
        assert_eq!(main("gold, free", Some(Repeated::Join)), Ok(false));
    }
}
