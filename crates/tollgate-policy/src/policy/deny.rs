//! The rules of a policy that deny, and their look-up.
//!
//! Invariant: the look-up finds every rule that may match a request, by the same index as that of
//! the rules that count.

use alloc::vec::Vec;

use crate::policy::index::Index;
use crate::spec::deny::DenyRule;

/// All deny rules of a policy.
#[derive(Clone, Debug)]
pub(crate) struct DenyRules {
    /// In the order of the document.
    pub(crate) rules: Vec<DenyRule>,
    pub(crate) index: Index,
}

impl DenyRules {
    pub(crate) fn new(rules: Vec<DenyRule>) -> Self {
        let mut index = Index::new();
        for (rule, number) in rules.iter().zip(0..) {
            index.insert(rule.when.as_ref(), number);
        }
        index.others.complete();
        Self { rules, index }
    }
}
