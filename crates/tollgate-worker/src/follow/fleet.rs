//! Under which policies an isolate answers nodes of a fleet, and what names the fleet's counts.
//!
//! Invariant: these are today's policy and, for a while, the one before. An isolate that began
//! after a change learns the one before from the policy object, when a node first asks under a
//! policy that it does not know: else some isolates would answer a node that others refuse. That is
//! done once for each version, and nobody makes an isolate ask after the policy in force more than
//! once a second. Deliberately absent: asking; that is `leasing`'s.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::Policy;
use tollgate_service::lease::{FleetPolicies, Lease, Refused};

use crate::active::Active;
use crate::runtime::js;

/// After a node asked under a policy that nobody knew, the next one does not make us ask for so
/// long.
const AGAIN_AFTER: Span = Span::from_secs(1);

/// What is known of the fleet's policies.
#[derive(Default)]
pub(crate) struct Fleet {
    /// Not borrowed across an await.
    known: RefCell<FleetPolicies>,
    /// The newest of them.
    newest: RefCell<Option<Rc<Active>>>,
    /// When a node last asked under one that was not found.
    missed_at: Cell<Option<Timestamp>>,
    /// The version of which the one before was asked for.
    asked_before: Cell<u64>,
}

impl Fleet {
    /// This is the policy in force.
    pub(crate) fn follow(&self, active: &Rc<Active>) {
        self.follow_since(active, js::now());
    }

    /// The same, since `changed_at`: who learns of a change late answers nodes of the policy before
    /// no longer than others do.
    pub(crate) fn follow_since(&self, active: &Rc<Active>, changed_at: Timestamp) {
        let mut newest = self.newest.borrow_mut();
        if newest.as_ref().is_some_and(|known| Rc::ptr_eq(known, active)) {
            return;
        }
        self.known.borrow_mut().follow(&active.policy, changed_at);
        *newest = Some(Rc::clone(active));
    }

    /// Reads a node's question under the policies that are known here.
    pub(crate) fn read(&self, content_type: Option<&str>, body: &[u8]) -> Result<Lease, Refused> {
        Lease::read(&self.known.borrow(), js::now(), content_type, body)
    }

    /// The policy before `version`, which is answered until then, or that there is none to answer.
    pub(crate) fn learn_before(&self, version: u64, before: Option<(Policy, Timestamp)>) {
        if let Some((policy, end)) = before {
            self.known.borrow_mut().follow_before(policy, end);
        }
        self.asked_before.set(version);
    }

    /// True when the one before `version` was asked for.
    pub(crate) fn knows_before(&self, version: u64) -> bool {
        version == 0 || self.asked_before.get() == version
    }

    /// True when a node was refused a moment ago, so that nothing is asked after for another one.
    pub(crate) fn has_missed(&self) -> bool {
        let now = js::now();
        let is_recent = |at: Timestamp| at <= now && now < at.saturating_add(AGAIN_AFTER);
        self.missed_at.get().is_some_and(is_recent)
    }

    /// A node was refused although the policies were asked after.
    pub(crate) fn miss(&self) {
        self.missed_at.set(Some(js::now()));
    }
}
