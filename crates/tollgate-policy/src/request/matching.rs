//! Whether a value satisfies a condition, by the treatment of several values.
//!
//! Invariant: a condition that exempts a request must hold for every value; one that counts it, for
//! one.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::facts::Facts;
use crate::request::lazy::Request;
use crate::spec::bounds::MAX_SEARCHED;
use crate::spec::regex::Regex;
use crate::spec::wanted::Matcher;
use tollgate_http_syntax::alternatives::Alternatives;
use tollgate_http_syntax::header::{credentials, is_credentials, split_scheme};
use tollgate_http_syntax::malformed::Malformed;
use tollgate_http_syntax::query::decoded;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::values::{elements, the_one, trimmed, write_one};

/// How a condition treats several readings of its fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One that matches is enough: for conditions that count a request.
    Any,
    /// All must match: for conditions that exempt it.
    Every,
    /// The effective one: for conditions that only choose between quotas.
    Main(Repeated, Option<Repeated>),
}

/// True when the header `name` with this value matches one of `wanted`.
///
/// # Errors
/// It has values that differ, and the mode selects none of them.
pub(crate) fn header_matches(
    name: &str,
    value: &[u8],
    wanted: &Alternatives<Matcher>,
    reading: Reading,
) -> Result<bool, Malformed> {
    let whole = trimmed(value);
    if value.len() > MAX_SEARCHED && wanted.iter().any(Matcher::is_regex) {
        return Err(Malformed::Long);
    }
    let is_wanted = |value: &[u8]| matches_any(wanted, value);
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
            // Only an exact match of the whole value, with its commas, is as certain as all of its
            // elements.
            let is_exact =
                |matcher: &Matcher| matches!(matcher, Matcher::Exact(exact) if exact == whole);
            wanted.candidates(|it| it.bytes() <= whole).any(is_exact)
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

/// True when the values of the query parameter `name` match one of `wanted`.
pub(super) fn query_matches<F: Facts>(
    request: &Request<'_, F>,
    name: &[u8],
    wanted: &Alternatives<Matcher>,
    reading: Reading,
) -> Result<bool, Malformed> {
    let is_wanted = |value: &[u8]| {
        let is_before = |it: &Matcher| it.bytes().iter().copied().le(decoded(value));
        wanted.candidates(is_before).any(|it| it.matches_encoded(value))
    };
    if request.target().len() > MAX_SEARCHED && wanted.iter().any(Matcher::is_regex) {
        // Each value is a search, an empty one, too.
        let lengths = request.query(name).map(|value| value.len().saturating_add(1));
        if lengths.fold(0, usize::saturating_add) > MAX_SEARCHED {
            return Err(Malformed::Long);
        }
    }
    Ok(match reading {
        Reading::Any => request.query(name).any(is_wanted),
        Reading::Every => {
            request.query(name).next().is_some() && request.query(name).all(is_wanted)
        }
        Reading::Main(default, own) => {
            let mut value = Vec::new();
            let repeated = own.unwrap_or(default);
            let is_there = write_one(request.query(name), repeated, &mut value, |value, out| {
                out.extend(decoded(value));
                Ok(())
            })?;
            is_there && matches_any(wanted, &value)
        }
    })
}

/// True when a proxy sets this fact about the client, and `is_one` accepts the values that
/// `reading` selects.
pub(super) fn fact_matches(
    fact: Option<Cow<'_, [u8]>>,
    is_one: impl Fn(&[u8]) -> bool,
    reading: Reading,
) -> Result<bool, Malformed> {
    let Some(fact) = fact else { return Ok(false) };
    Ok(match reading {
        Reading::Any => elements(&fact).any(is_one),
        Reading::Every => elements(&fact).next().is_some() && elements(&fact).all(is_one),
        Reading::Main(repeated, _) => the_one(elements(&fact), repeated)?.is_some_and(is_one),
    })
}

/// True when `value` matches one of `wanted`.
#[inline(never)] // once for all readings
fn matches_any(wanted: &Alternatives<Matcher>, value: &[u8]) -> bool {
    wanted.candidates(|it| it.bytes() <= value).any(|it| it.matches(value))
}

/// True when `regex` matches credentials with one space between these parts.
#[cold]
#[inline(never)] // few conditions search
fn is_in_credentials(regex: &Regex, scheme: &[u8], rest: &[u8]) -> bool {
    regex.is_match(&[scheme, b" ", rest].concat())
}

impl Matcher {
    /// True when `credentials` match this, whatever the case of their scheme and the white space
    /// after it.
    fn matches_credentials(&self, credentials: &[u8]) -> bool {
        let (scheme, rest) = split_scheme(credentials);
        match self {
            Self::Present => true,
            // As it was sent is searched already.
            Self::Match(regex) => is_in_credentials(regex, scheme, rest),
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

    /// True when `value`, decoded, matches this.
    fn matches_encoded(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Exact(exact) => decoded(value).eq(exact.iter().copied()),
            Self::Prefix(prefix) => {
                let mut bytes = decoded(value);
                prefix.iter().all(|b| bytes.next() == Some(*b))
            }
            Self::Match(regex) => regex.is_match(&decoded(value).collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_takes_one_value_or_all() {
        let one = |matcher| Alternatives::from(alloc::vec![matcher]);
        let gold = one(Matcher::Exact(b"gold".into()));
        let list = one(Matcher::Exact(b"a, b".into()));
        let prefix = one(Matcher::Prefix(b"pre".into()));
        let bearer = one(Matcher::Prefix(b"Bearer ".into()));
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
