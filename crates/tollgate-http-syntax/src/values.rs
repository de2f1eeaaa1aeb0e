//! The values of a header, a cookie or a query parameter: one by one, and the effective one.
//!
//! Invariant: messages that are the same to HTTP have the same values: white space around a value
//! (RFC 9110, 5.5), several lines or one line with commas, and empty elements (5.3, 5.6.1) make no
//! difference. If values differ, none is used unless the policy selects one.

use alloc::vec::Vec;

use crate::malformed::Malformed;
use crate::repeated::Repeated;

/// `value` without spaces and tabs around it: the white space of HTTP, and nothing else.
pub const fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The elements of a list, without empty ones.
pub fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    list.split(|byte| *byte == b',').map(trimmed).filter(|element| !element.is_empty())
}

/// The effective one of `values`; `None` when there is none.
///
/// # Errors
/// They differ, and the mode selects none of them.
pub fn the_one<V: PartialEq>(
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

/// Appends the effective one of `values`, each as `write` writes it; false when there is none.
///
/// # Errors
/// They differ as written, and the mode selects none of them.
pub fn write_one<V>(
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
