//! The facts for the policy of a request that a gRPC call describes.
//!
//! Invariant: the caller is trusted, as with `POST /check`; values are bytes, as they came.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::messages::authorization::CheckRequest;
use crate::messages::rate_limit::{DescriptorLimit, RateLimitRequest};
use tollgate_core::Span;
use tollgate_policy::{Entry, Facts, RequestedLimit};

/// One descriptor of a call. It has no method, host, header or address, so no rule that reads one
/// of these applies to it; its path is empty, as `/` and `/**` are.
pub(super) struct Descriptor<'a> {
    pub(super) request: &'a RateLimitRequest<'a>,
    /// Its index.
    pub(super) index: usize,
}

impl Descriptor<'_> {
    /// Entry number `index` of descriptor number `of`. Every descriptor has entries.
    fn entry_of(&self, of: usize, index: usize) -> Option<Entry<'_>> {
        let (key, value) = *self.request.descriptors.get(of)?.entries.get(index)?;
        Some(Entry::new(key, value))
    }
}

impl Facts for Descriptor<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        Cow::default()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        Cow::default()
    }

    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        Some(self.request.domain.into())
    }

    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        self.entry_of(self.index, index)
    }

    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        let before = other < self.index;
        self.entry_of(if before { other } else { other.saturating_add(1) }, index)
    }

    fn limit(&self) -> Option<RequestedLimit> {
        requested(self.request.descriptors.get(self.index)?.limit.as_ref()?)
    }

    fn hits(&self) -> Option<u64> {
        self.request.descriptors.get(self.index).map(|descriptor| descriptor.hits)
    }
}

/// The limit of a descriptor; `None` where its unit has no fixed length.
pub(super) fn requested(limit: &DescriptorLimit) -> Option<RequestedLimit> {
    let window = Span::from_secs(limit.window()?.as_secs());
    Some(RequestedLimit { units: limit.requests_per_unit, window })
}

/// A request that Envoy's external authorization asks about.
pub(super) struct Authorized<'a>(pub(super) CheckRequest<'a>);

impl Authorized<'_> {
    /// The values of the lines of this name, joined by `, ` in their order.
    fn lines(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let is_named = |line: &&(&[u8], &[u8])| line.0.eq_ignore_ascii_case(name.as_bytes());
        let mut lines = self.0.headers.iter().filter(is_named).map(|(_, value)| *value);
        let first = lines.next()?;
        let mut joined = Cow::Borrowed(first);
        for line in lines {
            let joined = joined.to_mut();
            joined.extend(b", ");
            joined.extend(line);
        }
        Some(joined)
    }

    /// An attribute, or the pseudo-header with the same meaning.
    fn attribute<'s>(&'s self, attribute: &'s [u8], pseudo: &str) -> Option<Cow<'s, [u8]>> {
        match attribute {
            [] => self.lines(pseudo),
            some => Some(some.into()),
        }
    }
}

impl Facts for Authorized<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.attribute(self.0.method, ":method").unwrap_or_default()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.attribute(self.0.path, ":path").unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        if name == "host" {
            // Envoy calls it `:authority` in every version of HTTP.
            return self.attribute(self.0.host, ":authority").or_else(|| self.lines(name));
        }
        self.lines(name)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.0.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(request: &Authorized<'_>, name: &str) -> Option<Vec<u8>> {
        request.header(name).map(Cow::into_owned)
    }

    #[test]
    fn those_beside_are_all_others_in_their_order() {
        use crate::messages::rate_limit::Descriptor as Of;
        let of = |value: &'static [u8]| Of { entries: vec![(b"key", value)], hits: 3, limit: None };
        let descriptors = vec![of(b"a"), of(b"b"), of(b"c")];
        let request = RateLimitRequest { domain: b"web", descriptors };
        let value = |entry: Option<Entry<'_>>| entry.map(|entry| entry.value.into_owned());
        for (index, others) in [(0, [b"b", b"c"]), (1, [b"a", b"c"]), (2, [b"a", b"b"])] {
            let facts = Descriptor { request: &request, index };
            assert_eq!(value(facts.entry(0)), Some(request.descriptors[index].entries[0].1.into()));
            for (other, expected) in others.into_iter().enumerate() {
                assert_eq!(value(facts.beside(other, 0)), Some(expected.to_vec()), "{index}");
            }
            assert_eq!(
                (facts.entry(1), facts.beside(0, 1), facts.beside(2, 0)),
                (None, None, None)
            );
            assert_eq!((facts.domain().as_deref(), facts.hits()), (Some(&b"web"[..]), Some(3)));
        }
    }

    #[test]
    fn every_line_counts_and_attributes_go_before_pseudo_headers() {
        let headers: Vec<(&[u8], &[u8])> = vec![
            (b":authority", b"a.example"),
            (b"X-Key", b"one"),
            (b"x-key", b"two"),
            (b":path", b"/from-the-header"),
        ];
        let mut request = Authorized(CheckRequest { headers, ..CheckRequest::default() });
        assert_eq!(header(&request, "x-key").as_deref(), Some(&b"one, two"[..]));
        assert_eq!(header(&request, "host").as_deref(), Some(&b"a.example"[..]));
        assert_eq!((&*request.target(), &*request.method()), (&b"/from-the-header"[..], &b""[..]));
        assert_eq!(header(&request, "x-none"), None);
        (request.0.host, request.0.path) = (b"b.example", b"/a");
        assert_eq!(header(&request, "host").as_deref(), Some(&b"b.example"[..]));
        assert_eq!(&*request.target(), b"/a");
    }
}
