//! Who is told of every request that a rule counts.
//!
//! Invariant: a request is told once for each rule that counts it, in the order of the replay, and
//! never before it is decided.

use tollgate_core::Timestamp;

/// One request as one rule counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The index of the rule in `Policy::rules`.
    pub rule: usize,
    /// The index of the quotas in `Policy::quota_sets`: the rule's own or a tier's.
    pub quota_set: usize,
    /// The keyed hash of the key that it counts by.
    pub key: u64,
    /// When the request came.
    pub at: Timestamp,
    /// What it costs, in quota units; 0 when its response is not charged.
    pub cost: u64,
    /// True when a quota of the rule had no room for it, whether the rule is enforced or not.
    pub is_over: bool,
}

/// Something that follows a replay.
pub trait Observer {
    /// A rule counts a request.
    fn counted(&mut self, request: Counted);

    /// True when it wants to know whose key this is.
    fn wants_label(&self, quota_set: usize, key: u64) -> bool {
        let _ = (quota_set, key);
        false
    }

    /// Whose key it is, as reports show it.
    fn labelled(&mut self, quota_set: usize, key: u64, label: String) {
        let _ = (quota_set, key, label);
    }
}

/// Nobody.
impl Observer for () {
    fn counted(&mut self, _: Counted) {}
}
