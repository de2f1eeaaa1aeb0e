//! The lease work of a thread that is not called while it has no client requests: another thread
//! continues it, so that responses are recorded and unspent units go back before they end.
//!
//! Invariant: no client request waits for any of it, and each part belongs to one thread at a time.
//! Deliberately absent: when it is handed over.

use std::rc::Rc;

use tollgate_core::Timestamp;

use super::{AuthorityClient, LATE_AFTER};
use crate::active_policy::ActivePolicy;
use crate::fleet::lease_request::LeaseRequest;
use crate::fleet::spending::RequestedKey;
use crate::host::proxy::Proxy;
use crate::host::timer::TimerUser;

/// Lease requests in flight, and leases to check.
pub struct LeaseWork {
    /// The number, deadline, policy and keys of each.
    calls: Vec<(u32, Timestamp, u64, Vec<RequestedKey>)>,
    /// The time, policy and key of each.
    checks: Vec<(Timestamp, u64, RequestedKey)>,
}

impl LeaseWork {
    /// The numbers of the calls, whose responses come to the thread that continues the work.
    pub fn calls(&self) -> impl Iterator<Item = u32> {
        self.calls.iter().map(|(call, ..)| *call)
    }
}

impl<H: Proxy> AuthorityClient<H> {
    /// Takes all work out; `None` when there is none, or while client requests wait.
    pub fn take_work(&self) -> Option<LeaseWork> {
        let taken = self.with(|state| {
            if state.waiters.len() > 0 {
                return None;
            }
            let (mut calls, mut checks) = (Vec::new(), Vec::new());
            while let Some((call, (until, sent))) = state.calls.pop_first() {
                let call = u32::try_from(call).unwrap_or_default();
                // No client waits for it any more.
                let until = until.saturating_add(LATE_AFTER);
                calls.push((call, until, sent.policy.fleet_fingerprint, sent.keys));
            }
            while let Some((at, policy, key)) = state.check_schedule.pop_first() {
                checks.push((at, policy.fleet_fingerprint, key));
            }
            if calls.is_empty() && checks.is_empty() {
                return None;
            }
            // Whether a response came shows another thread.
            state.circuit_breaker.record_overload();
            (state.timeout_at, state.poll_at) = (None, None);
            Some(LeaseWork { calls, checks })
        });
        let work = taken.flatten()?;
        self.timer.set(TimerUser::Leases, None, self.host.now().unwrap_or_default());
        Some(work)
    }

    /// Continues work of another thread, under the policies of this one.
    pub fn adopt(&self, work: LeaseWork, policies: &[Rc<ActivePolicy<H>>]) {
        let of = |fingerprint: u64| {
            policies.iter().find(|it| it.has_fleet() && it.fleet_fingerprint == fingerprint)
        };
        for (call, until, fingerprint, keys) in work.calls {
            let Some(policy) = of(fingerprint) else { continue };
            let keys = keys.into_iter().filter_map(|key| placed(policy, key)).collect();
            let sent = LeaseRequest { policy: Rc::clone(policy), keys, stream: None };
            self.with(|state| state.calls.insert(call.into(), (until, sent)));
        }
        for (at, fingerprint, key) in work.checks {
            let Some(policy) = of(fingerprint) else { continue };
            if let Some(key) = placed(policy, key) {
                self.schedule_check(Some(at), policy, key);
            }
        }
    }
}

/// The key with the number that its group has in this policy: other rules may be around it.
fn placed<H: Proxy>(policy: &ActivePolicy<H>, mut key: RequestedKey) -> Option<RequestedKey> {
    let mut groups = policy.config.policy.groups().iter();
    key.holdings_key.group = groups.position(|group| group.identity() == key.key.group)?;
    Some(key)
}
