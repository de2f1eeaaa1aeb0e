//! The values of a header: without the white space round them, one by one, and the one that is meant.
//!
//! Invariant: what HTTP calls the same message has the same values: white space round a value (RFC 9110, 5.5), several
//! lines or one line with commas, and empty elements (5.3, 5.6.1) make no difference.

use crate::malformed::Malformed;

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

/// The one value of `values`; `None` when there is none.
///
/// # Errors
/// They differ.
pub(crate) fn the_one<'v>(
    mut values: impl Iterator<Item = &'v [u8]>,
) -> Result<Option<&'v [u8]>, Malformed> {
    let first = values.next();
    if values.all(|value| Some(value) == first) { Ok(first) } else { Err(Malformed::Repeated) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

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
