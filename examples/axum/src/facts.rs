//! The facts about an axum request that a policy may read.
//!
//! Invariant: values are passed on as the received bytes; the policy parses them. Deliberately
//! absent: routes, countries and verified claims. A service that knows them adds the method of
//! [`Facts`].

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, request::Parts};
use tollgate::{Facts, ResponseFacts};

/// A request's head and the peer address of its connection.
#[derive(Clone, Copy, Debug)]
pub struct HttpFacts<'a> {
    /// The head.
    pub head: &'a Parts,
    /// From [`axum::extract::ConnectInfo`]; clients cannot influence it.
    pub peer: SocketAddr,
}

impl Facts for HttpFacts<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.head.method.as_str().as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        let target = self.head.uri.path_and_query();
        target.map_or("/", |target| target.as_str()).as_bytes().into()
    }

    /// The authority of an absolute target goes before the Host field (RFC 9112, 3.2.2).
    fn host(&self) -> Cow<'_, [u8]> {
        match self.head.uri.authority() {
            Some(authority) => authority.as_str().as_bytes().into(),
            None => self.header("host").unwrap_or_default(),
        }
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        joined(&self.head.headers, name)
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer.ip())
    }
}

/// The headers of a response, which may show the cost of its request. The body is still to come:
/// costs that only its end shows stay at their estimates here.
#[derive(Clone, Copy, Debug)]
pub struct HttpResponse<'a>(pub &'a HeaderMap);

impl ResponseFacts for HttpResponse<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        joined(self.0, name)
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// The lines of a header, joined by commas.
fn joined<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = lines.next()?;
    Some(lines.fold(Cow::Borrowed(first), |joined, line| {
        Cow::Owned([joined.as_ref(), line].join(&b", "[..]))
    }))
}
