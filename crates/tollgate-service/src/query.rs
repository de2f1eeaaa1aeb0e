//! The parts of a target: segments of a path and parameters of a query, decoded.
//!
//! Invariant: all bytes are decoded or rejected; nothing is decoded twice, and bytes that are not
//! UTF-8 are rejected. An unknown parameter is rejected too: a `dry_run` with a typing error would
//! else make a real change. Source: RFC 3986, 2.1; the WHATWG's
//! `application/x-www-form-urlencoded`, 5.1.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_http_syntax::percent::decoded;

/// The longest target that is read: 4 KiB.
pub(crate) const MAX_TARGET: usize = 4096;

/// The parameters of a query, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads `query`, which may contain only `known` names, each once, and `repeated` ones.
    ///
    /// # Errors
    /// The mistake, in words that may be sent.
    pub(crate) fn parse(query: &str, known: &[&str], repeated: &[&str]) -> Result<Self, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let text = |raw: &str| decoded(&raw.replace('+', " "));
            let (Some(name), Some(value)) = (text(name), text(value)) else {
                return Err("the query is not percent-encoded UTF-8".into());
            };
            let is_again = pairs.iter().any(|(earlier, _)| *earlier == name);
            if repeated.contains(&name.as_str()) || (known.contains(&name.as_str()) && !is_again) {
                pairs.push((name, value));
            } else if is_again {
                return Err(format!("{name} is given twice; give it once"));
            } else {
                return Err(match [known, repeated].concat().as_slice() {
                    [] => "no parameter is known here".into(),
                    all => format!("a parameter is not known here; use {}", all.join(", ")),
                });
            }
        }
        Ok(Self(pairs))
    }

    /// The value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// All values of `name`.
    pub(crate) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// True for `?name`, `?name=1` and `?name=true`.
    ///
    /// # Errors
    /// It has another value.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.get(name) {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(format!("{name} is true or false")),
        }
    }

    /// The number in `name`.
    ///
    /// # Errors
    /// It is not a number, or not within `range`.
    pub(crate) fn number(
        &self,
        name: &str,
        range: core::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, String> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = digits(text).filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        let wrong = || format!("{name} is a whole number from {least} to {most}");
        number.map(Some).ok_or_else(wrong)
    }
}

/// The number in `text`: digits, without a sign and without a leading zero.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let is_plain =
        text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_or_given_twice_is_refused() {
        let read = |query: &str| Query::parse(query, &["a", "b"], &["key"]);
        let query = read("a=1&key=x+y&&key=%26&b").expect("known");
        assert_eq!((query.get("a"), query.get("b"), query.get("c")), (Some("1"), Some(""), None));
        assert_eq!(query.all("key").collect::<Vec<_>>(), ["x y", "&"]);
        for (query, wrong) in [
            ("c=1", "a parameter is not known here; use a, b, key"),
            ("A=1", "a parameter is not known here; use a, b, key"),
            ("a=1&a=1", "a is given twice; give it once"),
            ("a=1&%61=2", "a is given twice; give it once"),
            ("a=%ff", "the query is not percent-encoded UTF-8"),
            ("=", "a parameter is not known here; use a, b, key"),
        ] {
            assert_eq!(read(query).err().as_deref(), Some(wrong), "{query}");
        }
        assert_eq!(
            Query::parse("x", &[], &[]).err().as_deref(),
            Some("no parameter is known here")
        );
    }

    #[test]
    fn flags_and_numbers_are_these_and_nothing_else() {
        let flag = |query: &str| Query::parse(query, &["f"], &[]).and_then(|q| q.flag("f"));
        for yes in ["f", "f=", "f=1", "f=true"] {
            assert_eq!(flag(yes), Ok(true), "{yes}");
        }
        for no in ["", "f=0", "f=false"] {
            assert_eq!(flag(no), Ok(false), "{no}");
        }
        for odd in ["f=yes", "f=TRUE", "f= 1", "f=no"] {
            assert!(flag(odd).is_err(), "{odd}");
        }
        let number = |query: &str| Query::parse(query, &["n"], &[])?.number("n", 1..=50);
        assert_eq!(
            (number(""), number("n=1"), number("n=50")),
            (Ok(None), Ok(Some(1)), Ok(Some(50)))
        );
        for odd in
            ["n=", "n=0", "n=51", "n=-1", "n=%2B1", "n=01", "n=1e1", "n=99999999999999999999"]
        {
            assert_eq!(
                number(odd).err().as_deref(),
                Some("n is a whole number from 1 to 50"),
                "{odd}"
            );
        }
    }
}
