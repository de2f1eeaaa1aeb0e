//! W3C Trace Context: the trace that a caller's request belongs to.
//!
//! Invariant: a field that does not match the recommendation exactly (Trace Context, 3.2) is
//! ignored, and so are two of them: the request then begins a trace of its own.

use hyper::HeaderMap;
use tollgate_redis::Tag;

const FIELD: &str = "traceparent";

/// A span of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
}

impl Parent {
    /// The caller's span, and whether the caller records this trace.
    pub(super) fn of(headers: &HeaderMap) -> Option<(Self, bool)> {
        let mut lines = headers.get_all(FIELD).iter();
        match (lines.next(), lines.next()) {
            (Some(line), None) => Self::parse(line.as_bytes()),
            _ => None,
        }
    }

    /// Reads `00-`, 32 digits, `-`, 16 digits, `-`, two digits; later versions may have more after
    /// a further `-`.
    pub(super) fn parse(text: &[u8]) -> Option<(Self, bool)> {
        let (head, rest) = text.split_first_chunk::<55>()?;
        let [version, trace, span, flags] = {
            let mut parts = head.split(|byte| *byte == b'-');
            [parts.next()?, parts.next()?, parts.next()?, parts.next()?]
        };
        let [version] = digits::<1>(version)?;
        let is_of_version = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => matches!(rest.first(), None | Some(b'-')),
        };
        let (trace, span, [flags]) = (digits(trace)?, digits(span)?, digits::<1>(flags)?);
        let is_there = trace != [0; 16] && span != [0; 8];
        (is_of_version && is_there).then_some((Self { trace, span }, flags & 1 != 0))
    }

    /// The form that the store returns.
    pub(super) fn tag(&self) -> Tag {
        let mut tag = [0; 24];
        let bytes = self.trace.iter().chain(&self.span);
        tag.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        tag
    }

    /// The parent that [`Self::tag`] was made from.
    pub(super) fn of_tag(tag: &Tag) -> Self {
        let trace = tag.first_chunk().copied().unwrap_or_default();
        let span = tag.last_chunk().copied().unwrap_or_default();
        Self { trace, span }
    }
}

/// Bytes as hexadecimal digits, in lower case only.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != N.checked_mul(2)? {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = *pair.first_chunk()?;
        *byte = value(high)? << 4 | value(low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_as_it_should_be_or_none() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let zeros = "0".repeat(32);
        let with = |version: &str, trace: &str, span: &str, rest: &str| {
            Parent::parse(format!("{version}-{trace}-{span}-{rest}").as_bytes())
        };
        let (parent, is_sampled) = with("00", trace, span, "01").expect("a parent");
        assert_eq!((parent.trace[0], parent.trace[15], parent.span[7]), (0x4b, 0x36, 0xb7));
        assert!(is_sampled && !with("00", trace, span, "02").expect("a parent").1);
        assert_eq!(Parent::of_tag(&parent.tag()), parent);
        assert!(with("01", trace, span, "01-more").is_some_and(|(_, is_sampled)| is_sampled));
        for wrong in [
            with("ff", trace, span, "01"),
            with("00", trace, span, "01-more"),
            with("01", trace, span, "01more"),
            with("00", &zeros, span, "01"),
            with("00", trace, &zeros[..16], "01"),
            with("00", &trace.to_uppercase(), span, "01"),
            with("00", &trace[1..], span, "001"),
            with("0", trace, span, "011"),
            with("00", trace, span, "0"),
            Parent::parse(b""),
            Parent::parse(&[b'-'; 55]),
        ] {
            assert_eq!(wrong, None);
        }
        let mut headers = HeaderMap::new();
        let line = format!("00-{trace}-{span}-01");
        headers.append(FIELD, line.parse().expect("a value"));
        assert!(Parent::of(&headers).is_some());
        headers.append(FIELD, line.parse().expect("a value"));
        assert!(Parent::of(&headers).is_none(), "two are none");
    }
}
