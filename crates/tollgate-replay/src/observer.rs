//! The observer, which receives every request that a rule counts.
//!
//! Invariant: a request is reported once for each rule that counts it, in the order of the replay,
//! and never before it is decided.

use tollgate_core::Timestamp;

/// One request as one rule counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRequest {
    /// The index of the rule in `Policy::rules`.
    pub rule: usize,
    /// The index of the quotas in `Policy::quota_sets`: the rule's own or a tier's.
    pub quota_set: usize,
    /// The keyed hash of the key that it counts by.
    pub key: u64,
    /// The time of the request.
    pub at: Timestamp,
    /// Its cost, in quota units; 0 when its response is not charged.
    pub cost: u64,
    /// True when a quota of the rule had no room for it, whether the rule is enforced or not.
    pub is_over: bool,
}

/// An observer of a replay.
pub trait Observer {
    /// A rule counts a request.
    fn counted(&mut self, request: CountedRequest);

    /// True when it needs a label for this key.
    fn wants_label(&self, quota_set: usize, key: u64) -> bool {
        let _ = (quota_set, key);
        false
    }

    /// The label of a key, as reports show it.
    fn labelled(&mut self, quota_set: usize, key: u64, label: String) {
        let _ = (quota_set, key, label);
    }
}

/// No observer.
impl Observer for () {
    fn counted(&mut self, _: CountedRequest) {}
}
