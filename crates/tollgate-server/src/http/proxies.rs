//! Proxies that ask about the requests which they hold: who of them may.
//!
//! Invariant: who asks says whose request it is, so who may is who may ask `/check`. Deliberately
//! absent: what is asked, and what is answered; that is `forward`'s.

use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use tollgate_service::{Answer, Api, Unauthorized};

use super::Http;
use crate::forward::{self, Shape};
use crate::peer::Peer;
use crate::traces;

impl Http {
    /// The answer to a proxy that asks about the request that it holds.
    pub(super) async fn forward(
        &self,
        peer: Peer,
        head: &Parts,
        shape: Shape,
        behind: &str,
    ) -> Answer {
        if !shape.is_spoken(self.callers.protocols) {
            return forward::off(shape);
        }
        if let Some(refused) = self.refuses_proxy(peer, &head.headers) {
            self.gate.note_unauthorized(refused);
            return forward::stranger();
        }
        traces::admitted();
        forward::answer(&self.gate, shape, head, behind).await
    }

    /// Who may ask is who may ask `/check`; but `authorization` is the client's own here, so the
    /// token stands in a field of ours.
    fn refuses_proxy(&self, peer: Peer, headers: &HeaderMap) -> Option<Unauthorized> {
        let mut given = headers.get_all(forward::TOKEN).iter();
        let (first, second) = (given.next(), given.next());
        let is_trusted = match (&self.callers.token, first, second) {
            _ if self.callers.trusts(peer) => true,
            (Some(token), Some(given), None) => token.is(given.as_bytes().trim_ascii()),
            _ => false,
        };
        let status = if self.callers.token.is_some() { 401 } else { 403 };
        let answer = || Answer::problem(status, "", "");
        if is_trusted { None } else { Unauthorized::of(Api::Check, &answer(), first.is_some()) }
    }
}
