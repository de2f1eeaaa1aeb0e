//! The allowed callers: a token, a certificate or an address decides.
//!
//! Invariant: a caller names the client of a request, so a proxy that asks about the request that
//! it holds needs the same credentials as a caller of `/check`. A caller without a token is never a
//! page in a browser on a trusted machine. Deliberately absent: the formats of request and
//! response.

use hyper::header::{AUTHORIZATION, HeaderMap, ORIGIN};
use hyper::http::request::Parts;
use tollgate_service::{Api, ApiResponse, Unauthorized, is_media_type};

use super::{Http, field};
use crate::forward::{self, Shape};
use crate::listen::peer::Peer;
use crate::traces;

impl Http {
    /// Denies a caller that has no token, no certificate and no listed address, and a caller
    /// without a token that is a page in a browser.
    pub(crate) fn authorize(&self, peer: Peer, headers: &HeaderMap) -> Result<(), ApiResponse> {
        if self.callers.trusts(peer) {
            if headers.contains_key(ORIGIN) {
                let detail = "a page in a browser may not ask, and `origin` is what one sends: set \
                              check_token for a caller that is none";
                return Err(ApiResponse::problem(403, "Forbidden", detail));
            }
            traces::admitted();
            return Ok(());
        }
        match &self.callers.token {
            Some(token) if token.authorizes(field(headers, "authorization").as_deref()) => {
                traces::admitted();
                Ok(())
            }
            Some(_) => {
                let detail = "send \"authorization: Bearer\" with the token of this service";
                let answer = ApiResponse::problem(401, "Unauthorized", detail);
                Err(answer.with("www-authenticate", "Bearer"))
            }
            None => {
                let detail = "a caller names the client of a request, and this caller may not: set check_token, \
                              or list its address in trusted_callers, or its certificate in tls_clients";
                Err(ApiResponse::problem(403, "Forbidden", detail))
            }
        }
    }

    /// Denies content types other than JSON to callers that need no token: a page of another site
    /// can send such types without asking.
    pub(super) fn is_json(&self, peer: Peer, headers: &HeaderMap) -> Result<(), ApiResponse> {
        let given = field(headers, "content-type");
        let is_json = given.is_none_or(|given| is_media_type(&given, "application/json"));
        if is_json || !self.callers.trusts(peer) {
            return Ok(());
        }
        let detail = "send \"content-type: application/json\"";
        Err(ApiResponse::problem(415, "Unsupported Media Type", detail))
    }

    /// Counts a response that denies a token or an address.
    pub(crate) fn note_refused(&self, api: Api, answer: &ApiResponse, headers: &HeaderMap) {
        let has_token = headers.contains_key(AUTHORIZATION);
        if let Some(refused) = Unauthorized::of(api, answer, has_token) {
            self.gate.note_unauthorized(refused);
        }
    }

    /// The response to a proxy that asks about the request that it holds.
    pub(super) async fn forward(
        &self,
        peer: Peer,
        head: &Parts,
        shape: Shape,
        behind: &str,
    ) -> ApiResponse {
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

    /// Allows the callers of `/check`. Here `authorization` is the client's own, so the caller's
    /// token is in a field of ours.
    fn refuses_proxy(&self, peer: Peer, headers: &HeaderMap) -> Option<Unauthorized> {
        let mut given = headers.get_all(forward::TOKEN).iter();
        let (first, second) = (given.next(), given.next());
        let is_trusted = match (&self.callers.token, first, second) {
            _ if self.callers.trusts(peer) => true,
            (Some(token), Some(given), None) => token.is(given.as_bytes().trim_ascii()),
            _ => false,
        };
        let status = if self.callers.token.is_some() { 401 } else { 403 };
        let answer = || ApiResponse::problem(status, "", "");
        if is_trusted { None } else { Unauthorized::of(Api::Check, &answer(), first.is_some()) }
    }
}
