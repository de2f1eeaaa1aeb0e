//! The policies under which an isolate responds to nodes of a fleet.
//!
//! Invariant: these are today's policy and, for a while, the one before. An isolate that started
//! after a change learns the one before from the policy object, when a node first sends a request
//! under a policy that the isolate does not know; otherwise some isolates would respond to a node
//! and others would not. That is done once per version, and nodes cannot make an isolate ask for
//! the policy in force more than once a second. Deliberately absent: calling the policy object;
//! that is in `leasing`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::Policy;
use tollgate_service::lease::{FleetPolicies, Lease, Refused};

use crate::active::Active;
use crate::runtime::js;

/// After a node sent a request under an unknown policy, the next such request does not make the
/// isolate ask for this long.
const AGAIN_AFTER: Span = Span::from_secs(1);

/// The fleet's policies that are known here.
#[derive(Default)]
pub(crate) struct Fleet {
    /// Not borrowed across an await.
    known: RefCell<FleetPolicies>,
    /// The newest of them.
    newest: RefCell<Option<Rc<Active>>>,
    /// When a node last sent a request under a policy that was not found.
    missed_at: Cell<Option<Timestamp>>,
    /// The version whose predecessor was asked for.
    asked_before: Cell<u64>,
}

impl Fleet {
    /// Follows `active`, the policy in force.
    pub(crate) fn follow(&self, active: &Rc<Active>) {
        self.follow_since(active, js::now());
    }

    /// The same, in force since `changed_at`: an isolate that learns of a change late responds to
    /// nodes of the policy before no longer than others do.
    pub(crate) fn follow_since(&self, active: &Rc<Active>, changed_at: Timestamp) {
        let mut newest = self.newest.borrow_mut();
        if newest.as_ref().is_some_and(|known| Rc::ptr_eq(known, active)) {
            return;
        }
        self.known.borrow_mut().follow(&active.policy, changed_at);
        *newest = Some(Rc::clone(active));
    }

    /// Reads a node's request under the policies that are known here.
    pub(crate) fn read(&self, content_type: Option<&str>, body: &[u8]) -> Result<Lease, Refused> {
        Lease::read(&self.known.borrow(), js::now(), content_type, body)
    }

    /// Records the policy before `version`, which stays valid for nodes until the given time, or
    /// that there is none.
    pub(crate) fn learn_before(&self, version: u64, before: Option<(Policy, Timestamp)>) {
        if let Some((policy, end)) = before {
            self.known.borrow_mut().follow_before(policy, end);
        }
        self.asked_before.set(version);
    }

    /// True when the policy before `version` was asked for.
    pub(crate) fn knows_before(&self, version: u64) -> bool {
        version == 0 || self.asked_before.get() == version
    }

    /// True when a node's request was rejected a moment ago, so that the policy object is not
    /// called for another one.
    pub(crate) fn has_missed(&self) -> bool {
        let now = js::now();
        let is_recent = |at: Timestamp| at <= now && now < at.saturating_add(AGAIN_AFTER);
        self.missed_at.get().is_some_and(is_recent)
    }

    /// Records that a node's request was rejected although the policies were asked for.
    pub(crate) fn miss(&self) {
        self.missed_at.set(Some(js::now()));
    }
}
