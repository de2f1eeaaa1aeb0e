//! One lease request to the authority of a fleet: sent by the root, and its response.
//!
//! Invariant: a response is read whole or not at all, in memory that is bounded; a failure of the
//! host's own circuit breaker is distinguished from an authority that does not respond.
//! Deliberately absent: the content of lease requests, and the use of responses.

use std::rc::Rc;

use tollgate_storage::{LeaseQuestion, LeaseReply, Leased, MAX_LEASE_MESSAGE, read_leased};

use crate::active_policy::ActivePolicy;
use crate::fleet::spending::RequestedKey;
use crate::host::calls::{HttpCall, NotSent};
use crate::host::proxy::Proxy;
use crate::wire::header_map::HeaderMapWriter;

/// Envoy's text next to the status where the circuit breaker of a cluster denied a request.
const OVERLOADED: &str = "x-envoy-overloaded";

/// A lease request in flight.
pub struct LeaseRequest<H> {
    /// The policy that it was sent under.
    pub policy: Rc<ActivePolicy<H>>,
    /// The keys in it.
    pub keys: Vec<RequestedKey>,
    /// The stream that waits for the response, if it still does.
    pub stream: Option<u32>,
}

/// A lease request that was not sent.
pub struct UnsentLeaseRequest {
    /// The keys in it.
    pub keys: Vec<RequestedKey>,
    /// As many as the cluster takes are in flight; the authority may be reachable.
    pub is_overloaded: bool,
}

/// The result of a lease request.
pub enum ResponseContent {
    /// A result for each key.
    Results(Vec<KeyResult>),
    /// The cluster's circuit breaker rejected it, or one on the way did; the authority may be
    /// reachable.
    Overloaded,
    /// Nothing usable.
    Unusable,
}

/// The result for one key in the authority's response.
pub enum KeyResult {
    /// The leases, and the reply to the key's costs.
    Decided(Vec<Leased>, Vec<u8>),
    /// Nothing usable.
    Failed,
    /// The authority has too many requests in flight.
    Overloaded,
}

impl KeyResult {
    /// The result in `reply`.
    pub fn of(reply: &LeaseReply) -> Self {
        match reply {
            LeaseReply::Decided(bytes) => match read_leased(bytes) {
                Ok((leased, rest)) => Self::Decided(leased, rest.to_vec()),
                Err(_) => Self::Failed,
            },
            LeaseReply::Failed => Self::Failed,
            LeaseReply::Overloaded => Self::Overloaded,
        }
    }
}

impl<H: Proxy> LeaseRequest<H> {
    /// Sends a lease request from the context of `root`, which outlives the stream. The stream
    /// `back_to`, if any, is the current context before and after.
    ///
    /// # Errors
    /// The host does not send it.
    pub fn send(&self, host: &H, root: u32, back_to: Option<u32>) -> Result<u32, NotSent> {
        let fleet = self.policy.config.fleet.as_ref().ok_or(NotSent::Refused)?;
        let mut fields = HeaderMapWriter::default();
        for (name, value) in [
            (":method", "POST"),
            (":path", &*fleet.path),
            (":authority", &*fleet.authority),
            ("content-type", "application/octet-stream"),
        ] {
            fields.push(name, value.as_bytes());
        }
        if let Some(token) = &fleet.token {
            fields.push("authorization", format!("Bearer {token}").as_bytes());
        }
        let body = self.body();
        let timeout_ms = u32::try_from(fleet.timeout.as_millis_ceil()).unwrap_or(u32::MAX);
        if !host.enter(root) {
            return Err(NotSent::Refused);
        }
        let (cluster, headers) = (&*fleet.cluster, &*fields.finish());
        let (body, most_body) = (&body, MAX_LEASE_MESSAGE);
        let call = host.call(&HttpCall { cluster, headers, body, timeout_ms, most_body });
        if let Some(stream) = back_to {
            host.enter(stream);
        }
        call
    }

    fn body(&self) -> Vec<u8> {
        let (policy, keys) = (self.policy.fleet_fingerprint, self.keys.iter());
        let table = self.policy.node.as_ref().map_or(0, |node| node.table());
        let keys = keys.map(|requested| requested.key.clone()).collect();
        let mut body = Vec::new();
        LeaseQuestion { policy, table, keys }.write(&mut body);
        body
    }

    /// The result in the response that is being handed over, whose body has `len` bytes.
    pub fn answers(&self, host: &H, len: usize) -> ResponseContent {
        let status = host.answer_header(":status");
        if status.as_deref() == Some(b"503") && host.answer_header(OVERLOADED).is_some() {
            return ResponseContent::Overloaded;
        }
        let is_good = status.as_deref() == Some(b"200");
        let body = is_good.then(|| host.answer_body(len.min(MAX_LEASE_MESSAGE)));
        let replies = body.and_then(|body| LeaseReply::read(&body).ok());
        match replies.filter(|replies| replies.len() == self.keys.len()) {
            Some(replies) => ResponseContent::Results(replies.iter().map(KeyResult::of).collect()),
            None => ResponseContent::Unusable,
        }
    }
}
