//! Lease requests that have no response: the deadline is over, or the host could not send them.
//!
//! Invariant: each ends once, and its client request continues. Deliberately absent: how.

use tollgate_core::Timestamp;

use super::{AuthorityClient, POLL_INTERVAL};
use crate::fleet::lease_request::{KeyResult, LeaseRequest};
use crate::host::proxy::Proxy;
use crate::observability::metrics::LeaseEvent;

impl<H: Proxy> AuthorityClient<H> {
    /// A lease request without a response after its deadline, treated as failed. Otherwise it would
    /// hold its client request, its place among the calls and the circuit breaker forever. Where
    /// another thread sends it, that one is too busy, which shows nothing about the authority.
    pub fn take_overdue(&self, now: Timestamp) -> Option<(LeaseRequest<H>, Vec<KeyResult>)> {
        let sent = self.with(|state| {
            let call = *state.calls.iter().find(|(_, (until, _))| *until <= now)?.0;
            state.calls.remove(&call)
        });
        let (_, sent) = sent.flatten()?;
        let is_shared = H::SHARES_LEASE_WORK;
        Some(if is_shared { self.overloaded(sent, now) } else { self.failed(sent, now) })
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

    /// The host, or the thread that sends it, had no room for it.
    pub(super) fn overloaded(
        &self,
        sent: LeaseRequest<H>,
        now: Timestamp,
    ) -> (LeaseRequest<H>, Vec<KeyResult>) {
        self.with(|state| {
            state.circuit_breaker.record_overload();
            state.overloaded_until = now.saturating_add(POLL_INTERVAL);
        });
        let full = sent.keys.iter().map(|_| KeyResult::Overloaded).collect();
        (sent, full)
    }

    /// The authority did not respond.
    pub(super) fn failed(
        &self,
        sent: LeaseRequest<H>,
        now: Timestamp,
    ) -> (LeaseRequest<H>, Vec<KeyResult>) {
        self.with(|state| state.circuit_breaker.record_failure(now));
        sent.policy.count_lease_event(LeaseEvent::Failed, 1);
        let nothing = sent.keys.iter().map(|_| KeyResult::Failed).collect();
        (sent, nothing)
    }
}
