//! The limit that a request brings with it.
//!
//! Invariant: a value is read in one way or not at all: digits only. What is absent or something
//! else is the quota's default, never another number. Of several values of a header the lowest
//! number counts, so what a client sends next to the value of a proxy never raises its limit.

use tollgate_http_syntax::values::elements;

use crate::facts::{Facts, RequestedLimit};
use crate::policy::quota::CompiledQuota;
use crate::request::lazy::Request;
use crate::spec::limit_from::{LimitFrom, LimitSource};

/// Numbers with more digits are above every limit.
const MAX_DIGITS: usize = 15;

impl CompiledQuota {
    /// True when `limit`, the limit in a descriptor, is one of this quota: it takes its limit from
    /// descriptors, and counts in the same unit of time.
    #[must_use]
    pub fn takes(&self, limit: &RequestedLimit) -> bool {
        let from = self.limit_from.as_deref();
        from.is_some_and(|from| from.source == LimitSource::Descriptor)
            && limit.window == self.window
            && self.limiter.calendar().is_none()
    }

    /// The limit that the request brings with it, at most that of the limiter; `None` where it has
    /// none that can be read, or the quota takes none.
    pub(crate) fn requested<F: Facts>(
        &self,
        from: &LimitFrom,
        request: &Request<'_, F>,
    ) -> Option<u64> {
        let limit = match &from.source {
            // A token that contradicts another one is no source.
            LimitSource::Claim(name) => limit_in(&request.claim(name).ok()??),
            LimitSource::Metadata(path) => limit_in(&request.facts.metadata(&path.0)?),
            LimitSource::Header(name) => {
                let value = request.facts.header(&name.0)?;
                elements(&value).filter_map(limit_in).min()
            }
            LimitSource::Descriptor => {
                request.facts.limit().filter(|limit| self.takes(limit)).map(|limit| limit.units)
            }
        };
        limit.map(|limit| limit.min(self.limiter.limit()))
    }
}

/// The number in `digits`; 16 digits and more, without zeros before them, are the greatest number.
/// `None` for anything else.
fn limit_in(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let significant = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
    if digits.len().saturating_sub(significant) > MAX_DIGITS {
        return Some(u64::MAX);
    }
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_limit() {
        for (text, limit) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("007", Some(7)),
            ("999999999999999", Some(999_999_999_999_999)),
            ("000000000000001", Some(1)),
            ("0000000000000001", Some(1)),
            ("00000000000000000000000000000000000000", Some(0)),
            ("1000000000000000", Some(u64::MAX)),
            ("99999999999999999999999999", Some(u64::MAX)),
            ("", None),
            (" ", None),
            (" 7", None),
            ("7 ", None),
            ("+7", None),
            ("-7", None),
            ("-0", None),
            ("7.0", None),
            ("7,0", None),
            ("7e3", None),
            ("0x7", None),
            ("7_000", None),
            ("7\0", None),
            ("\u{0667}", None),
            ("\u{ff17}", None),
            ("NaN", None),
            ("inf", None),
            ("true", None),
            ("1000000000000000x", None),
        ] {
            assert_eq!(limit_in(text.as_bytes()), limit, "{text:?}");
        }
        assert_eq!(limit_in(b"\xff"), None);
        assert_eq!(limit_in(&[b'9'; 1 << 16]), Some(u64::MAX));
    }
}
