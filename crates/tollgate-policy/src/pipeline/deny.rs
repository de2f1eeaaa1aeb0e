//! The deny rules that match a request: evaluated before any key is computed.
//!
//! Invariant: a rule that denies matches when any reading of the request matches, so no spelling
//! evades it. A fact that the request does not have satisfies no condition. When it is unclear
//! whether a rule matches, the request is malformed, as it is for a rule that counts. The first
//! enforced rule in the order of the document denies; later ones are not evaluated.

use alloc::vec::Vec;

use crate::facts::Facts;
use crate::pipeline::matched_deny::MatchedDeny;
use crate::pipeline::plan::Plan;
use crate::policy::by_value::in_order;
use crate::policy::compiled::Policy;
use crate::policy::index::{Index, IndexedBy};
use crate::request::lazy::Request;
use crate::request::matching::Reading;
use crate::spec::deny::DenyRule;
use tollgate_http_syntax::malformed::Malformed;

impl Policy {
    /// Adds the deny rules that match the request to `matched`, in order. True when one of them
    /// denies the request: it is the last one.
    #[inline(never)] // many policies have none
    pub(super) fn is_denied<F: Facts>(
        &self,
        request: &Request<'_, F>,
        candidates: &mut Vec<u16>,
        matched: &mut Vec<MatchedDeny>,
    ) -> bool {
        find(&self.deny.index, request, candidates);
        for index in candidates {
            let Some(rule) = self.deny.rules.get(usize::from(*index)) else { continue };
            let malformed = match rule.matches(request) {
                Ok(false) => continue,
                Ok(true) => None,
                Err(malformed) => Some(malformed),
            };
            let is_enforced = rule.is_enforced;
            matched.push(MatchedDeny { rule: *index, is_enforced, malformed });
            if is_enforced {
                return true;
            }
        }
        false
    }
}

impl DenyRule {
    /// True when it is for this request.
    ///
    /// # Errors
    /// It is unclear whether it is.
    pub(crate) fn matches<F: Facts>(&self, request: &Request<'_, F>) -> Result<bool, Malformed> {
        let holds = match &self.when {
            Some(when) => when.hold(request, IndexedBy::Nothing, Reading::Any),
            None => Ok(true),
        };
        let is_excluded = || self.unless.as_ref().is_some_and(|unless| unless.surely_hold(request));
        if holds != Ok(false) && is_excluded() { Ok(false) } else { holds }
    }
}

/// Fills `candidates` with the rules of `index` that may apply, in order, each once.
#[inline(always)]
pub(super) fn find<F: Facts>(index: &Index, request: &Request<'_, F>, candidates: &mut Vec<u16>) {
    index.find(request.host().ok(), request.paths().all(), candidates);
    if !index.others.kinds.is_empty() {
        look_up(index, request, candidates);
    }
}

#[cold]
fn look_up<F: Facts>(index: &Index, request: &Request<'_, F>, candidates: &mut Vec<u16>) {
    request.look_up(&index.others, &[], &mut |rules| candidates.extend(rules));
    in_order(candidates);
}

impl Plan {
    /// True when a deny rule denies the request: it applies to no partition, and its
    /// [outcome](Plan::outcome) is known before it is decided.
    #[must_use]
    #[inline]
    pub fn is_denied(&self) -> bool {
        self.denial().is_some()
    }

    /// The deny rule that denies the request.
    #[inline]
    pub(crate) fn denial(&self) -> Option<&MatchedDeny> {
        self.denied.last().filter(|matched| matched.is_enforced)
    }
}
