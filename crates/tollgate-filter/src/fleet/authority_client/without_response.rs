//! Lease requests that have no response: the deadline is over, or the host could not send them.
//!
//! Invariant: each ends once, and its client request continues. Deliberately absent: how.

use tollgate_core::Timestamp;

use super::{AuthorityClient, POLL_INTERVAL};
use crate::fleet::lease_request::{KeyResult, LeaseRequest};
use crate::host::proxy::Proxy;

impl<H: Proxy> AuthorityClient<H> {
    /// A lease request without a response after its deadline, treated as failed. Otherwise it would
    /// hold its client request, its place among the calls and the circuit breaker forever.
    pub fn take_overdue(&self, now: Timestamp) -> Option<(LeaseRequest<H>, Vec<KeyResult>)> {
        let sent = self.with(|state| {
            let call = *state.calls.iter().find(|(_, (until, _))| *until <= now)?.0;
            state.calls.remove(&call)
        });
        sent.flatten().map(|(_, sent)| self.failed(sent, now))
    }

    /// The lease request of a call for which the host had no room after all.
    pub fn take_unsent(&self, call: u32, now: Timestamp) -> Option<LeaseRequest<H>> {
        let sent = self.with(|state| {
            let (_, sent) = state.calls.remove(&call.into())?;
            state.circuit_breaker.record_overload();
            state.overloaded_until = now.saturating_add(POLL_INTERVAL);
            Some(sent)
        });
        sent.flatten()
    }
}
