//! One question to the authority of a fleet: sent by the root, and what an answer says.
//!
//! Invariant: an answer is read whole or not at all, in memory that is bounded; what the host says
//! of its own circuit breaker is told apart from an authority that does not answer. Deliberately
//! absent: what is asked, and what becomes of an answer.

use std::rc::Rc;

use tollgate_policy::{LeaseReply, Leased, MAX_LEASE_MESSAGE, read_leased};

use crate::active_policy::ActivePolicy;
use crate::fleet::spending::AskedKey;
use crate::host::calls::{HttpCall, NotSent};
use crate::host::proxy::Proxy;
use crate::wire::header_map::HeaderMapWriter;

/// What Envoy says beside the status where the circuit breaker of a cluster refused a request.
const OVERLOADED: &str = "x-envoy-overloaded";

/// A question under way.
pub struct Sent<H> {
    /// The policy that it was asked under.
    pub policy: Rc<ActivePolicy<H>>,
    /// What was asked.
    pub keys: Vec<AskedKey>,
    /// The stream that waits for the answer, if it still does.
    pub stream: Option<u32>,
}

/// A question that was not sent.
pub struct Unsent {
    /// What was to be asked.
    pub keys: Vec<AskedKey>,
    /// As many as the cluster takes are under way: nobody is away.
    pub is_full: bool,
}

/// What came back.
pub enum Answers {
    /// This about each key.
    Each(Vec<KeyAnswer>),
    /// The cluster's circuit breaker refused it, or one on the way: nobody is away.
    Full,
    /// Nothing that can be used.
    Nothing,
}

/// What an answer of the authority says about one key.
pub enum KeyAnswer {
    /// What was leased, and the reply to its costs.
    Decided(Vec<Leased>, Vec<u8>),
    /// Nothing that can be used.
    Failed,
    /// Too much is under way there.
    Overloaded,
}

impl KeyAnswer {
    /// What `reply` says.
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

impl<H: Proxy> Sent<H> {
    /// Asks, in the name of `root`, which outlives the stream; calls are about the stream
    /// `back_to` before and after, if about one.
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
        let body = self.policy.question(self.keys.iter());
        let timeout_ms = u32::try_from(fleet.timeout.as_millis_ceil()).unwrap_or(u32::MAX);
        if !host.enter(root) {
            return Err(NotSent::Refused);
        }
        let (cluster, headers) = (&*fleet.cluster, &*fields.finish());
        let call = host.call(&HttpCall { cluster, headers, body: &body, timeout_ms });
        if let Some(stream) = back_to {
            host.enter(stream);
        }
        call
    }

    /// What the answer says that is being handed over, whose body has `len` bytes.
    pub fn answers(&self, host: &H, len: usize) -> Answers {
        let status = host.answer_header(":status");
        if status.as_deref() == Some(b"503") && host.answer_header(OVERLOADED).is_some() {
            return Answers::Full;
        }
        let is_good = status.as_deref() == Some(b"200");
        let body = is_good.then(|| host.answer_body(len.min(MAX_LEASE_MESSAGE)));
        let replies = body.and_then(|body| LeaseReply::read(&body).ok());
        match replies.filter(|replies| replies.len() == self.keys.len()) {
            Some(replies) => Answers::Each(replies.iter().map(KeyAnswer::of).collect()),
            None => Answers::Nothing,
        }
    }
}
