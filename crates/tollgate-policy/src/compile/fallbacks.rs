//! The counts that a node uses while no authority responds, from the document.
//!
//! Invariant: a policy for the authority itself has no such counts. A part of a limit that is too
//! small is an error on every surface. `policy::fallback` defines the counts.
//! small is wrong everywhere. What they are is `policy::fallback`'s.

use alloc::string::String;
use alloc::vec::Vec;

use crate::compile::identities::RecordIds;
use crate::compile::parts::parts_of;
use crate::document::on_failure::WithoutState;
use crate::document::rule::RuleDoc;
use crate::document::scope::Scope;
use crate::json::place::At;
use crate::policy::compiled::Policy;
use crate::policy::fallback::FALLBACK;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::stable_hash::stable_hash;

/// The quotas that sets are counted in while no authority responds.
pub(super) struct Fallbacks {
    /// The surface sends requests to an authority, which may not respond.
    asks_authority: bool,
    of_sets: Vec<(u16, Vec<CompiledQuota>)>,
}

impl Fallbacks {
    pub(super) const fn new(asks_authority: bool) -> Self {
        Self { asks_authority, of_sets: Vec::new() }
    }

    /// Records the fallback that a rule sets for `set`, whose quotas are at `at`. A part that is
    /// too small is an error on every surface.
    pub(super) fn note(&mut self, doc: &RuleDoc, set: u16, policy: &Policy, at: &At<'_>) {
        let Some(WithoutState::Local(nodes)) = doc.on_failure else { return };
        let Some(whole) = policy.sets.get(usize::from(set)) else { return };
        let parts = parts_of(&whole.quotas, nodes, |i, field, words| {
            at.item(i).field(field).problem(words);
        });
        if self.asks_authority && doc.scope() == Scope::Fleet {
            self.of_sets.push((set, parts));
        }
    }

    /// Adds the fallback sets to the policy.
    pub(super) fn add(&mut self, policy: &mut Policy, ids: &mut RecordIds) {
        for (set, quotas) in core::mem::take(&mut self.of_sets) {
            add_set(set, quotas, policy, ids);
        }
    }
}

/// Adds the set that replaces `of`; `None` when there is no set `of`.
fn add_set(
    of: u16,
    quotas: Vec<CompiledQuota>,
    policy: &mut Policy,
    ids: &mut RecordIds,
) -> Option<()> {
    let whole = policy.sets.get(usize::from(of))?;
    let name = policy.rules.get(whole.rule())?.name.as_bytes();
    let tier = whole.tier().unwrap_or_default().as_bytes();
    let identities: String = quotas.iter().map(CompiledQuota::identity).collect();
    let hash = stable_hash(&[name, tier, identities.as_bytes(), FALLBACK]);
    let record_id = ids.free(hash, QuotaSet::version_of(&quotas));
    policy.add_fallback(of, record_id, quotas)
}
