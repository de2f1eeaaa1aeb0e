//! The objects that count: their names, and what is known of them and of their failures in this
//! isolate.
//!
//! Invariant: a failure is counted, and logged. Deliberately absent: the calls of a request; those
//! are in `charging`.

use std::cell::RefCell;

use tollgate_policy::{Disposition, Outdated, Partition, Plan, Policy};
use tollgate_service::lease::key_name;
use tollgate_service::log::Sampler;
use tollgate_service::metrics::Counters;
use wasm_bindgen::JsValue;

use crate::counts::denials::CachedDenials;
use crate::counts::lines::Lines;
use crate::counts::object_name::{name_of, object_hash};
use crate::operate::tally::{FailureKind, Tally};
use crate::runtime::js::{self, KeyObject};

/// The objects, and how they are named.
pub(crate) struct Objects {
    pub(crate) namespace: JsValue,
    pub(crate) hash_key: Vec<u8>,
    /// The secret that names the counts of a fleet; none where no node leases.
    pub(crate) fleet_secret: Option<[u8; 16]>,
    /// An object that does not reply for this long has failed.
    pub(crate) timeout_ms: u32,
    /// Denies requests without calling any object.
    pub(crate) denials: CachedDenials,
    /// Not borrowed across an await.
    pub(crate) tally: RefCell<Tally>,
    /// The requests that wait.
    pub(crate) lines: Lines,
    pub(crate) counters: Counters,
    /// Selects the events to log. Not borrowed across an await.
    pub(crate) sampler: RefCell<Sampler>,
}

/// Partitions, and their objects.
pub(crate) type Keys = Vec<(usize, KeyObject)>;

impl Objects {
    /// The objects of all partitions, or any shard of each. They are given up after the time-out,
    /// which starts now.
    pub(crate) fn of_all(&self, policy: &Policy, plan: &Plan) -> Keys {
        let time = (self.timeout_ms, js::now());
        let of = |partition: Partition<'_>| {
            let name = self.name_of(policy, partition.key());
            let shards = partition.shards(policy);
            (partition.index(), js::key_object(&self.namespace, &name, shards, time))
        };
        plan.partitions().map(of).collect()
    }

    /// The name of the object that counts `key` under `policy`.
    pub(crate) fn name_of(&self, policy: &Policy, key: &[u8]) -> String {
        name_of(&self.hash_of(policy, key))
    }

    /// The same name as bytes.
    pub(crate) fn hash_of(&self, policy: &Policy, key: &[u8]) -> [u8; 32] {
        object_hash(&self.hash_key, &key_name(policy, self.fleet_secret, key))
    }

    /// Counts the decision of `on_failure`, if it decided.
    pub(crate) fn report_failures(&self, policy: &Policy, plan: &Plan) {
        if let Some(Outdated::Policy(_)) = plan.outdated() {
            self.note(FailureKind::Behind, "");
        }
        if plan.has_failed() {
            let outcome = plan.outcome(policy);
            match outcome.final_disposition() {
                Disposition::Allow | Disposition::Delay(_) => {
                    self.note(FailureKind::LetThrough, "");
                }
                Disposition::Deny { .. } | Disposition::Retry(_) => {
                    if outcome.is_failure() {
                        self.note(FailureKind::Refused, "");
                    }
                }
            }
        }
        self.report();
    }

    /// Counts a failure; `word` is the platform's error message, if any.
    pub(crate) fn note(&self, kind: FailureKind, word: &str) {
        if let Some(event) = kind.event() {
            self.counters.add(event);
        }
        self.tally.borrow_mut().note(kind, word);
    }

    /// Logs the latest failures, if it is time.
    pub(crate) fn report(&self) {
        let mut tally = self.tally.borrow_mut();
        if let Some(line) = tally.is_due.then(|| tally.line(js::now())).flatten() {
            js::fail(&line);
        }
    }
}
